use std::collections::VecDeque;

use proptest::prelude::*;

use super::*;

fn at(ms: u64) -> Time {
    Time::new(Duration::from_millis(ms))
}

/// Sends probes over a path that carries `mtu` bytes until nothing is due, and says what was probed. `lost` says which
/// probes are lost although they fit.
fn search(path: &mut PathMtu, now: Time, mtu: usize, mut lost: impl FnMut() -> bool) -> Vec<usize> {
    let mut probes = Vec::new();
    while let Some(len) = path.probe_due(now) {
        assert_eq!(path.probe_due(now), None, "one probe at a time");
        probes.push(len);
        if len <= mtu && !lost() {
            let before = path.datagram_len();
            assert_eq!(path.on_probe_acknowledged(now, len), Some(Change::Wider(len)));
            assert!(before < len);
        } else {
            path.on_probe_lost(now, len);
        }
    }
    assert!(path.is_settled());
    probes
}

fn settled(interface_len: usize, mtu: usize) -> PathMtu {
    let mut path = PathMtu::new(at(0), interface_len);
    search(&mut path, at(0), mtu, || false);
    path
}

#[test]
fn the_first_probe_is_as_long_as_the_interface_takes() {
    let mut path = PathMtu::new(at(0), 8972);
    assert_eq!((path.datagram_len(), path.is_settled()), (MIN_DATAGRAM_LEN, false));
    assert_eq!(search(&mut path, at(0), 8972, || false), [8972]);
    assert_eq!(path.datagram_len(), 8972);
}

#[test]
fn a_shorter_path_is_found_by_halving() {
    let mut path = PathMtu::new(at(0), 8972);
    let mut probes = search(&mut path, at(0), 1472, || false);
    probes.dedup();
    assert_eq!(probes, [8972, 5102, 3167, 2199, 1715, 1473, 1352, 1412, 1442]);
    assert_eq!(path.datagram_len(), 1442);
}

#[test]
fn an_interface_that_takes_no_more_than_the_least_needs_no_search() {
    for len in [0, 576, MIN_DATAGRAM_LEN] {
        let mut path = PathMtu::new(at(0), len);
        assert!(path.is_settled());
        assert_eq!((path.probe_due(at(0)), path.next_timeout()), (None, None));
        assert_eq!(path.probe_due(at(3_600_000)), None);
    }
    assert_eq!(PathMtu::new(at(0), usize::MAX).probe_due(at(0)), Some(MAX_DATAGRAM_LEN));
}

#[test]
fn a_length_is_too_long_when_three_probes_of_it_are_lost() {
    let mut path = PathMtu::new(at(0), 8972);
    for _ in 0..PROBES - 1 {
        assert_eq!(path.probe_due(at(0)), Some(8972));
        path.on_probe_lost(at(0), 8972);
    }
    assert_eq!(path.probe_due(at(0)), Some(8972));
    assert_eq!(path.on_probe_acknowledged(at(0), 8972), Some(Change::Wider(8972)));
    assert!(path.is_settled());
}

#[test]
fn only_the_probe_under_way_counts() {
    let mut path = PathMtu::new(at(0), 8972);
    assert_eq!(path.on_probe_acknowledged(at(0), 8972), None, "none is under way");
    assert_eq!(path.probe_due(at(0)), Some(8972));
    assert_eq!(path.on_probe_acknowledged(at(0), 4000), None);
    path.on_probe_lost(at(0), 4000);
    assert_eq!((path.datagram_len(), path.probe_due(at(0))), (MIN_DATAGRAM_LEN, None));
}

#[test]
fn a_longer_length_is_tried_after_ten_minutes() {
    let mut path = settled(8972, 1472);
    let again = path.next_timeout().unwrap();
    assert_eq!(again, at(600_000));
    assert_eq!(path.probe_due(at(599_999)), None);
    assert_eq!(search(&mut path, again, 8972, || false), [8972]);
    assert_eq!((path.datagram_len(), path.next_timeout()), (8972, None));
}

