use std::sync::Arc;

use lunette_store::filters::{Fault, PowerLoss, Rule, Trace};
use lunette_store::{
    Capabilities, Completion, FileIo, Geometry, MemoryStore, Op, OpKind, Outcome, Store, StoreError, execute,
};

use super::*;
use crate::commands::depth::Depth;

const LEN: u64 = 4 << 20;
const BLOCK: u64 = 64 << 10;

const OPTIONS: Options = Options { depth: Depth::Given(4), block: BLOCK, verify: true, window_bytes: 3 * BLOCK };

fn disk(name: &str, store: Arc<dyn Store>) -> Disk {
    Disk {
        name: name.into(),
        store,
        file: None,
        blank: false,
        identity: name.into(),
        unfinished: endpoint::Unfinished::Stays,
        volume: None,
    }
}

/// A source with data, holes, and data that is zero.
fn source() -> Arc<MemoryStore> {
    let store = MemoryStore::new(LEN).unwrap();
    for chunk in 0..LEN / BLOCK {
        match chunk % 5 {
            0 | 3 => store.write(chunk * BLOCK, &vec![chunk as u8 + 1; BLOCK as usize]).unwrap(),
            1 => store.write(chunk * BLOCK, &vec![0; BLOCK as usize]).unwrap(),
            _ => {}
        }
    }
    Arc::new(store)
}

/// A destination full of other data.
fn soiled() -> Arc<MemoryStore> {
    let store = MemoryStore::new(LEN).unwrap();
    store.write(0, &vec![0xee; LEN as usize]).unwrap();
    Arc::new(store)
}

fn content(store: &MemoryStore) -> Vec<u8> {
    let mut bytes = vec![0; LEN as usize];
    store.read(0, &mut bytes).unwrap();
    bytes
}

fn same(one: &[u8], other: &[u8]) {
    let differ = one.iter().zip(other).position(|(one, other)| one != other);
    assert_eq!((one.len(), differ), (other.len(), None));
}

fn copy_to(destination: Arc<dyn Store>) -> Result<Totals, Failure> {
    copy(&disk("from", source()), &disk("to", destination), 0, OPTIONS, None)
}

#[test]
fn a_copy_replaces_everything_and_sends_data_alone() {
    let memory = soiled();
    let trace = Arc::new(Trace::new(Arc::<MemoryStore>::clone(&memory)));
    let totals = copy_to(Arc::<Trace>::clone(&trace)).unwrap();
    same(&content(&memory), &content(&source()));
    let chunks = LEN / BLOCK;
    let data = (0..chunks).filter(|chunk| matches!(chunk % 5, 0 | 3)).count() as u64 * BLOCK;
    assert_eq!(totals, Totals { data_bytes: data, zero_bytes: LEN - data });
    let written: u64 =
        trace.records().iter().filter(|record| record.kind == OpKind::Write).map(|record| record.len).sum();
    assert_eq!(written, data);
    assert_eq!(
        trace.records().iter().filter(|record| record.kind == OpKind::Flush).count() as u64,
        data / (3 * BLOCK) + 1
    );
}

#[test]
fn a_blank_disk_gets_no_zeroes() {
    let trace = Arc::new(Trace::new(Arc::new(MemoryStore::new(LEN).unwrap())));
    let blank = Disk { blank: true, ..disk("to", Arc::<Trace>::clone(&trace)) };
    copy(&disk("from", source()), &blank, 0, Options { verify: false, ..OPTIONS }, None).unwrap();
    assert!(trace.records().iter().all(|record| matches!(record.kind, OpKind::Write | OpKind::Flush)));
}

#[test]
fn zeroes_go_where_there_is_space_and_nowhere_else() {
    let memory = MemoryStore::new(LEN).unwrap();
    memory.write(2 * BLOCK, &[1; 512]).unwrap();
    let trace = Arc::new(Trace::new(Arc::new(memory)));
    let empty = disk("from", Arc::new(MemoryStore::new(LEN).unwrap()));
    copy(&empty, &disk("to", Arc::<Trace>::clone(&trace)), 0, OPTIONS, None).unwrap();
    let zeroed: Vec<_> = trace
        .records()
        .iter()
        .filter(|record| record.kind == OpKind::WriteZeroes)
        .map(|record| (record.offset, record.len))
        .collect();
    assert_eq!(zeroed, [(2 * BLOCK, BLOCK)]);
}

