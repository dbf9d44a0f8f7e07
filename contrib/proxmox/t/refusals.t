#!/usr/bin/perl -T

# Servers that are not there, not known, or answer otherwise than hoped for.

use strict;
use warnings;

use lib 't/lib';
use File::Temp;
use IO::Socket::INET;
use Storage;
use Test::More;

my $S = storage();

my $other = sub { return { %$S, @_ } };
my $activates = sub { my @keys = @_; sub { $P->activate_storage($ID, $other->(@keys), {}) } };

my $folder = File::Temp->newdir();
my $file = sub {
    my ($name, $text) = @_;
    open(my $handle, '>', "$folder/$name") or die "$name: $!";
    print {$handle} $text;
    close($handle) or die "$name: $!";
    return "$folder/$name";
};

# A port without a listener while this socket has it
my $socket = IO::Socket::INET->new(LocalAddr => '127.0.0.1', Proto => 'tcp') or die "a socket: $!";
my $silent = 'https://127.0.0.1:' . $socket->sockport();

for (
    ['an address without a server', qr/^the Lunette server at \Q$silent\E does not answer: /, 'lunette-url' => $silent],
    ['an address without TLS', qr/and not https:/, 'lunette-url' => 'http://127.0.0.1:1'],
    ['a certificate that is not known', qr/certificate verify failed|CA bundle/i, 'lunette-ca' => undef],
    ['a token that the server does not know', qr/a token is needed/, 'lunette-token-file' => $file->('w', 'x' x 40)],
    ['a file without a token', qr/does not begin with a token/, 'lunette-token-file' => $file->('e', "\n")],
    ['a file that is not there', qr/cannot read the token/, 'lunette-token-file' => "$folder/none"],
    ['a pool that is not there', qr/has no pool 'sea'/, pool => 'sea'],
    ['a pool with a wrong name', qr/'a b' is no name of a pool/, pool => 'a b'],
    ['a target that is not there', qr/there is no target iqn.2026-11.org.example:none/, target => 'iqn.2026-11.org.example:none'],
    ['a target with a wrong name', qr/'a\/b' is no name of a target/, target => 'a/b'],
) {
    my ($name, $like, @keys) = @$_;
    dies_like($activates->(@keys), $like, $name);
}

{
    my $warned = '';
    local $SIG{__WARN__} = sub { $warned .= $_[0] };
    is($P->check_connection($ID, $other->('lunette-url' => $silent)), 0, 'a server that is away is no connection');
    like($warned, qr/^storage '$ID': the Lunette server at .* does not answer/, 'the reason is told');
}

# A client that may not do it leaves nothing behind.
my $operate = $other->('lunette-token-file' => Storage::given('LUNETTE_TEST_OPERATE_TOKEN_FILE'));
my $alloc = sub { $P->alloc_image($ID, $operate, 5, 'raw', undef, 1024) };
dies_like($alloc, qr/this client may not do that/, 'a LUN by a token of the role operate');
is_deeply([map { $_->{name} } @{ ask(GET => '/v1/volumes') }], [], 'its volume is gone again');

# Jobs, by the answers of a server that is not there
package Scripted {
    our @ISA = ('PVE::Storage::LunetteServer');

    sub request {
        my ($self, $method, $path) = @_;
        push @{ $self->{asked} }, $path;
        my $answer = shift @{ $self->{answers} };
        $self->{status} = ref($answer) ? 200 : $answer =~ m/^4/ ? 404 : 409;
        die "$answer\n" if !ref($answer);
        return $answer;
    }
}

my $job = sub {
    my ($state, %more) = @_;
    my %job = (id => 3, kind => 'rollback', object => 'volumes/tank/a', created => 10, message => 'why');
    return { %job, state => $state, %more };
};
my $awaits = sub {
    my ($limit, $first, @answers) = @_;
    my $server = bless { answers => \@answers }, 'Scripted';
    return sub { $server->await_job($first, $limit) };
};
is($awaits->(60, $job->('queued'), $job->('running'), $job->('succeeded'))->()->{state}, 'succeeded', 'a job is awaited');
for (
    ['a job that has failed', qr/^job 3, rollback of volumes\/tank\/a: failed: why/, 60, $job->('queued'), $job->('failed')],
    ['a job that was cancelled', qr/cancelled: why/, 60, $job->('cancelled')],
    ['a job that takes too long', qr/has not ended after -1 s; it goes on/, -1, $job->('running')],
    ['a server that has forgotten its jobs', qr/was started again/, 60, $job->('running'), '404'],
    ['a server that numbers from 1 again', qr/was started again/, 60, $job->('running'), $job->('running', created => 99)],
    ['a server with another trouble', qr/^unavailable/, 60, $job->('running'), 'unavailable'],
) {
    my ($name, $like, @rest) = @$_;
    dies_like($awaits->(@rest), $like, $name);
}

# Changes of a volume that is being closed
my $closing = bless { answers => ['in use: try again in a moment', 'in use: try again in a moment', {}] }, 'Scripted';
$closing->remove('/a');
is_deeply($closing->{asked}, ['/a', '/a', '/a'], 'a volume that is being closed is removed a moment later');
my $twice = bless { answers => ['in use: by a LUN', {}] }, 'Scripted';
dies_like(sub { $twice->remove('/a') }, qr/by a LUN/, 'one that is in use is not asked for again');

done_testing();