/// The fate of packets on a path of 8972 bytes that now carries 3000: `l`, `s` and `m` are a long, a short and a
/// middling packet, capital letters acknowledged ones.
#[test]
fn a_black_hole_is_three_long_packets_that_vanish_while_short_ones_pass() {
    let rows = [
        ("lllS", true),
        ("Slll", false),
        ("lSll", true),
        ("llS", false),
        ("lll", false),
        ("llLlS", false),
        ("lllLS", false),
        ("llsSl", true),
        ("sssssS", false),
        ("lllMS", true),
        ("mmmS", true),
        ("lmlMS", false),
        ("mmmLS", false),
    ];
    for (packets, found) in rows {
        let mut path = settled(8972, 8972);
        let mut changes = Vec::new();
        for (number, packet) in (10..).zip(packets.chars()) {
            let len = match packet.to_ascii_lowercase() {
                'l' => 8972,
                'm' => 2000,
                _ => 200,
            };
            let change = if packet.is_ascii_uppercase() {
                path.on_acknowledged(at(number), number, len)
            } else {
                path.on_lost(at(number), number, len)
            };
            changes.extend(change);
        }
        let expected = if found { vec![Change::Narrower(MIN_DATAGRAM_LEN)] } else { vec![] };
        assert_eq!(changes, expected, "{packets}");
        assert_eq!(path.is_settled(), !found, "{packets}");
    }
}

/// Acknowledgements are reported before the losses that they show, so a packet that was sent later may have passed
/// already.
#[test]
fn packets_that_were_lost_before_a_long_one_passed_are_no_black_hole() {
    let mut path = settled(8972, 8972);
    assert_eq!(path.on_acknowledged(at(0), 20, 8972), None);
    for number in 10..17 {
        assert_eq!(path.on_lost(at(0), number, 8972), None);
    }
    assert_eq!(path.on_acknowledged(at(0), 21, 200), None);
}

/// Packets sent before the path changed prove nothing about it.
#[test]
fn older_long_packets_that_pass_do_not_hide_a_black_hole() {
    let mut path = settled(8972, 8972);
    for number in 11..14 {
        assert_eq!(path.on_lost(at(0), number, 8972), None);
    }
    assert_eq!(path.on_acknowledged(at(0), 10, 8972), None);
    assert_eq!(path.on_acknowledged(at(0), 14, 200), Some(Change::Narrower(MIN_DATAGRAM_LEN)));
}

#[test]
fn losses_before_a_change_of_length_are_no_evidence_after_it() {
    // Losses of packets that are longer than any since.
    let mut path = settled(8972, 8972);
    for number in 0..3 {
        path.on_lost(at(0), number, 8972);
    }
    path.on_acknowledged(at(0), 3, 200);
    search(&mut path, at(0), 3000, || false);
    for number in 4..9 {
        assert_eq!(path.on_lost(at(0), number, 8972), None);
    }
    assert_eq!(path.on_acknowledged(at(0), 9, 200), None);

    // Losses before a longer probe has passed.
    let mut path = settled(8972, 2000);
    let len = path.datagram_len();
    for number in 0..2 {
        path.on_lost(at(0), number, len);
    }
    let again = path.next_timeout().unwrap();
    search(&mut path, again, 8972, || false);
    path.on_lost(at(700_000), 2, len);
    assert_eq!(path.on_acknowledged(at(700_000), 3, 200), None);
}

#[test]
fn the_length_before_a_black_hole_is_tried_first() {
    let mut path = settled(8972, 8972);
    for number in 0..3 {
        path.on_lost(at(0), number, 8972);
    }
    assert_eq!(path.on_acknowledged(at(0), 3, 128), Some(Change::Narrower(MIN_DATAGRAM_LEN)));
    // More of the same losses change nothing.
    for number in 4..9 {
        assert_eq!(path.on_lost(at(0), number, 8972), None);
    }
    assert_eq!(path.on_acknowledged(at(0), 9, 128), None);
    let probes = search(&mut path, at(0), 3000, || false);
    assert_eq!(probes[..4], [8972, 8972, 8972, 5102]);
    assert!((3000 - STEP..=3000).contains(&path.datagram_len()));

    // It was a coincidence: one probe, and all is as before.
    let mut path = settled(8972, 8972);
    for number in 0..3 {
        path.on_lost(at(0), number, 8972);
    }
    path.on_acknowledged(at(0), 3, 128);
    assert_eq!(search(&mut path, at(0), 8972, || false), [8972]);
    assert_eq!(path.datagram_len(), 8972);
}

