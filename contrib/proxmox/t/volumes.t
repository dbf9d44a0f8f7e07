#!/usr/bin/perl -T

# Disks from their creation to their end, read and written by QEMU.

use strict;
use warnings;

use lib 't/lib';
use Storage;
use Test::More;

my $S = storage();
my $BASE = "iscsi://$S->{portal}/$S->{target}";

is($P->check_connection($ID, $S), 1, 'the server answers');
ok($P->activate_storage($ID, $S, {}), 'the storage is activated');
my ($total, $free, $used, $active) = $P->status($ID, $S, {});
ok($total > 0 && $free > 0 && $free + $used <= $total && $active == 1, "its space: $total, $free, $used");
is_deeply($P->list_images($ID, $S), [], 'it has no disks');

# Alone
is($P->alloc_image($ID, $S, 100, 'raw', undef, 8192), 'vm-100-disk-0', 'the first name that is free');
is_deeply(luns(), { 0 => "volume:$S->{pool}/vm-100-disk-0" }, 'it is served');
my @size = $P->volume_size_info($S, $ID, 'vm-100-disk-0', 5);
is_deeply([@size[0 .. 3]], [8 << 20, 'raw', 0, undef], 'its size in KiB was understood');
cmp_ok(time() - $size[4], '<', 600, 'it is new');
is(scalar($P->volume_size_info($S, $ID, 'vm-100-disk-0')), 8 << 20, 'the size alone');
my @path = $P->path($S, 'vm-100-disk-0', $ID);
is_deeply(\@path, ["$BASE/0", '100', 'images'], 'its path');
is(scalar($P->filesystem_path($S, 'vm-100-disk-0')), "$BASE/0", 'the same without the name of the storage');
is_deeply(
    $P->qemu_blockdev_options($S, $ID, 'vm-100-disk-0', '9.2+pve1', {}),
    { driver => 'iscsi', transport => 'tcp', portal => $S->{portal}, target => $S->{target}, lun => 0 },
    'the same for -blockdev',
);
like(qemu_io($path[0], 'write -P 0x11 0 64k'), qr/wrote 65536/, 'QEMU writes to it');
holds($path[0], 0x11, 'QEMU reads it');

# Beside others
is($P->alloc_image($ID, $S, 100, 'raw', undef, 1024), 'vm-100-disk-1', 'the next name');
is($P->alloc_image($ID, $S, 100, 'raw', 'vm-100-cloudinit', 4096), 'vm-100-cloudinit', 'a name that is given');
is($P->alloc_image($ID, $S, 7, 'raw', undef, 1024), 'vm-7-disk-0', 'a disk of another guest');
is(scalar($P->path($S, 'vm-7-disk-0', $ID)), "$BASE/3", 'the next number');
ask(POST => "/v1/volumes/$S->{pool}/vm-8-disk-0", { size_bytes => 1 << 20 });
my $volids = sub { [sort map { $_->{volid} } @{ $P->list_images($ID, $S, @_) }] };
is_deeply($volids->(), [map { "$ID:vm-$_" } qw(100-cloudinit 100-disk-0 100-disk-1 7-disk-0)], 'all disks, and no others');
is_deeply($volids->(7), ["$ID:vm-7-disk-0"], 'the disks of a guest');
is_deeply($volids->(undef, ["$ID:vm-100-disk-1", "$ID:none"]), ["$ID:vm-100-disk-1"], 'disks by name');
my ($image) = @{ $P->list_images($ID, $S, 7) };
is_deeply([@$image{qw(format size vmid parent)}], ['raw', 1 << 20, '7', undef], 'what is said of a disk');
is($P->alloc_image($ID, $S, 8, 'raw', undef, 1024), 'vm-8-disk-1', 'a name in the pool is not taken twice');

