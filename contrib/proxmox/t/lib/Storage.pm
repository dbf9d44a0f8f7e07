package Storage;

# The storage of the tests: the server that the environment names, and QEMU's tools at its disks.

use strict;
use warnings;

use Exporter qw(import);
use HTTP::Tiny;
use JSON;
use Test::More;

use PVE::Storage;
require "./LunettePlugin.pm"; ## no critic

our @EXPORT = qw($P $ID storage ask dies_like qemu_io holds luns);

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
    my $server = PVE::Storage::Custom::LunettePlugin::Server->new(storage());
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

# Whether the first 64 KiB of a disk are this byte.
sub holds {
    my ($path, $byte, $name) = @_;
    my $said = qemu_io($path, '-r', "read -P $byte 0 64k");
    ok($said =~ m/read 65536/ && $said !~ m/verification failed|exit code/, $name) or diag($said);
    return;
}

1;