#[test]
fn a_refused_length_costs_as_many_probes_as_a_lost_one() {
    let mut path = PathMtu::new(at(0), 65_487);
    let mut probes = Vec::new();
    while let Some(len) = path.probe_due(at(0)) {
        probes.push(len);
        let change = if len <= 1472 { path.on_probe_acknowledged(at(0), len) } else { path.on_refused(at(0), len) };
        assert_eq!(change, (len <= 1472).then_some(Change::Wider(len)));
    }
    assert_eq!(probes.len(), 12, "{probes:?}");
    assert!(path.is_settled() && (1472 - STEP..=1472).contains(&path.datagram_len()), "{path:?}");
    assert_eq!(path.on_refused(at(0), 65_487), None, "that is known");
    path.on_probe_lost(at(0), 65_487);
    assert!(path.is_settled());
}

#[test]
fn what_has_passed_and_is_refused_now_is_too_long() {
    let mut path = settled(8972, 8972);
    assert_eq!(path.on_refused(at(0), 8972), Some(Change::Narrower(MIN_DATAGRAM_LEN)));
    search(&mut path, at(0), 1472, || false);
    assert!((1472 - STEP..=1472).contains(&path.datagram_len()), "{path:?}");
    // The least length is never given up.
    assert_eq!(path.on_refused(at(0), 0), Some(Change::Narrower(MIN_DATAGRAM_LEN)));
    assert!(path.is_settled());
    assert_eq!(search(&mut path, at(600_000), 8972, || false), [8972], "the next search");
}

/// A sender of long and short packets over a path that loses some and drops the long ones after a while.
struct Flow {
    path: PathMtu,
    /// The length that the path carries.
    mtu: usize,
    now: u64,
    next: u64,
    in_flight: VecDeque<(u64, usize, bool)>,
    random: u64,
    /// The number of packets of which one is lost.
    loss: u64,
}

impl Flow {
    fn is_lost(&mut self) -> bool {
        self.random = self.random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        self.loss != 0 && (self.random >> 33).is_multiple_of(self.loss)
    }

    /// Sends a packet of that length, or a probe in its place. Acknowledgements come 8 packets later, and a packet is
    /// lost when one sent three later was acknowledged.
    fn send(&mut self, len: usize) {
        self.now += 1;
        if let Some(probe) = self.path.probe_due(at(self.now)) {
            if probe <= self.mtu && !self.is_lost() {
                self.path.on_probe_acknowledged(at(self.now), probe);
            } else {
                self.path.on_probe_lost(at(self.now), probe);
            }
        }
        let passes = len <= self.mtu && !self.is_lost();
        self.in_flight.push_back((self.next, len, passes));
        self.next += 1;
        if self.in_flight.len() < 8 {
            return;
        }
        // What is acknowledged next shows the losses before it.
        let Some(index) = self.in_flight.iter().position(|&(_, _, passes)| passes) else { return };
        if index + 3 >= self.in_flight.len() {
            return;
        }
        let (number, len, _) = self.in_flight.remove(index).unwrap();
        self.path.on_acknowledged(at(self.now), number, len);
        while let Some(&(lost, len, false)) = self.in_flight.front()
            && lost + 3 <= number
        {
            self.in_flight.pop_front();
            self.path.on_lost(at(self.now), lost, len);
        }
    }
}

/// For how many of 5000 packets the path was taken for a narrower one than it is.
fn narrow_packets(seed: u64, shorts: u64, loss: u64) -> usize {
    let path = settled(8972, 8972);
    let mut flow = Flow { path, mtu: 8972, now: 0, next: 0, in_flight: VecDeque::new(), random: seed, loss };
    let mut narrow = 0;
    for number in 0..5000 {
        let len = if number % shorts == 0 { 200 } else { flow.path.datagram_len() };
        narrow += usize::from(flow.path.datagram_len() < 8972);
        flow.send(len);
    }
    narrow
}

