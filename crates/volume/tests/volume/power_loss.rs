//! Loads that are cut after every request to the unit: each quantum is the old or the new one, and the new one when it
//! was flushed.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::mpsc::channel;
use std::sync::{Arc, Mutex};

use lunette_buffer::Pool;
use lunette_quanta::{Group, Holes, KeyRing, QuantumSize};
use lunette_store::filters::PowerLoss;
use lunette_store::{
    Capabilities, Completion, FileIo, Geometry, InlineIo, Op, OpKind, Outcome, Store, StoreError, execute,
};
use lunette_volume::{Anchor, FormatOptions, OpenOptions, Volume, find, format, scrub, verify};

use crate::common::{Kind, VOLUME, flush, keys, read, write};

/// The length of a sector, which a disk writes as a whole or not at all.
const SECTOR_LEN: usize = 512;
const SEEDS: u64 = 2;

/// For each quantum of the load, the fills that a power cut may leave.
type Allowed = Vec<BTreeSet<u8>>;

/// The unit after a power cut.
struct Cut {
    disk: PowerLoss,
    allowed: Allowed,
    /// The anchor's file at that moment.
    anchor: Option<Vec<u8>>,
}

/// A disk that is cut after every change. Its writes can be torn between sectors.
struct Campaign {
    disk: PowerLoss,
    piece_len: usize,
    state: Mutex<State>,
}

struct State {
    allowed: Allowed,
    cuts: Vec<Cut>,
    seed: u64,
    anchor: Option<PathBuf>,
    /// Writes wait here while they are held.
    held: Option<Vec<(Op, Completion)>>,
}

impl State {
    fn keep(&mut self, disk: PowerLoss) {
        let anchor = self.anchor.as_ref().map(|path| std::fs::read(path).unwrap());
        self.cuts.push(Cut { disk, allowed: self.allowed.clone(), anchor });
    }
}

impl Campaign {
    /// A formatted unit that is cut from now on.
    fn new(kind: Kind, holes: Holes, seed: u64, piece_len: usize) -> (Arc<Self>, Arc<dyn Store>) {
        let journal_bytes = if matches!(kind, Kind::Packed(..)) { Some(32 << 10) } else { None };
        let options = FormatOptions { journal_bytes, ..kind.options(holes) };
        Self::formatted(kind, &options, QUANTA + 8, seed, piece_len)
    }

    /// A unit of this many EDUs that was formatted with these options and is cut from now on.
    fn formatted(
        kind: Kind,
        options: &FormatOptions,
        edus: u64,
        seed: u64,
        piece_len: usize,
    ) -> (Arc<Self>, Arc<dyn Store>) {
        let disk = PowerLoss::new(kind.unit_bytes(edus)).unwrap();
        let allowed = vec![BTreeSet::from([0]); QUANTA as usize];
        let state = State { allowed, cuts: Vec::new(), seed, anchor: None, held: None };
        let campaign = Arc::new(Self { disk, piece_len, state: Mutex::new(state) });
        let unit = kind.blocks(Arc::<Self>::clone(&campaign));
        format(&unit, VOLUME, &keys(&[1]), options, &mut |_| {}).unwrap();
        campaign.state.lock().unwrap().cuts.clear();
        (campaign, unit)
    }

    /// Cuts while a write that ends on stable storage is made: some of its sectors are there.
    fn cut_within(&self, offset: u64, from: &[u8]) {
        let mut state = self.state.lock().unwrap();
        for _ in 0..SEEDS {
            state.seed += 1;
            let cut = self.disk.cut(state.seed);
            let mut dice = Dice(state.seed);
            for (index, piece) in from.chunks(self.piece_len).enumerate().filter(|_| dice.roll(2) == 0) {
                cut.write(offset + (index * self.piece_len) as u64, piece).unwrap();
            }
            state.keep(cut);
        }
    }

    fn hold(&self) {
        self.state.lock().unwrap().held = Some(Vec::new());
    }

    /// Makes the writes that were held, in the order that `dice` gives them. Gives their number.
    fn release(&self, dice: &mut Dice) -> usize {
        let mut held = self.state.lock().unwrap().held.take().unwrap();
        let number = held.len();
        while !held.is_empty() {
            let (op, done) = held.swap_remove(dice.roll(held.len() as u64) as usize);
            self.submit(op, &InlineIo, done);
        }
        number
    }

    fn cut(&self) {
        let mut state = self.state.lock().unwrap();
        for _ in 0..SEEDS {
            state.seed += 1;
            let cut = self.disk.cut(state.seed);
            state.keep(cut);
        }
    }

