#!/usr/bin/perl -T

# Snapshots, roll backs, templates and clones, by what QEMU reads of them.

use strict;
use warnings;

use lib 't/lib';
use Storage;
use Test::More;

my $S = storage();
my $path = sub { scalar($P->path($S, $_[0], $ID, $_[1])) };
my $write = sub {
    my ($volname, $byte) = @_;
    like(qemu_io($path->($volname), "write -P $byte 0 64k"), qr/wrote 65536/, "$byte is written to $volname");
};
my $snapshots = sub { [sort keys %{ $P->volume_snapshot_info($S, $ID, $_[0]) }] };

# Snapshots
my $disk = $P->alloc_image($ID, $S, 100, 'raw', undef, 8192);
$write->($disk, 0x11);
is($P->volume_snapshot($S, $ID, $disk, 'one'), undef, 'a snapshot is taken');
$write->($disk, 0x22);
is($P->volume_snapshot($S, $ID, $disk, 'two'), undef, 'another one');
$write->($disk, 0x33);
my $info = $P->volume_snapshot_info($S, $ID, $disk);
is_deeply([sort keys %$info], ['one', 'two'], 'both are there');
ok(time() - $info->{one}->{timestamp} < 600 && $info->{one}->{id} ne $info->{two}->{id}, 'they have times and names');
dies_like(sub { $P->volume_snapshot($S, $ID, $disk, 'one') }, qr/already/, 'a name that is taken');
dies_like(sub { $P->volume_snapshot($S, $ID, $disk, 'a/b') }, qr/^'a\/b' is no name/, 'a name that is none');

# The content of a snapshot
dies_like(sub { $path->($disk, 'one') }, qr/activate it first/, 'a snapshot is not served');
ok($P->activate_volume($ID, $S, $disk, 'one'), 'it is when it is activated');
holds($path->($disk, 'one'), 0x11, 'it has the content of its time');
is($P->qemu_blockdev_options($S, $ID, $disk, '9.2', { 'snapshot-name' => 'one' })->{lun}, 1, 'for -blockdev, too');
like(qemu_io($path->($disk, 'one'), 'write 0 512'), qr/exit code|denied|read.only/i, 'it takes no writes');
ok($P->deactivate_volume($ID, $S, $disk, 'one'), 'its use ends');
is(scalar(keys %{ luns() }), 1, 'its LUN is gone');
dies_like(sub { $P->activate_volume($ID, $S, $disk, 'none') }, qr/has no snapshot 'none'/, 'a snapshot that is none');

# A snapshot that another node may be reading, because there is a session
$P->activate_volume($ID, $S, $disk, 'one');
my ($reader) = guest($path->($disk));
ok($P->deactivate_volume($ID, $S, $disk, 'one'), 'another use ends meanwhile');
ok(scalar(keys %{ luns() }) == 2, 'its LUN stays');
close($reader);

# Back
is($P->volume_rollback_is_possible($S, $ID, $disk, 'one', []), 1, 'later snapshots are not in the way');
dies_like(sub { $P->volume_rollback_is_possible($S, $ID, $disk, 'none') }, qr/has no snapshot 'none'/, 'to none');
is($P->volume_snapshot_rollback($S, $ID, $disk, 'one'), undef, 'it is rolled back');
holds($path->($disk), 0x11, 'it has the content of then');
is_deeply($snapshots->($disk), ['one', 'two'], 'no snapshot was added or lost');
is($P->volume_snapshot_rollback($S, $ID, $disk, 'two'), undef, 'it is rolled forth');
holds($path->($disk), 0x22, 'it has the later content');
dies_like(sub { $P->volume_snapshot_rollback($S, $ID, $disk, 'none') }, qr/there is no snapshot none/, 'to none');

# A clone of a snapshot
my $copy = $P->clone_image($S, $ID, $disk, 102, 'one');
is($copy, 'vm-102-disk-0', 'a clone of a snapshot has a plain name');
holds($path->($copy), 0x11, 'it has the content of the snapshot');
is($P->volume_snapshot_delete($S, $ID, $disk, 'one', 0), undef, 'the snapshot is removed, which had a LUN');
is_deeply($snapshots->($disk), ['two'], 'it is gone');
is($P->volume_snapshot_delete($S, $ID, $disk, 'one', 0), undef, 'a second removal changes nothing');
holds($path->($copy), 0x11, 'the clone stays');

# A template
my $template = $P->alloc_image($ID, $S, 200, 'raw', undef, 8192);
$write->($template, 0x44);
my $place = $path->($template);
dies_like(sub { $P->clone_image($S, $ID, $template, 201) }, qr/only works on base images/, 'a clone of a disk');
my $base = $P->create_base($ID, $S, $template);
is($base, 'base-200-disk-0', 'the template has its name');
is($path->($base), $place, 'it is at the place of the disk');
like(qemu_io($place, 'write 0 512'), qr/exit code|denied|read.only/i, 'it takes no writes');
dies_like(sub { $P->create_base($ID, $S, $base) }, qr/not possible with base image/, 'a template of a template');
dies_like(sub { $P->rename_volume($S, $ID, $base, 9) }, qr/keeps its name/, 'another name for a template');
my @clones = map { $P->clone_image($S, $ID, $base, $_) } (201, 201, 202);
is_deeply(\@clones, [map { "$base/vm-$_" } qw(201-disk-0 201-disk-1 202-disk-0)], 'clones have its name in theirs');
$write->($clones[0], 0x55);
holds($path->($base), 0x44, 'the template does not see what is written to a clone');
holds($path->($clones[1]), 0x44, 'nor does another clone');
my ($listed) = grep { $_->{vmid} == 202 } @{ $P->list_images($ID, $S) };
is_deeply([@$listed{qw(volid parent)}], ["$ID:$clones[2]", "$base\@__base__"], 'the list names the template');
is($P->rename_volume($S, $ID, $clones[2], 203), "$ID:$base/vm-203-disk-0", 'a clone keeps its template');
my $second = $P->create_base($ID, $S, "$base/vm-203-disk-0");
is($second, "$base/base-203-disk-0", 'a clone becomes a template');

# The end, with all snapshots
$P->activate_volume($ID, $S, $disk, 'two');
for my $volname ($disk, $copy, @clones[0, 1], $second, $base) {
    is($P->free_image($ID, $S, $volname, 0, 'raw'), undef, "$volname is removed");
}
is_deeply([luns(), $P->list_images($ID, $S)], [{}, []], 'nothing is left');

done_testing();
