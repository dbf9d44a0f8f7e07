package PVE::Storage::Plugin;

# A stand-in for the base class of Proxmox VE, with what the plugin takes from it and nothing else: a call that falls
# through to the base class dies here, and the tests see it.

use strict;
use warnings;

our @SHARED_STORAGE = qw(iscsi nfs rbd zfs);

# Properties of the base class and of the plugins that Proxmox VE brings. Another plugin may use and not declare them.
our %DECLARED = map { $_ => 1 } qw(
    base bwlimit content content-dirs datastore disable domain fingerprint format is_mountpoint iscsiprovider krbd
    maxfiles mkdir monhost mountpoint namespace nodes nowritecache options password path pool port portal preallocation
    prune-backups saferemove server shared sparse target thinpool type username vgname volume
);

our $AUTOLOAD;

sub AUTOLOAD {
    my $name = $AUTOLOAD;
    return if $name =~ m/::DESTROY$/;
    die "$name is of the base class\n";
}

1;