    fn allow(&self, quanta: std::ops::Range<u64>, fill: u8) {
        let mut state = self.state.lock().unwrap();
        quanta.for_each(|at| {
            state.allowed[at as usize].insert(fill);
        });
    }

    fn demand(&self, quanta: std::ops::Range<u64>, current: &[u8]) {
        let mut state = self.state.lock().unwrap();
        quanta.for_each(|at| state.allowed[at as usize] = BTreeSet::from([current[at as usize]]));
    }
}

impl Store for Campaign {
    fn geometry(&self) -> Geometry {
        self.disk.geometry()
    }

    fn capabilities(&self) -> Capabilities {
        self.disk.capabilities()
    }

    fn submit(&self, op: Op, io: &dyn FileIo, done: Completion) {
        let kind = op.kind();
        if let (OpKind::Write, Some(held)) = (kind, &mut self.state.lock().unwrap().held) {
            return held.push((op, done));
        }
        if let Op::Write { offset, from, fua: true } = &op {
            self.cut_within(*offset, from);
        }
        if let Op::Write { offset, from, fua: false } = &op {
            for (index, piece) in from.chunks(self.piece_len).enumerate() {
                self.disk.write(offset + (index * self.piece_len) as u64, piece).unwrap();
            }
            self.cut();
            return done.complete(Outcome::of(op, Ok(())));
        }
        self.disk.submit(op, io, done);
        if !matches!(kind, OpKind::Read | OpKind::Allocation) {
            self.cut();
        }
    }
}

/// A generator of numbers for loads (SplitMix64).
struct Dice(u64);

impl Dice {
    fn roll(&mut self, sides: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (mixed ^ (mixed >> 31)) % sides
    }
}

const QUANTA: u64 = 24;

/// The states in which a power cut leaves a load, with the fills that are allowed there.
fn cuts(kind: Kind, holes: Holes, seed: u64, piece_len: usize) -> Vec<Cut> {
    let (campaign, unit) = Campaign::new(kind, holes, seed, piece_len);
    loaded(kind, &campaign, &unit, seed)
}

/// The load of a campaign on a formatted unit.
fn loaded(kind: Kind, campaign: &Campaign, unit: &Arc<dyn Store>, seed: u64) -> Vec<Cut> {
    let size = kind.size();
    let anchor = campaign.state.lock().unwrap().anchor.clone();
    let volume = open(unit, keys(&[1]), anchor.as_deref());
    let mut dice = Dice(seed);
    let mut current = vec![0; QUANTA as usize];
    for step in 0..60_u64 {
        let at = dice.roll(QUANTA);
        let quanta = at..QUANTA.min(at + 1 + dice.roll(4));
        let count = (quanta.end - quanta.start) as usize;
        match dice.roll(10) {
            0..6 => {
                let (fill, fua) = (step as u8 + 1, dice.roll(4) == 0);
                campaign.allow(quanta.clone(), fill);
                write(&volume, at * size.bytes() as u64, &vec![fill; count * size.bytes()], fua).unwrap();
                current[at as usize..][..count].fill(fill);
                if fua {
                    campaign.demand(quanta, &current);
                }
            }
            6..8 => {
                campaign.allow(quanta.clone(), 0);
                let (offset, len) = (at * size.bytes() as u64, (count * size.bytes()) as u64);
                let op = Op::WriteZeroes { offset, len, may_unmap: true, fua: false };
                execute(&volume, op).result.unwrap();
                current[at as usize..][..count].fill(0);
            }
            8 => {
                flush(&volume).unwrap();
                campaign.demand(0..QUANTA, &current);
            }
            _ if step > 30 => volume.set_keys(keys(&[1, 2])).unwrap(),
            _ => {}
        }
    }
    volume.close().unwrap();
    campaign.demand(0..QUANTA, &current);
    campaign.cut();
    drop(volume);

    std::mem::take(&mut campaign.state.lock().unwrap().cuts)
}

/// Opens what a cut has left of a native volume whose blocks are not written as a whole. Gives the number of quanta
/// that are refused, each of which was being written.
fn check_torn(kind: Kind, cut: PowerLoss, allowed: &Allowed) -> usize {
    let unit = kind.blocks(Arc::new(cut));
    let volume = Volume::open(Arc::clone(&unit), &find(&unit).unwrap(), keys(&[1, 2]), OpenOptions::default()).unwrap();
    let len = kind.size().bytes();
    let is_refused = |(at, allowed): &(usize, &BTreeSet<u8>)| match read(&volume, (at * len) as u64, len) {
        Ok(quantum) => {
            assert!(allowed.iter().any(|fill| quantum == vec![*fill; len]), "quantum {at} is other than {allowed:?}");
            false
        }
        Err((error, _)) => {
            assert!(matches!(error, StoreError::Refused { .. }) && allowed.len() > 1, "quantum {at}: {error}");
            true
        }
    };
    allowed.iter().enumerate().filter(is_refused).count()
}