#[test]
fn a_failed_request_and_a_failed_flush_are_reported() {
    let with = |kind, error| {
        let store = Fault::new(soiled());
        store.add(Rule { kind: Some(kind), skip: if kind == OpKind::Write { 2 } else { 0 }, ..Rule::always(error) });
        copy_to(Arc::new(store)).unwrap_err().to_string()
    };
    let text = with(OpKind::Write, || StoreError::NoSpace);
    assert!(
        text.starts_with("to: cannot write bytes ") && text.contains("no space left in the store; free space there"),
        "{text}"
    );
    let text = with(OpKind::Flush, || StoreError::FlushFailed(Arc::new(std::io::ErrorKind::Other.into())));
    assert!(text.starts_with("to: the copy is not safe"), "{text}");

    let bad_source = Fault::new(source());
    let range = Some(5 * BLOCK..5 * BLOCK + 1);
    bad_source.add(Rule {
        range,
        kind: Some(OpKind::Read),
        ..Rule::always(|| StoreError::Io(std::io::ErrorKind::Other.into()))
    });
    let result = copy(&disk("from", Arc::new(bad_source)), &disk("to", soiled()), 0, OPTIONS, None);
    let expected = format!("from: cannot read bytes {} to {}", 5 * BLOCK, 6 * BLOCK);
    assert!(result.unwrap_err().to_string().starts_with(&expected));
}

/// A store that loses one byte of each write, and one of each zeroing.
struct Forgetful(Arc<MemoryStore>, u64);

impl Store for Forgetful {
    fn geometry(&self) -> Geometry {
        self.0.geometry()
    }

    fn capabilities(&self) -> Capabilities {
        self.0.capabilities()
    }

    fn submit(&self, op: Op, io: &dyn FileIo, done: Completion) {
        let at = self.1;
        let memory = Arc::clone(&self.0);
        let changes = !matches!(op.kind(), OpKind::Read | OpKind::Allocation);
        let after = Completion::call(move |outcome: Outcome| {
            if changes {
                memory.write(at, &[0x77]).unwrap();
            }
            done.complete(outcome);
        });
        self.0.submit(op, io, after);
    }
}

#[test]
fn verify_finds_a_byte_that_differs_in_data_and_in_holes() {
    for chunk in [0, 2, 3, 4] {
        let result = copy_to(Arc::new(Forgetful(soiled(), chunk * BLOCK + 100)));
        let Err(Failure::Mismatch(text)) = result else { panic!("{chunk}: {result:?}") };
        assert!(text.starts_with("to: bytes"), "{text}");
    }
}

#[test]
fn a_copy_that_was_killed_at_any_write_with_a_power_loss_is_right_after_resuming() {
    let folder = tempfile::tempdir().unwrap();
    let journal = Journal::at(folder.path().join("journal"));
    let expected = content(&source());
    let entry = || Entry { source: "from".into(), destination: "to".into(), verified: true, done: 0 };
    let mut resumed_later = 0;
    for skip in 0..26 {
        let store = Arc::new(PowerLoss::new(LEN).unwrap());
        store.write(0, &vec![0xee; LEN as usize]).unwrap();
        execute(&*store, Op::Flush).result.unwrap();
        journal.remove().unwrap();
        let failing = Fault::new(Arc::<PowerLoss>::clone(&store));
        failing.add(Rule { kind: Some(OpKind::Write), skip, ..Rule::always(|| StoreError::NoSpace) });
        let first =
            copy(&disk("from", source()), &disk("to", Arc::new(failing)), 0, OPTIONS, Some((&journal, entry())));
        let done = journal.read().unwrap().map_or(0, |entry| entry.done);
        assert_eq!(first.is_ok(), done == LEN, "write {skip}");

        let store = Arc::new(store.cut(skip));
        resumed_later += u64::from(done > 0);
        let to = disk("to", Arc::<PowerLoss>::clone(&store));
        copy(&disk("from", source()), &to, done, OPTIONS, Some((&journal, entry()))).unwrap();
        let mut bytes = vec![0; LEN as usize];
        store.read(0, &mut bytes).unwrap();
        same(&bytes, &expected);
    }
    assert!(resumed_later > 15, "the journal is not kept");
}

#[test]
fn a_journal_of_another_copy_is_refused() {
    let journal = Journal::at("journal".into());
    let old = Entry { source: "from".into(), destination: "to".into(), verified: false, done: 7 };
    assert!(matches!(resume_at(&old, &old, &journal), Ok(7)));
    for new in [
        Entry { source: "other".into(), ..old.clone() },
        Entry { destination: "other".into(), ..old.clone() },
        Entry { verified: true, ..old.clone() },
    ] {
        assert!(matches!(resume_at(&old, &new, &journal), Err(Failure::Usage(_))));
    }
    let verified = Entry { verified: true, ..old.clone() };
    assert!(resume_at(&verified, &old, &journal).is_ok());
}

