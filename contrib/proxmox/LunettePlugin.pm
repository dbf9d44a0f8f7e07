package PVE::Storage::Custom::LunettePlugin;

# A storage of Proxmox VE whose disks are volumes in a pool of a Lunette server. Each volume is a LUN of one target,
# which QEMU opens by libiscsi. docs/adapters/proxmox.md tells how it is set up, and what it refuses.
#
# Commands are made of what these calls return. So all that comes from the server passes a pattern before it leaves this
# file: names, numbers and messages.

use strict;
use warnings;

use JSON;

use PVE::Storage::LunetteServer;
use PVE::Storage::Plugin;

use base qw(PVE::Storage::Plugin);

# The versions of the storage API whose calls this plugin has.
use constant { OLDEST_API => 9, NEWEST_API => 15 };

# The snapshot of a template, of which its clones are made.
use constant BASE_SNAPSHOT => '__base__';

# How often another number is tried when another node has taken the one that was free.
use constant NUMBER_TRIES => 16;

# The labels of a volume: the target that it belongs to, its guest, and the template that it is a clone of.
use constant { TARGET_LABEL => 'proxmox.target', GUEST_LABEL => 'proxmox.vm', BASE_LABEL => 'proxmox.base' };

my $DISK = qr/(vm|base)-([1-9][0-9]{0,8})-[A-Za-z0-9._-]+/;
my $SNAPSHOT = qr/[A-Za-z0-9._-]+/;

# Every node reaches the disks.
push @PVE::Storage::Plugin::SHARED_STORAGE, 'lunette'
    if !grep { $_ eq 'lunette' } @PVE::Storage::Plugin::SHARED_STORAGE;

# What the storage is

sub api {
    my $host = eval { PVE::Storage::APIVER() } // NEWEST_API;
    return $host < OLDEST_API ? OLDEST_API : $host > NEWEST_API ? NEWEST_API : $host;
}

sub type {
    return 'lunette';
}

sub plugindata {
    return {
        content => [{ images => 1 }, { images => 1 }],
        format => [{ raw => 1 }, 'raw'],
        'sensitive-properties' => {},
    };
}

# The base class and the plugins of Proxmox VE have `portal`, `target` and `pool` already.
sub properties {
    return {
        'lunette-url' => {
            description => 'The API of the Lunette server, as https://HOST:PORT.',
            type => 'string',
            pattern => 'https://[A-Za-z0-9.:\[\]-]+',
        },
        'lunette-token-file' => {
            description => 'A file with a token of the role admin, which root alone may read.',
            type => 'string',
            pattern => '/\S+',
        },
        'lunette-ca' => {
            description => 'The certificate of the server, or of its authority, in PEM.',
            type => 'string',
            pattern => '/\S+',
        },
        'lunette-job-timeout' => {
            description => 'Seconds that a roll back may take.',
            type => 'integer',
            minimum => 1,
            default => 600,
        },
    };
}

sub options {
    return {
        'lunette-url' => {},
        'lunette-token-file' => {},
        'lunette-ca' => { optional => 1 },
        'lunette-job-timeout' => { optional => 1 },
        portal => {},
        target => { fixed => 1 },
        pool => { fixed => 1 },
        content => { optional => 1 },
        nodes => { optional => 1 },
        disable => { optional => 1 },
        shared => { optional => 1 },
        bwlimit => { optional => 1 },
    };
}

# Names

sub parse_volname {
    my ($class, $volname) = @_;

    if ($volname =~ m!^(?:(base-([1-9][0-9]{0,8})-[A-Za-z0-9._-]+)/)?($DISK)\z!) {
        my ($base, $base_vmid, $name, $kind, $vmid) = ($1, $2, $3, $4, $5);
        return ('images', $name, $vmid, $base, $base_vmid, $kind eq 'base' ? 1 : undef, 'raw');
    }
    die "unable to parse lunette volume name '$volname'\n";
}