fn open(unit: &Arc<dyn Store>, keys: KeyRing, anchor: Option<&Path>) -> Volume {
    let options = OpenOptions { anchor: anchor.map(Path::to_owned), ..OpenOptions::default() };
    Volume::open(Arc::clone(unit), &find(unit).unwrap(), keys, options).unwrap()
}

/// Opens what a cut has left, twice: as it is, and after the first checkpoint.
fn check(kind: Kind, cut: PowerLoss, allowed: &Allowed) {
    let unit = kind.blocks(Arc::new(cut));
    let ring = keys(&[1, 2]);
    let report = verify(&unit, &find(&unit).unwrap(), Some(&ring), None, &mut |_| {}).unwrap();
    assert!(report.is_whole(), "{report:?}");
    let content = |volume: &Volume| -> Vec<u8> {
        let len = kind.size().bytes();
        let bytes = read(volume, 0, allowed.len() * len).unwrap();
        bytes
            .chunks(len)
            .map(|quantum| {
                assert!(quantum.iter().all(|byte| *byte == quantum[0]), "a mixture");
                quantum[0]
            })
            .collect()
    };
    let open = || Volume::open(Arc::clone(&unit), &find(&unit).unwrap(), ring.clone(), OpenOptions::default()).unwrap();
    let volume = open();
    let found = content(&volume);
    for (at, (fill, allowed)) in found.iter().zip(allowed).enumerate() {
        assert!(allowed.contains(fill), "quantum {at} is {fill}, and may be {allowed:?}");
    }
    volume.close().unwrap();
    drop(volume);
    assert_eq!(content(&open()), found, "a checkpoint changes nothing");
}

#[test]
fn every_quantum_is_old_or_new_and_new_when_it_was_flushed() {
    let kinds = [
        (Kind::Native(QuantumSize::B512), Holes::Allowed),
        (Kind::Packed(QuantumSize::B512, 512), Holes::Allowed),
        (Kind::Packed(QuantumSize::B4096, 512), Holes::Allowed),
        (Kind::Packed(QuantumSize::B512, 512), Holes::Refused),
    ];
    for (kind, holes) in kinds {
        let piece_len = if let Kind::Native(size) = kind { size.edu_len() } else { SECTOR_LEN };
        let cuts: Vec<_> = (0..2).flat_map(|seed| cuts(kind, holes, seed * 1000, piece_len)).collect();
        println!("{kind:?}, {holes:?}: {} cuts", cuts.len());
        assert!(cuts.len() > 200, "the load reaches the unit");
        for Cut { disk, allowed, .. } in cuts {
            check(kind, disk, &allowed);
        }
    }
}

/// The load with an anchor, cut as before: client and unit end in the same moment.
fn anchored_cuts(kind: Kind, holes: Holes, seed: u64, piece_len: usize, path: &Path) -> Vec<Cut> {
    let (campaign, unit) = Campaign::new(kind, holes, seed, piece_len);
    drop(Anchor::create(path, find(&unit).unwrap().header()).unwrap());
    campaign.state.lock().unwrap().anchor = Some(path.to_owned());
    loaded(kind, &campaign, &unit, seed)
}

#[test]
fn no_cut_leaves_an_anchor_that_refuses_what_is_there() {
    let folder = tempfile::tempdir().unwrap();
    let kinds =
        [(Kind::Native(QuantumSize::B512), Holes::Allowed), (Kind::Packed(QuantumSize::B512, 512), Holes::Refused)];
    for (kind, holes) in kinds {
        let path = folder.path().join(format!("{kind:?}"));
        let piece_len = if let Kind::Native(size) = kind { size.edu_len() } else { SECTOR_LEN };
        let mut cuts = anchored_cuts(kind, holes, 7000, piece_len, &path);
        println!("{kind:?}, {holes:?}: {} cuts", cuts.len());
        let last = cuts.last_mut().unwrap().anchor.clone().unwrap();
        let (mut saved, mut refused) = (BTreeSet::new(), 0);
        for Cut { disk, allowed, anchor } in cuts {
            let anchor = anchor.unwrap();
            std::fs::write(&path, &anchor).unwrap();
            saved.insert(anchor);
            let unit = kind.blocks(Arc::new(disk));
            let volume = open(&unit, keys(&[1, 2]), Some(&path));
            let len = kind.size().bytes();
            for (at, allowed) in allowed.iter().enumerate() {
                let quantum = read(&volume, (at * len) as u64, len).unwrap_or_else(|(error, _)| panic!("{error}"));
                assert!(allowed.iter().any(|fill| quantum == vec![*fill; len]), "quantum {at}");
            }
            drop(volume);
            // The same disk is a rollback for an anchor that knows of the end.
            std::fs::write(&path, &last).unwrap();
            let volume = open(&unit, keys(&[1, 2]), Some(&path));
            refused += usize::from(read(&volume, 0, allowed.len() * len).is_err());
        }
        assert!(saved.len() > 3 && refused > 100, "{} anchors, {refused} refused", saved.len());
    }
}