/// One of 20 packets is lost, the first probe after the third long one too. When one probe decided, the path was
/// narrower for ten minutes.
#[test]
fn one_lost_probe_does_not_make_a_path_narrow() {
    let narrow = narrow_packets(9_937_038_368_577_979_196, 2, 20);
    assert!((1..50).contains(&narrow), "narrow for {narrow} packets");
}

proptest! {
    /// On any path: what is found passes, and is the longest that does but for less than a step.
    #[test]
    fn the_search_finds_what_the_path_carries(interface_len in 1000..70_000_usize, mtu in MIN_DATAGRAM_LEN..70_000) {
        let mut path = PathMtu::new(at(0), interface_len);
        let probes = search(&mut path, at(0), mtu, || false);
        let possible = mtu.min(bounded(interface_len));
        prop_assert!(path.datagram_len() <= possible);
        prop_assert!(possible - path.datagram_len() < STEP);
        prop_assert!(probes.len() <= 3 * 13, "{} probes", probes.len());
    }

    /// Losses make the search end earlier, and never make it wrong.
    #[test]
    fn losses_never_lengthen_packets(
        interface_len in 1000..70_000_usize,
        mtu in MIN_DATAGRAM_LEN..70_000,
        losses in prop::collection::vec(any::<bool>(), 60),
    ) {
        let mut path = PathMtu::new(at(0), interface_len);
        let mut losses = losses.into_iter();
        search(&mut path, at(0), mtu, || losses.next().unwrap_or(false));
        prop_assert!(path.datagram_len() <= mtu.min(bounded(interface_len)));
    }

    /// Whatever the mix of packets, and with losses beside: a path that has become narrower is noticed, and its length
    /// is found.
    #[test]
    fn a_path_that_becomes_narrower_is_found_again(
        before in 2000..65_000_usize,
        share in 0..100_usize,
        shorts in 2..9_u64,
        seed in any::<u64>(),
        loss in prop::sample::select(vec![0_u64, 100, 1000]),
    ) {
        let after = MIN_DATAGRAM_LEN + (before - MIN_DATAGRAM_LEN) * share / 100;
        let path = settled(before, before);
        let mut flow = Flow { path, mtu: before, now: 0, next: 0, in_flight: VecDeque::new(), random: seed, loss };
        for number in 0..2000 {
            if number == 200 {
                flow.mtu = after;
            }
            let len = if number % shorts == 0 { 200 } else { flow.path.datagram_len() };
            flow.send(len);
        }
        prop_assert!(flow.path.datagram_len() <= after, "{:?}", flow.path);
        if loss == 0 {
            prop_assert!(after - flow.path.datagram_len() < STEP);
        }
    }

    /// Losses alone are not taken for a black hole for long.
    #[test]
    fn losses_alone_do_not_shorten_packets(seed in any::<u64>(), shorts in 2..9_u64) {
        let narrow = narrow_packets(seed, shorts, 50);
        prop_assert!(narrow <= 50, "narrow for {narrow} of 5000 packets");
    }

    #[test]
    fn no_report_makes_it_panic(reports in prop::collection::vec((0..7_u8, any::<u64>(), 0..80_000_usize), 0..200)) {
        let mut path = PathMtu::new(at(0), 9000);
        for (ms, (report, number, len)) in (0..).map(|step| step * 10_000).zip(reports) {
            let before = path.datagram_len();
            let change = match report {
                0 => path.on_acknowledged(at(ms), number % 100, len),
                1 => path.on_lost(at(ms), number % 100, len),
                2 => path.on_probe_acknowledged(at(ms), len),
                3 => { path.on_probe_lost(at(ms), len); None }
                4 => path.on_refused(at(ms), len),
                5 => path.probe_due(at(ms)).and_then(|len| path.on_probe_acknowledged(at(ms), len)),
                _ => { if let Some(len) = path.probe_due(at(ms)) { path.on_probe_lost(at(ms), len); } None }
            };
            match change {
                None => prop_assert_eq!(path.datagram_len(), before),
                Some(Change::Wider(len)) => prop_assert!(len > before && path.datagram_len() == len),
                Some(Change::Narrower(len)) => prop_assert!(len < before && path.datagram_len() == len),
            }
            prop_assert!((MIN_DATAGRAM_LEN..=MAX_DATAGRAM_LEN).contains(&path.datagram_len()));
        }
    }
}
