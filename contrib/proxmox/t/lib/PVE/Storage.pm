package PVE::Storage;

# What Proxmox VE's own PVE::Storage does when it loads a plugin, as far as a plugin notices.

use strict;
use warnings;

our $APIVER = 13;
our $APIAGE = 4;

sub APIVER {
    return $APIVER;
}

# Why a plugin would not be loaded; undef when it would.
sub refusal_of {
    my ($plugin) = @_;
    return 'not derived from PVE::Storage::Plugin' if !$plugin->isa('PVE::Storage::Plugin');
    my $version = $plugin->api();
    return "newer than $APIVER" if $version > $APIVER;
    return "older than " . ($APIVER - $APIAGE) if $version < $APIVER - $APIAGE;
    return undef;
}

1;