/// Submits writes of one quantum each that are all under way at once, and ends them in another order. Gives the highest
/// number of writes to the unit that were.
fn together(kind: Kind, seed: u64) -> (Vec<Cut>, usize) {
    let len = kind.size().bytes();
    let (campaign, unit) = Campaign::new(kind, Holes::Allowed, seed, SECTOR_LEN);
    let volume = Volume::open(Arc::clone(&unit), &find(&unit).unwrap(), keys(&[1]), OpenOptions::default()).unwrap();
    let (mut dice, mut current, mut most) = (Dice(seed), vec![0; QUANTA as usize], 0);
    let pool = Pool::new(1 << 20);
    for round in 0..12_u64 {
        campaign.hold();
        let (tx, rx) = channel();
        // Far apart, so no two of them are writes of the same quantum, whose order would not be known.
        for index in 0..8_u64 {
            let at = index * 3 + dice.roll(3);
            let (fill, fua) = ((round * 8 + index + 1) as u8, dice.roll(4) == 0);
            campaign.allow(at..at + 1, fill);
            current[at as usize] = fill;
            let mut from = pool.take(len).unwrap();
            from.fill(fill);
            let tx = tx.clone();
            let done = Completion::call(move |outcome| tx.send(outcome.result.is_ok()).unwrap());
            volume.submit(Op::Write { offset: at * len as u64, from, fua }, &InlineIo, done);
        }
        campaign.cut();
        most = most.max(campaign.release(&mut dice));
        assert!((0..8).all(|_| rx.recv().unwrap()));
        if dice.roll(3) == 0 {
            flush(&volume).unwrap();
            campaign.demand(0..QUANTA, &current);
        }
    }
    volume.close().unwrap();
    campaign.demand(0..QUANTA, &current);
    campaign.cut();
    drop(volume);
    (std::mem::take(&mut campaign.state.lock().unwrap().cuts), most)
}

#[test]
fn so_it_is_when_several_records_are_under_way_and_end_in_any_order() {
    for kind in [Kind::Packed(QuantumSize::B512, 512), Kind::Packed(QuantumSize::B4096, 512)] {
        for seed in 0..2 {
            let (cuts, most) = together(kind, seed * 1000);
            println!("{kind:?}: {} cuts, {most} writes at once", cuts.len());
            assert!(cuts.len() > 100 && most > 1, "writes are under way at the same time");
            for Cut { disk, allowed, .. } in cuts {
                check(kind, disk, &allowed);
            }
        }
    }
}

#[test]
fn a_native_quantum_on_blocks_that_tear_is_old_or_new_or_refused() {
    for size in [QuantumSize::B512, QuantumSize::B4096] {
        let kind = Kind::Native(size);
        let mut refused = 0;
        for seed in 0..2 {
            for Cut { disk, allowed, .. } in cuts(kind, Holes::Allowed, seed * 1000, SECTOR_LEN) {
                refused += check_torn(kind, disk, &allowed);
            }
        }
        println!("{size:?}: {refused} quanta refused");
        assert!(refused > 0, "the cuts tear blocks");
    }
}

const GROUP: Group = Group { data: 4, parity: 2 };
const WITH_PARITY: Kind = Kind::Native(QuantumSize::B512);

/// The load on a volume with parity groups.
fn parity_cuts(seed: u64, piece_len: usize) -> Vec<Cut> {
    let options = FormatOptions { parity: Some(GROUP), ..WITH_PARITY.options(Holes::Allowed) };
    let (campaign, unit) = Campaign::formatted(WITH_PARITY, &options, 2 * QUANTA, seed, piece_len);
    loaded(WITH_PARITY, &campaign, &unit, seed)
}

