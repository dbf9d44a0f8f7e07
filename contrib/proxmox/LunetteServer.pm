package PVE::Storage::LunetteServer;

# Requests to the API of a Lunette server, for PVE::Storage::Custom::LunettePlugin. This file is beside the folder of
# plugins, because Proxmox VE takes each file there for one.

use strict;
use warnings;

use HTTP::Tiny;
use JSON;
use Time::HiRes;

# Seconds that an answer may take, for all requests but those of the status.
use constant TIMEOUT => 60;

# The longest answer: the volumes of a full pool have less.
use constant MAX_ANSWER => 64 * 1024 * 1024;

# Seconds that a request to the server waits for the end of a job.
use constant JOB_WAIT => 20;

# Seconds in which a disk that a LUN has served is closed.
use constant CLOSE_WAIT => 10;

sub new {
    my ($class, $scfg, %options) = @_;
    my ($url) = $scfg->{'lunette-url'} =~ m!^(https://[A-Za-z0-9.:\[\]-]+?)/*$!
        or die "lunette-url is '$scfg->{'lunette-url'}', and not https://HOST:PORT\n";
    my $file = $scfg->{'lunette-token-file'};
    open(my $handle, '<', $file) or die "cannot read the token in $file: $!\n";
    my $line = <$handle> // '';
    close($handle);
    my ($token) = $line =~ m/^\s*([!-~]{22,})/ or die "$file does not begin with a token\n";
    my $ca = $scfg->{'lunette-ca'};
    my $http = HTTP::Tiny->new(
        agent => 'lunette-proxmox ',
        default_headers => { Authorization => "Bearer $token" },
        max_redirect => 0,
        max_size => MAX_ANSWER,
        timeout => $options{timeout} // TIMEOUT,
        verify_SSL => 1,
        # The server is in the network of the storage, where no proxy leads to.
        map({ ($_ => undef) } qw(proxy http_proxy https_proxy)),
        $ca ? (SSL_options => { SSL_ca_file => $ca }) : (),
    );
    return bless { url => $url, http => $http, json => JSON->new->utf8 }, $class;
}

# Sends a request. Returns the status and the value of the answer, or dies with what the server says.
sub request {
    my ($self, $method, $path, $body, %headers) = @_;
    my $options = { headers => { %headers } };
    if (defined($body)) {
        $options->{headers}->{'Content-Type'} = 'application/json';
        $options->{content} = $self->{json}->encode($body);
    }
    my $answer = $self->{http}->request($method, "$self->{url}$path", $options);
    # HTTP::Tiny's own status for what has kept it from an answer.
    ($self->{status}, $self->{title}, $self->{etag}) = (0, '', undef);
    if ($answer->{status} == 599) {
        my ($why) = $answer->{content} =~ m/^\s*(\S[^\n]*)/;
        die "the Lunette server at $self->{url} does not answer: " . ($why // 'no reason given') . "\n";
    }
    my $is_json = ($answer->{headers}->{'content-type'} // '') =~ m!^application/(?:problem\+)?json!;
    my $value = $is_json ? eval { $self->{json}->decode($answer->{content}) } : $answer->{content};
    ($self->{status}, $self->{title}) = ($answer->{status}, ref($value) eq 'HASH' ? $value->{title} // '' : '');
    $self->{etag} = $answer->{headers}->{etag};
    return $value if $answer->{success};
    my $problem = ref($value) eq 'HASH' ? "$value->{title}: $value->{detail}" : "$answer->{status} $answer->{reason}";
    my ($text) = $problem =~ m/^([^\n]*)/;
    die "$method $path: $text\n";
}

sub was_in_use {
    my ($self) = @_;
    return ($self->{title} // '') eq 'in use';
}

sub get {
    my ($self, $path) = @_;
    return $self->request('GET', $path);
}

# Reads something that may not be there.
sub find {
    my ($self, $path) = @_;
    my $value = eval { $self->request('GET', $path) };
    die $@ if $@ && $self->{status} != 404;
    return $value;
}

# The ETag of the last answer.
sub etag {
    my ($self) = @_;
    return $self->{etag} // die "the Lunette server at $self->{url} gives no ETag\n";
}

# Requests that change a volume. One that is being opened or closed is changed a moment later.
sub patiently {
    my ($self, @request) = @_;
    my $end = Time::HiRes::time() + CLOSE_WAIT;
    while (1) {
        my $answer = eval { $self->request(@request) };
        my $error = $@ or return $answer;
        die $error if $error !~ m/try again in a moment/ || Time::HiRes::time() > $end;
        Time::HiRes::sleep(0.1);
    }
}

sub post {
    my ($self, $path, $body) = @_;
    return $self->patiently('POST', $path, $body);
}

sub patch {
    my ($self, $path, $body) = @_;
    return $self->patiently('PATCH', $path, $body);
}

# Removes something. That it is not there is no error.
sub remove {
    my ($self, $path, %headers) = @_;
    eval { $self->patiently('DELETE', $path, undef, %headers) };
    die $@ if $@ && ($self->{status} // 0) != 404;
    return;
}

# Adds an object. Returns false when there is one already.
sub add {
    my ($self, $path, $object) = @_;
    return 1 if eval { $self->request('PUT', $path, $object, 'If-None-Match' => '*'); 1 };
    die $@ if ($self->{status} // 0) != 412;
    return 0;
}

# Waits until a job has succeeded.
sub await_job {
    my ($self, $job, $limit) = @_;
    my ($what, $end) = ("job $job->{id}, $job->{kind} of $job->{object}", Time::HiRes::time() + $limit);
    while ($job->{state} eq 'queued' || $job->{state} eq 'running') {
        my $left = int($end - Time::HiRes::time());
        die "$what has not ended after $limit s; it goes on\n" if $left < 0;
        my $wait = $left < JOB_WAIT ? $left : JOB_WAIT;
        my $now = eval { $self->get("/v1/jobs/$job->{id}?wait_seconds=$wait") };
        my $error = $@;
        # A restart of the server forgets its jobs, and numbers new ones from 1 on.
        if ($error ? $self->{status} == 404 : $now->{object} ne $job->{object} || $now->{created} != $job->{created}) {
            die "$what is unknown to the server, which was started again: look whether it was done\n";
        }
        die $error if $error;
        $job = $now;
    }
    return $job if $job->{state} eq 'succeeded';
    my ($why) = "$job->{state}: $job->{message}" =~ m/^([^\n]*)/;
    die "$what: $why\n";
}

1;