my sub name_of {
    my ($class, $volname) = @_;
    return ($class->parse_volname($volname))[1];
}

# The name of a volume for Proxmox VE, with the template that it is a clone of.
my sub volname_of {
    my ($name, $labels) = @_;
    my ($base) = ($labels->{ BASE_LABEL() } // '') =~ m/^(base-[1-9][0-9]{0,8}-[A-Za-z0-9._-]+)\z/;
    return defined($base) ? "$base/$name" : $name;
}

my sub snapshot_name {
    my ($snap) = @_;
    return $1 if $snap =~ m/^($SNAPSHOT)\z/;
    die "'$snap' is no name of a snapshot\n";
}

# Requests

my sub server {
    my ($scfg, %options) = @_;
    die "'$scfg->{target}' is no name of a target\n" if $scfg->{target} !~ m/^[A-Za-z0-9.:_-]+\z/;
    die "'$scfg->{pool}' is no name of a pool\n" if $scfg->{pool} !~ m/^[A-Za-z0-9._-]+\z/;
    return PVE::Storage::LunetteServer->new($scfg, %options);
}

my sub volume_path {
    my ($scfg, $name) = @_;
    return "/v1/volumes/$scfg->{pool}/$name";
}

my sub lun_path {
    my ($scfg, $number) = @_;
    return "/v1/targets/$scfg->{target}/luns" . (defined($number) ? "/$number" : '');
}

# The disk of a LUN, as the server names it.
my sub disk_of {
    my ($scfg, $name, $snap) = @_;
    return "volume:$scfg->{pool}/$name" . (defined($snap) ? '@' . snapshot_name($snap) : '');
}

# The numbers of the LUNs that are taken, by their disks.
my sub luns {
    my ($server, $scfg) = @_;
    my $luns = $server->get(lun_path($scfg));
    return { map { $_->{number} =~ m/^([0-9]+)$/ ? ($_->{disk} => int($1)) : () } @$luns };
}

my sub lun_of {
    my ($server, $scfg, $name, $snap) = @_;
    my $disk = disk_of($scfg, $name, $snap);
    return luns($server, $scfg)->{$disk} // die "no LUN of target $scfg->{target} serves $disk; activate it first\n";
}

# Serves a disk, if no LUN does yet. Returns the LUN.
my sub serve {
    my ($server, $scfg, $name, %how) = @_;
    my $disk = disk_of($scfg, $name, $how{snap});
    my $lun = { disk => $disk, $how{read_only} ? (read_only => JSON::true) : () };
    for (1 .. NUMBER_TRIES) {
        my $taken = luns($server, $scfg);
        return $taken->{$disk} if defined($taken->{$disk});
        my %numbers = map { $_ => 1 } values %$taken;
        my $number = $how{number} // 0;
        $number++ while $numbers{$number};
        # Another node may take the number in this moment.
        return $number if $server->add(lun_path($scfg, $number), $lun);
    }
    die "other requests take each LUN of target $scfg->{target} that was free; try again\n";
}

# Removes the LUNs of a disk. All guests of the storage use the target, so the server cannot tell which of them uses
# this disk: Proxmox VE has seen to it that none does. Returns the number that the disk had.
my sub withdraw {
    my ($server, $scfg, $name, $snap, %how) = @_;
    my $disk = disk_of($scfg, $name, $snap);
    my $number = luns($server, $scfg)->{$disk};
    return undef if !defined($number);
    # By now another node may have given the number to another disk.
    my $lun = $server->find(lun_path($scfg, $number));
    return undef if !$lun || $lun->{disk} ne $disk;
    my $path = lun_path($scfg, $number) . ($how{unless_used} ? '' : '?force=true');
    $server->remove($path, 'If-Match' => $server->etag);
    return $number;
}

# The volume of a disk. Another storage, perhaps of another cluster, may have disks of the same names in the pool.
my sub own_volume {
    my ($server, $scfg, $name) = @_;
    my $volume = $server->get(volume_path($scfg, $name));
    my $target = $volume->{labels}->{ TARGET_LABEL() } // '';
    die "volume '$name' of pool '$scfg->{pool}' is of target '$target', and not of this storage\n"
        if $target ne $scfg->{target};
    return $volume;
}

my sub labels {
    my ($scfg, $vmid, $base) = @_;
    my $labels = { TARGET_LABEL() => "$scfg->{target}", GUEST_LABEL() => "$vmid" };
    $labels->{ BASE_LABEL() } = $base if defined($base);
    return $labels;
}

# Creates a volume and serves it, or leaves nothing behind.
my sub create {
    my ($server, $scfg, $name, $new) = @_;
    $server->post(volume_path($scfg, $name), $new);
    eval { serve($server, $scfg, $name) };
    if (my $error = $@) {
        eval { $server->remove(volume_path($scfg, $name)) };
        warn "volume $scfg->{pool}/$name stays: $@" if $@;
        die $error;
    }
    return;
}

# Does something to a volume that no LUN serves, and serves it again under the same number: `$name` before, and when
# the work has failed, `$after` else.
my sub unserved {
    my ($server, $scfg, $name, $after, $read_only, $work) = @_;
    my $number = withdraw($server, $scfg, $name);
    eval { $work->() };
    my $error = $@;
    my %how = (number => $number, read_only => !$error && $read_only);
    eval { serve($server, $scfg, $error ? $name : $after, %how) };
    die $error || $@ if $error || $@;
    return;
}

# The storage

sub check_connection {
    my ($class, $storeid, $scfg) = @_;
    return 1 if eval { server($scfg, timeout => 5)->get('/healthz'); 1 };
    warn "storage '$storeid': $@";
    return 0;
}

my sub pool {
    my ($scfg, %options) = @_;
    my $pools = server($scfg, %options)->get('/v1/pools');
    my ($pool) = grep { $_->{name} eq $scfg->{pool} } @$pools;
    die "the server has no pool '$scfg->{pool}'\n" if !$pool;
    die "pool '$scfg->{pool}' cannot be used: $1\n" if ($pool->{trouble} // '') =~ m/^(.+)/;
    return $pool;
}

sub activate_storage {
    my ($class, $storeid, $scfg, $cache) = @_;
    pool($scfg);
    server($scfg)->get(lun_path($scfg));
    return 1;
}

sub deactivate_storage {
    return 1;
}

sub status {
    my ($class, $storeid, $scfg, $cache) = @_;
    my $pool = pool($scfg, timeout => 5);
    my ($total, $free, $used) = map { $_ =~ m/^([0-9]+)$/ ? int($1) : 0 } @$pool{qw(total_bytes free_bytes used_bytes)};
    return ($total, $free, $used, 1);
}

# Volumes

sub path {
    my ($class, $scfg, $volname, $storeid, $snapname) = @_;
    my ($vtype, $name, $vmid) = $class->parse_volname($volname);
    my $lun = lun_of(server($scfg), $scfg, $name, $snapname);
    my $path = "iscsi://$scfg->{portal}/$scfg->{target}/$lun";
    return wantarray ? ($path, $vmid, $vtype) : $path;
}

sub filesystem_path {
    my ($class, $scfg, $volname, $snapname) = @_;
    return $class->path($scfg, $volname, undef, $snapname);
}

sub qemu_blockdev_options {
    my ($class, $scfg, $storeid, $volname, $machine_version, $options) = @_;
    my $lun = lun_of(server($scfg), $scfg, name_of($class, $volname), $options->{'snapshot-name'});
    return {
        driver => 'iscsi',
        transport => 'tcp',
        portal => "$scfg->{portal}",
        target => "$scfg->{target}",
        lun => int($lun),
    };
}

# A snapshot is served while it is read. A volume always is, unless its LUN was removed by hand.
sub activate_volume {
    my ($class, $storeid, $scfg, $volname, $snapname, $cache) = @_;
    my (undef, $name, undef, undef, undef, $is_base) = $class->parse_volname($volname);
    my $server = server($scfg);
    # The server refuses nothing here: it would show a disk that is missing as not ready.
    own_volume($server, $scfg, $name);
    if (defined($snapname)) {
        $class->volume_rollback_is_possible($scfg, $storeid, $volname, $snapname);
        serve($server, $scfg, $name, snap => $snapname);
    } else {
        serve($server, $scfg, $name, read_only => $is_base);
    }
    return 1;
}

sub deactivate_volume {
    my ($class, $storeid, $scfg, $volname, $snapname, $cache) = @_;
    return 1 if !defined($snapname);
    my $server = server($scfg);
    # While anything uses the target, another copy may read the snapshot. The LUN then goes with the snapshot.
    eval { withdraw($server, $scfg, name_of($class, $volname), $snapname, unless_used => 1) };
    die $@ if $@ && !$server->was_in_use();
    return 1;
}

sub list_images {
    my ($class, $storeid, $scfg, $vmid, $vollist, $cache) = @_;
    my $images = [];
    for my $volume (@{ server($scfg)->get("/v1/volumes?pool=$scfg->{pool}") }) {
        my ($name, undef, $owner) = $volume->{name} =~ m/^($DISK)\z/ or next;
        next if ($volume->{labels}->{ TARGET_LABEL() } // '') ne $scfg->{target};
        my $volid = "$storeid:" . volname_of($name, $volume->{labels});
        if ($vollist) {
            next if !grep { $_ eq $volid } @$vollist;
        } elsif (defined($vmid)) {
            next if $owner ne $vmid;
        }
        my ($size) = $volume->{size_bytes} =~ m/^([0-9]+)$/;
        my ($ctime) = $volume->{created} =~ m/^([0-9]+)$/;
        my $image = { volid => $volid, format => 'raw', size => int($size), vmid => $owner, ctime => int($ctime) };
        $image->{parent} = $1 . '@' . BASE_SNAPSHOT if $volid =~ m!:(base-[^/]+)/!;
        push @$images, $image;
    }
    return $images;
}

# The base class looks at the disks of this storage alone. Another storage may have volumes in the same pool.
sub find_free_diskname {
    my ($class, $storeid, $scfg, $vmid, $fmt, $add_fmt_suffix) = @_;
    my %taken;
    for my $volume (@{ server($scfg)->get("/v1/volumes?pool=$scfg->{pool}") }) {
        $taken{$1} = 1 if $volume->{name} =~ m/^(?:vm|base)-\Q$vmid\E-disk-([0-9]+)$/;
    }
    my $number = 0;
    $number++ while $taken{$number};
    return "vm-$vmid-disk-$number";
}

sub volume_size_info {
    my ($class, $scfg, $storeid, $volname, $timeout) = @_;
    my $server = server($scfg, $timeout ? (timeout => $timeout) : ());
    my $volume = own_volume($server, $scfg, name_of($class, $volname));
    my ($size, $used, $ctime) =
        map { ($_ // 0) =~ m/^([0-9]+)$/ ? int($1) : 0 } @$volume{qw(size_bytes own_bytes created)};
    return wantarray ? ($size, 'raw', $used, undef, $ctime) : $size;
}

sub alloc_image {
    my ($class, $storeid, $scfg, $vmid, $fmt, $name, $size) = @_;
    die "unsupported format '$fmt'\n" if $fmt ne 'raw';
    $name = $class->find_free_diskname($storeid, $scfg, $vmid, $fmt) if !$name;
    die "illegal name '$name' - should be 'vm-$vmid-*'\n" if $name !~ m/^vm-\Q$vmid\E-/;
    $name = name_of($class, $name);
    create(server($scfg), $scfg, $name, { size_bytes => $size * 1024, labels => labels($scfg, $vmid) });
    return $name;
}

sub free_image {
    my ($class, $storeid, $scfg, $volname, $is_base, $format) = @_;
    my (undef, $name, undef, undef, undef, $is_template) = $class->parse_volname($volname);
    my $server = server($scfg);
    own_volume($server, $scfg, $name);
    my $snapshots = $server->get(volume_path($scfg, $name) . '/snapshots');
    my %origins = map { ($_->{origin} // '') => 1 } @{ $server->get("/v1/volumes?pool=$scfg->{pool}") };
    my @names = map { snapshot_name($_->{name}) } @$snapshots;
    # Snapshots with clones first: where one cannot go because of these, as in Ceph, nothing is lost.
    for my $snap (sort { ($origins{"$name\@$b"} // 0) <=> ($origins{"$name\@$a"} // 0) } @names) {
        withdraw($server, $scfg, $name, $snap);
        $server->remove(volume_path($scfg, $name) . "/snapshots/$snap");
    }
    my $number = withdraw($server, $scfg, $name);
    eval { $server->remove(volume_path($scfg, $name)) };
    if (my $error = $@) {
        eval { serve($server, $scfg, $name, number => $number, read_only => $is_template) };
        warn $@ if $@;
        die $error;
    }
    return undef;
}

sub volume_resize {
    my ($class, $scfg, $storeid, $volname, $size, $running) = @_;
    my ($server, $name) = (server($scfg), name_of($class, $volname));
    own_volume($server, $scfg, $name);
    $server->patch(volume_path($scfg, $name), { size_bytes => int($size) });
    return 1;
}

sub rename_volume {
    my ($class, $scfg, $storeid, $source_volname, $target_vmid, $target_volname) = @_;
    my (undef, $name, undef, $base, undef, $is_base, $format) = $class->parse_volname($source_volname);
    die "a template keeps its name\n" if $is_base;
    $target_volname = $class->find_free_diskname($storeid, $scfg, $target_vmid, $format) if !$target_volname;
    my ($server, $new) = (server($scfg), name_of($class, $target_volname));
    my $labels = { %{ own_volume($server, $scfg, $name)->{labels} }, %{ labels($scfg, $target_vmid, $base) } };
    unserved($server, $scfg, $name, $new, 0, sub { $server->patch(volume_path($scfg, $name), { name => $new }) });
    $server->patch(volume_path($scfg, $new), { labels => $labels });
    return "$storeid:" . volname_of($new, $labels);
}

# Templates and clones

sub create_base {
    my ($class, $storeid, $scfg, $volname) = @_;
    my (undef, $name, $vmid, $base, undef, $is_base) = $class->parse_volname($volname);
    die "create_base not possible with base image\n" if $is_base;
    my $server = server($scfg);
    own_volume($server, $scfg, $name);
    my $new = $name =~ s/^vm-/base-/r;
    my $rename = sub {
        my $snapshot = { volumes => ["$scfg->{pool}/$name"], name => BASE_SNAPSHOT };
        $server->post('/v1/snapshots', $snapshot);
        eval { $server->patch(volume_path($scfg, $name), { name => $new }) };
        if (my $error = $@) {
            eval { $server->remove(volume_path($scfg, $name) . '/snapshots/' . BASE_SNAPSHOT) };
            warn $@ if $@;
            die $error;
        }
    };
    unserved($server, $scfg, $name, $new, 1, $rename);
    return volname_of($new, labels($scfg, $vmid, $base));
}

sub clone_image {
    my ($class, $scfg, $storeid, $volname, $vmid, $snap) = @_;
    my (undef, $origin, undef, undef, undef, $is_base) = $class->parse_volname($volname);
    die "clone_image only works on base images and snapshots\n" if !$is_base && !defined($snap);
    my $name = $class->find_free_diskname($storeid, $scfg, $vmid, 'raw');
    my $labels = labels($scfg, $vmid, defined($snap) ? undef : $origin);
    my $of = $origin . '@' . snapshot_name($snap // BASE_SNAPSHOT);
    my $server = server($scfg);
    own_volume($server, $scfg, $origin);
    create($server, $scfg, $name, { clone_of => $of, labels => $labels });
    return volname_of($name, $labels);
}

# Snapshots

sub volume_snapshot {
    my ($class, $scfg, $storeid, $volname, $snap) = @_;
    my ($server, $name) = (server($scfg), name_of($class, $volname));
    own_volume($server, $scfg, $name);
    $server->post('/v1/snapshots', { volumes => ["$scfg->{pool}/$name"], name => snapshot_name($snap) });
    return undef;
}

sub volume_snapshot_info {
    my ($class, $scfg, $storeid, $volname) = @_;
    my ($server, $name) = (server($scfg), name_of($class, $volname));
    own_volume($server, $scfg, $name);
    my $snapshots = $server->get(volume_path($scfg, $name) . '/snapshots');
    my $info = {};
    for my $snapshot (@$snapshots) {
        my ($created) = $snapshot->{created} =~ m/^([0-9]+)$/;
        my $name = snapshot_name($snapshot->{name});
        $info->{$name} = { id => "$name-$created", timestamp => int($created) };
    }
    return $info;
}

# Later snapshots stay when a volume is rolled back, so none is in the way.
sub volume_rollback_is_possible {
    my ($class, $scfg, $storeid, $volname, $snap, $blockers) = @_;
    my $snapshots = $class->volume_snapshot_info($scfg, $storeid, $volname);
    die "volume '$storeid:$volname' has no snapshot '$snap'\n" if !$snapshots->{$snap};
    return 1;
}

sub volume_snapshot_rollback {
    my ($class, $scfg, $storeid, $volname, $snap) = @_;
    my ($server, $name) = (server($scfg), name_of($class, $volname));
    own_volume($server, $scfg, $name);
    my $snapshots = volume_path($scfg, $name) . '/snapshots';
    my $job = $server->post("$snapshots/" . snapshot_name($snap) . '/actions/rollback');
    $job = $server->await_job($job, $scfg->{'lunette-job-timeout'} // 600);
    # Proxmox VE has asked the user, and does not know this snapshot: it would keep its space for good.
    if (my $before = $job->{result}->{before}) {
        eval { $server->remove("$snapshots/" . snapshot_name($before)) };
        warn "snapshot '$before' of '$storeid:$volname', the content of before, stays: $@" if $@;
    }
    return undef;
}

sub volume_snapshot_delete {
    my ($class, $scfg, $storeid, $volname, $snap, $running) = @_;
    my ($server, $name) = (server($scfg), name_of($class, $volname));
    own_volume($server, $scfg, $name);
    withdraw($server, $scfg, $name, $snap);
    $server->remove(volume_path($scfg, $name) . '/snapshots/' . snapshot_name($snap));
    return undef;
}

# Features, for which kinds of disks: of a template, of a guest, or a snapshot.
my $FEATURES = {
    snapshot => { current => 1, snap => 1 },
    clone => { base => 1, snap => 1 },
    template => { current => 1 },
    copy => { base => 1, current => 1, snap => 1 },
    sparseinit => { base => 1, current => 1 },
    rename => { current => 1 },
};

sub volume_has_feature {
    my ($class, $scfg, $feature, $storeid, $volname, $snapname, $running, $options) = @_;
    my $is_base = ($class->parse_volname($volname))[5];
    # These take the LUN away for a moment.
    return undef if $running && ($feature eq 'rename' || $feature eq 'template');
    return undef if $feature eq 'clone' && !grep { $_ eq 'raw' } @{ $options->{valid_target_formats} // ['raw'] };
    my $kind = defined($snapname) ? 'snap' : $is_base ? 'base' : 'current';
    return $FEATURES->{$feature}->{$kind} ? 1 : undef;
}

1;