#[test]
fn a_volume_with_parity_is_old_or_new_and_repairs_again_after_a_scrub() {
    let edu_len = QuantumSize::B512.edu_len();
    let (mut cuts_made, mut encoded) = (0, 0);
    for Cut { disk, allowed, .. } in parity_cuts(0, edu_len) {
        cuts_made += 1;
        let disk = Arc::new(disk);
        let unit = WITH_PARITY.blocks(Arc::<PowerLoss>::clone(&disk));
        let volume = open(&unit, keys(&[1, 2]), None);
        let content = read(&volume, 0, allowed.len() * 512).unwrap();
        for (at, (quantum, allowed)) in content.chunks(512).zip(&allowed).enumerate() {
            assert!(allowed.iter().any(|fill| quantum == [*fill; 512]), "quantum {at}");
        }
        let scrubbed = scrub(&volume, &mut |_| {}).unwrap();
        assert_eq!((scrubbed.repaired, scrubbed.lost), (0, 0));
        encoded += scrubbed.encoded;
        assert!(read(&volume, 0, content.len()).unwrap() == content, "a scrub changes no data");
        // As many as the parity makes good, in each group.
        for at in (0..QUANTA).filter(|at| at % u64::from(GROUP.data) < u64::from(GROUP.parity)) {
            let place = (2 + at) * edu_len as u64 + 9;
            let mut byte = [0];
            disk.read(place, &mut byte).unwrap();
            disk.write(place, &[!byte[0]]).unwrap();
        }
        assert!(read(&volume, 0, content.len()).unwrap() == content, "everything is repaired");
        assert_eq!(volume.counts().repaired, QUANTA / 2);
    }
    println!("{cuts_made} cuts, {encoded} groups with stale parity");
    assert!(cuts_made > 200 && encoded > 100, "{cuts_made} cuts, {encoded} groups with stale parity");
}

#[test]
fn a_volume_with_parity_on_blocks_that_tear_is_old_or_new_or_refused() {
    let mut refused = 0;
    for Cut { disk, allowed, .. } in parity_cuts(5000, SECTOR_LEN) {
        refused += check_torn(WITH_PARITY, disk, &allowed);
    }
    println!("{refused} quanta refused");
}

#[test]
fn a_volume_that_is_formatted_is_there_or_not() {
    let kind = Kind::Packed(QuantumSize::B512, 512);
    let disk = PowerLoss::new(kind.unit_bytes(16)).unwrap();
    let state = State { allowed: vec![BTreeSet::from([0]); 8], cuts: Vec::new(), seed: 0, anchor: None, held: None };
    let campaign = Arc::new(Campaign { disk, piece_len: SECTOR_LEN, state: Mutex::new(state) });
    let unit = kind.blocks(Arc::<Campaign>::clone(&campaign));
    // Formatted and used before, with the same name: nothing of that may come back.
    let again = FormatOptions { overwrite: true, ..kind.options(Holes::Allowed) };
    format(&unit, VOLUME, &keys(&[1]), &again, &mut |_| {}).unwrap();
    let volume = Volume::open(Arc::clone(&unit), &find(&unit).unwrap(), keys(&[1]), OpenOptions::default()).unwrap();
    write(&volume, 0, &[9; 8 * 512], true).unwrap();
    drop(volume);
    execute(&*unit, Op::Flush).result.unwrap();
    campaign.state.lock().unwrap().cuts.clear();
    format(&unit, VOLUME, &keys(&[1]), &again, &mut |_| {}).unwrap();
    let cuts = std::mem::take(&mut campaign.state.lock().unwrap().cuts);
    let mut found_some = [false; 2];
    for Cut { disk, allowed, .. } in cuts {
        let unit = kind.blocks(Arc::new(disk));
        let old = |unit: &Arc<dyn Store>| {
            let volume = Volume::open(Arc::clone(unit), &find(unit).unwrap(), keys(&[1]), OpenOptions::default());
            volume.is_ok_and(|volume| read(&volume, 0, 512).is_ok_and(|bytes| bytes[0] == 9))
        };
        match find(&unit) {
            Err(_) => found_some[0] = true,
            Ok(_) if old(&unit) => {}
            Ok(_) => {
                found_some[1] = true;
                check(kind, unit_of(&unit), &allowed);
            }
        }
    }
    assert_eq!(found_some, [true, true]);
}

/// A copy of a unit, as a disk that loses nothing more.
fn unit_of(unit: &Arc<dyn Store>) -> PowerLoss {
    let len = unit.geometry().len_bytes;
    let copy = PowerLoss::new(len).unwrap();
    let bytes = read(&**unit, 0, len as usize).unwrap();
    copy.write(0, &bytes).unwrap();
    copy.submit(Op::Flush, &InlineIo, Completion::call(|_| {}));
    copy
}
