#!/usr/bin/perl -T

# What Proxmox VE asks a plugin before there is any disk.

use strict;
use warnings;

use lib 't/lib';
use Storage;
use Test::More;

my $S = storage();

for ([8, 9], [9, 9], [11, 11], [15, 15], [16, 15]) {
    my ($host, $expected) = @$_;
    local $PVE::Storage::APIVER = $host;
    is($P->api(), $expected, "the version for a host with $host");
}
{
    local ($PVE::Storage::APIVER, $PVE::Storage::APIAGE) = (9, 0);
    is(PVE::Storage::refusal_of($P), undef, 'the oldest host loads it');
    ($PVE::Storage::APIVER, $PVE::Storage::APIAGE) = (19, 10);
    is(PVE::Storage::refusal_of($P), undef, 'a host that is compatible with 15 loads it');
    ($PVE::Storage::APIVER, $PVE::Storage::APIAGE) = (8, 7);
    like(PVE::Storage::refusal_of($P), qr/newer/, 'an older host refuses it');
}

is($P->type(), 'lunette', 'the type');
ok((grep { $_ eq 'lunette' } @PVE::Storage::Plugin::SHARED_STORAGE), 'all nodes reach it');
is_deeply($P->plugindata()->{content}, [{ images => 1 }, { images => 1 }], 'disks of guests, and nothing else');
my $properties = $P->properties();
ok(!(grep { $PVE::Storage::Plugin::DECLARED{$_} } keys %$properties), 'no property is declared twice');
for my $option (sort keys %{ $P->options() }) {
    ok($properties->{$option} || $PVE::Storage::Plugin::DECLARED{$option}, "option $option is declared");
}

for (
    ['vm-100-disk-0', ['images', 'vm-100-disk-0', '100', undef, undef, undef, 'raw']],
    ['vm-100-cloudinit', ['images', 'vm-100-cloudinit', '100', undef, undef, undef, 'raw']],
    ['vm-7-state-a_b-c', ['images', 'vm-7-state-a_b-c', '7', undef, undef, undef, 'raw']],
    ['base-100-disk-1', ['images', 'base-100-disk-1', '100', undef, undef, 1, 'raw']],
    ['base-100-disk-1/vm-101-disk-0', ['images', 'vm-101-disk-0', '101', 'base-100-disk-1', '100', undef, 'raw']],
    ['base-100-disk-1/base-101-disk-0', ['images', 'base-101-disk-0', '101', 'base-100-disk-1', '100', 1, 'raw']],
) {
    my ($volname, $expected) = @$_;
    is_deeply([$P->parse_volname($volname)], $expected, "$volname is understood");
}
for my $volname ('', 'disk-0', 'vm-x-disk-0', 'vm-0-disk-0', 'vm-100-', 'vm-100-disk/0', '../vm-100-disk-0', "vm-1-a\n") {
    dies_like(sub { $P->parse_volname($volname) }, qr/^unable to parse/, "'$volname' is no volume");
}

my @KINDS = (['vm-1-disk-0', undef], ['base-1-disk-0', undef], ['vm-1-disk-0', 'snap']);
for (
    [snapshot => 1, undef, 1],
    [clone => undef, 1, 1],
    [template => 1, undef, undef],
    [copy => 1, 1, 1],
    [sparseinit => 1, 1, undef],
    [rename => 1, undef, undef],
    [replicate => undef, undef, undef],
) {
    my ($feature, @expected) = @$_;
    my @there = map { $P->volume_has_feature($S, $feature, $ID, $_->[0], $_->[1], 0) } @KINDS;
    is_deeply(\@there, \@expected, "$feature of a disk, a template, a snapshot");
}
for my $feature (qw(rename template)) {
    is($P->volume_has_feature($S, $feature, $ID, 'vm-1-disk-0', undef, 1), undef, "no $feature while the guest runs");
}
is($P->volume_has_feature($S, 'clone', $ID, 'base-1-disk-0', undef, 0, { valid_target_formats => ['qcow2'] }),
    undef, 'a clone is raw');

done_testing();