# Refused
dies_like(sub { $P->alloc_image($ID, $S, 1, 'qcow2', undef, 1) }, qr/^unsupported format 'qcow2'/, 'another format');
dies_like(sub { $P->alloc_image($ID, $S, 1, 'raw', 'vm-2-a', 1) }, qr/should be 'vm-1-\*'/, 'a name of another guest');
dies_like(sub { $P->alloc_image($ID, $S, 100, 'raw', 'vm-100-disk-0', 1) }, qr/already/, 'a name that is taken');
dies_like(sub { $P->path($S, 'vm-9-disk-0', $ID) }, qr/^no LUN of target .* activate it first/, 'a disk that is none');
dies_like(sub { $P->activate_volume($ID, $S, 'vm-9-disk-0') }, qr/there is no volume/, 'an activation of none');
dies_like(sub { $P->volume_resize($S, $ID, 'vm-100-disk-0', 1 << 20, 0) }, qr/force/, 'a shorter disk');

# Longer
my $before = qemu_io($path[0], 'length');
ok($P->volume_resize($S, $ID, 'vm-100-disk-0', 16 << 20, 1), 'it is made longer');
is_deeply([$before, qemu_io($path[0], 'length')], ["8 MiB\n", "16 MiB\n"], 'QEMU sees it');
holds($path[0], 0x11, 'its content stays');

# Without its LUN
ask(DELETE => "/v1/targets/$S->{target}/luns/0");
dies_like(sub { $P->path($S, 'vm-100-disk-0', $ID) }, qr/activate it first/, 'a disk without a LUN');
ok($P->activate_volume($ID, $S, 'vm-100-disk-0'), 'its activation serves it again');
ok($P->activate_volume($ID, $S, 'vm-100-disk-0'), 'a second one changes nothing');
ok($P->deactivate_volume($ID, $S, 'vm-100-disk-0'), 'neither does the end of its use');
holds(scalar($P->path($S, 'vm-100-disk-0', $ID)), 0x11, 'it is the same disk');

# Another name
ask(PATCH => "/v1/volumes/$S->{pool}/vm-100-disk-0", { labels => { mine => 'yes', 'proxmox.target' => $S->{target} } });
is($P->rename_volume($S, $ID, 'vm-100-disk-0', 7, undef), "$ID:vm-7-disk-1", 'it is given to another guest');
is($P->rename_volume($S, $ID, 'vm-7-disk-1', 7, 'vm-7-data'), "$ID:vm-7-data", 'it gets a name');
holds("$BASE/0", 0x11, 'it is the same disk at the same place');
is_deeply(
    ask(GET => "/v1/volumes/$S->{pool}/vm-7-data")->{labels},
    { mine => 'yes', 'proxmox.target' => $S->{target}, 'proxmox.vm' => '7' },
    'its labels tell its guest, and those of others stay',
);
dies_like(sub { $P->rename_volume($S, $ID, 'vm-7-data', 7, 'vm-7-disk-0') }, qr/already/, 'a name that is taken');
holds(scalar($P->path($S, 'vm-7-data', $ID)), 0x11, 'it is served again as before');

# Beside a guest that runs
my ($input, $output) = guest(scalar($P->path($S, 'vm-7-data', $ID)));
print {$input} "read -P 0x11 0 64k\n";
my $other = $P->alloc_image($ID, $S, 101, 'raw', undef, 1024);
is($P->free_image($ID, $S, $other, 0, 'raw'), undef, 'a disk of another guest comes and goes');
print {$input} "read -P 0x11 0 64k\nwrite -P 0x12 0 64k\n";
close($input);
my $said = do { local $/; <$output> };
is(scalar(() = $said =~ m/^(?:qemu-io> )?(?:read|wrote) 65536/mg), 3, 'the guest goes on') or diag($said);
unlike($said, qr/verification failed|rror:/, 'it reads what it had');

# The end
for my $volname (qw(vm-7-data vm-7-disk-0 vm-8-disk-1 vm-100-disk-1 vm-100-cloudinit)) {
    is($P->free_image($ID, $S, $volname, 0, 'raw'), undef, "$volname is removed");
}
is_deeply([luns(), $P->list_images($ID, $S)], [{}, []], 'nothing is left');
dies_like(sub { $P->free_image($ID, $S, 'vm-7-data', 0, 'raw') }, qr/there is no volume/, 'a removal of none');
ask(DELETE => "/v1/volumes/$S->{pool}/vm-8-disk-0");

done_testing();
