package Storage;

# The storage of the tests: the server that the environment names, and QEMU's tools at its disks.

use strict;
use warnings;

use Exporter qw(import);
use File::Temp;
use IO::Handle;
use Test::More;

use PVE::Storage;

BEGIN {
    $INC{'PVE/Storage/LunetteServer.pm'} = './LunetteServer.pm';
}
require './LunetteServer.pm';
require './LunettePlugin.pm';

our @EXPORT = qw($P $ID storage ask dies_like qemu_io guest holds luns);

our $P = 'PVE::Storage::Custom::LunettePlugin';
our $ID = 'lun';

$ENV{PATH} = '/usr/sbin:/usr/bin:/sbin:/bin';
delete @ENV{qw(IFS CDPATH ENV BASH_ENV)};

# A value of the environment. The tests run as a daemon of Proxmox VE does, with taint checks.
sub given {
    my ($name) = @_;
    my ($value) = ($ENV{$name} // '') =~ m/^(\S+)$/ or BAIL_OUT("$name is not set: docs/adapters/proxmox.md tells how");
    return $value;
}

# The configuration of the storage, as storage.cfg has it.
sub storage {
    my (%other) = @_;
    return {
        type => 'lunette',
        shared => 1,
        'lunette-url' => given('LUNETTE_TEST_URL'),
        'lunette-token-file' => given('LUNETTE_TEST_TOKEN_FILE'),
        'lunette-ca' => given('LUNETTE_TEST_CA'),
        portal => given('LUNETTE_TEST_PORTAL'),
        target => given('LUNETTE_TEST_TARGET'),
        pool => given('LUNETTE_TEST_POOL'),
        %other,
    };
}

# Asks the server without the plugin.
sub ask {
    my ($method, $path, $body) = @_;
    my $server = PVE::Storage::LunetteServer->new(storage());
    return $server->request($method, $path, $body);
}

# The disks of the LUNs of the storage's target, by number.
sub luns {
    my $luns = ask(GET => '/v1/targets/' . storage()->{target} . '/luns');
    return { map { $_->{number} => $_->{disk} } @$luns };
}

sub dies_like {
    my ($work, $like, $name) = @_;
    my $lived = eval { $work->(); 1 };
    ok(!$lived, "$name: it dies");
    like($@, $like, $name);
    like($@, qr/\n\z/, "$name: the message has no line number");
    return;
}

# Runs qemu-io on a disk. Returns what it says, whose patterns have matched.
sub qemu_io {
    my ($path, @commands) = @_;
    my $is_read_only = grep { $_ eq '-r' } @commands;
    my $arguments = join(' ', map { "-c '$_'" } grep { $_ ne '-r' } @commands);
    my $command = join(' ', 'qemu-io -f raw', $is_read_only ? '-r' : '', $arguments, $path, '2>&1');
    open(my $pipe, '-|', $command) or die "qemu-io: $!";
    my $said = join('', <$pipe>);
    close($pipe);
    return $said . ($? ? "exit code " . ($? >> 8) : '');
}

# Starts qemu-io on a disk, and returns once it has a session: its input, and a file with its output.
sub guest {
    my ($path) = @_;
    my $output = File::Temp->new();
    open(my $input, '|-', "qemu-io -f raw $path >$output 2>&1") or die "qemu-io: $!";
    $input->autoflush(1);
    my $end = time() + 30;
    until (@{ ask(GET => '/v1/sessions') }) {
        die "qemu-io has no session\n" if time() > $end;
        select(undef, undef, undef, 0.05);
    }
    return ($input, $output);
}

# Whether the first 64 KiB of a disk are this byte.
sub holds {
    my ($path, $byte, $name) = @_;
    my $said = qemu_io($path, '-r', "read -P $byte 0 64k");
    ok($said =~ m/read 65536/ && $said !~ m/verification failed|exit code/, $name) or diag($said);
    return;
}

1;