/// The name of the file at a path.
fn at(path: &std::path::Path) -> DiskName {
    path.to_str().expect("a name").parse().expect("a path")
}

#[test]
fn the_rest_of_the_last_block_becomes_zero() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("odd");
    std::fs::write(&path, [5; 1000]).unwrap();
    let from = endpoint::open(&at(&path), Role::Source, endpoint::Volumes::Kept).unwrap();
    let memory = soiled();
    copy(&from, &disk("to", Arc::<MemoryStore>::clone(&memory)), 0, OPTIONS, None).unwrap();
    let bytes = content(&memory);
    assert_eq!((&bytes[..1000], &bytes[1000..1024], bytes[1024]), (&[5; 1000][..], &[0; 24][..], 0xee));
}

#[test]
fn streams_carry_any_length() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("copy");
    let progress = Progress::new(None, 0);
    for len in [0usize, 1, 511, BLOCK as usize, 3 * BLOCK as usize + 17] {
        let mut data: Vec<u8> = (0..len).map(|at| (at % 251) as u8).collect();
        data[len / 3..len / 2].fill(0);
        let to = endpoint::open(&at(&path), Role::Fresh(0), endpoint::Volumes::Kept).unwrap();
        let mut engine = Engine::new(&to, OPTIONS, CopyIo::on_threads().unwrap(), &progress);
        assert_eq!(streams::copy_in(&mut &data[..], &mut engine, BLOCK).unwrap(), len as u64);
        engine.settle().unwrap();
        drop(to);
        same(&std::fs::read(&path).unwrap(), &data);

        let from = endpoint::open(&at(&path), Role::Source, endpoint::Volumes::Kept).unwrap();
        let mut out = Vec::new();
        streams::copy_out(&from, &mut out, OPTIONS, CopyIo::on_threads().unwrap(), &progress).unwrap();
        same(&out, &data);
    }
}

#[test]
fn a_stream_that_is_too_long_for_its_disk_is_an_error() {
    // A blank disk needs no zeroes, and yet they do not fit.
    for byte in [3, 0] {
        let to = Disk { blank: true, ..disk("to", Arc::new(MemoryStore::new(BLOCK).unwrap())) };
        let progress = Progress::new(None, 0);
        let mut engine = Engine::new(&to, OPTIONS, CopyIo::on_threads().unwrap(), &progress);
        let data = vec![byte; BLOCK as usize + 1];
        let error = streams::copy_in(&mut &data[..], &mut engine, BLOCK).unwrap_err().to_string();
        assert!(error.contains(&format!("more than the {BLOCK} bytes of to")), "{error}");
    }
}

/// A store that only has a block length: no request may reach it.
struct Blocks(u32);

impl Store for Blocks {
    fn geometry(&self) -> Geometry {
        Geometry { len_bytes: LEN, granularity_bytes: self.0, physical_bytes: self.0, unmap_bytes: self.0 }
    }

    fn capabilities(&self) -> Capabilities {
        Capabilities::default()
    }

    fn submit(&self, op: Op, _: &dyn FileIo, _: Completion) {
        panic!("{op:?}");
    }
}

#[test]
fn requests_are_whole_blocks_of_both_ends_and_fit_a_buffer() {
    for (from, to, block, expected) in [
        (1, 512, 256 << 10, Some(256 << 10)),
        (4096, 512, 256 << 10, Some(256 << 10)),
        (513, 1, 256 << 10, Some(511 * 513)),
        (513, 1, MAX_BUFFER_LEN as u64, Some(MAX_BUFFER_LEN as u64 / 513 * 513)),
        (1, 1 << 20, 256 << 10, Some(1 << 20)),
        (520, 1040, 4096, Some(3 * 1040)),
        (520, 512, 256 << 10, None),
        (513, 512, 256 << 10, None),
    ] {
        let (source, destination) = (disk("from", Arc::new(Blocks(from))), disk("to", Arc::new(Blocks(to))));
        let align = common_blocks(&source, &destination);
        let block = align.map(|align| aligned(Options { block, ..OPTIONS }, align).block);
        match expected {
            Some(expected) => assert_eq!(block.unwrap(), expected, "{from} {to}"),
            None => assert!(block.unwrap_err().to_string().contains("whole blocks of both"), "{from} {to}"),
        }
    }
}
