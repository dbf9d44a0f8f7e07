//! Reads and writes of volumes over memory, beside the plain store: `cargo bench -p lunette-volume`.

use std::path::Path;
use std::sync::Arc;

use criterion::{BenchmarkId, Criterion, Throughput, criterion_group, criterion_main};
use lunette_buffer::{Buffer, Pool};
use lunette_quanta::{Cipher, DataKey, Group, KeyRing, QuantumSize, VolumeId};
use lunette_store::{Capabilities, Completion, FileIo, Geometry, MemoryStore, Op, Store, execute};
use lunette_volume::{Anchor, FormatOptions, OpenOptions, Volume, find, format};

const UNIT_BYTES: u64 = 256 << 20;
const SIZES: [usize; 3] = [4 << 10, 64 << 10, 1 << 20];

/// Memory in blocks of one EDU.
struct Edus(MemoryStore);

impl Store for Edus {
    fn geometry(&self) -> Geometry {
        Geometry { granularity_bytes: QuantumSize::B4096.edu_len() as u32, ..self.0.geometry() }
    }

    fn capabilities(&self) -> Capabilities {
        self.0.capabilities()
    }

    fn submit(&self, op: Op, io: &dyn FileIo, done: Completion) {
        self.0.submit(op, io, done);
    }
}

fn volume(unit: Arc<dyn Store>, anchor: Option<&Path>, parity: Option<Group>) -> Arc<dyn Store> {
    let keys = KeyRing::new(Cipher::Aegis256, 1, &DataKey::new([1; 32])).expect("epochs begin with 1");
    format(&unit, VolumeId([1; 16]), &keys, &FormatOptions { parity, ..FormatOptions::default() }, &mut |_| {})
        .expect("memory does not fail");
    let found = find(&unit).expect("it was just made");
    if let Some(path) = anchor {
        Anchor::create(path, found.header()).expect("the folder is new");
    }
    let options = OpenOptions { anchor: anchor.map(Path::to_owned), ..OpenOptions::default() };
    Arc::new(Volume::open(unit, &found, keys, options).expect("it was just made"))
}

/// Executes a request that ends before `submit` returns, or waits for it.
fn run(store: &dyn Store, op: Op) -> Buffer {
    let outcome = execute(store, op);
    outcome.result.expect("memory does not fail");
    outcome.buffer.expect("a request returns its buffer")
}

fn requests(criterion: &mut Criterion) {
    let memory = || MemoryStore::new(UNIT_BYTES).expect("short enough");
    // Beside the build, which is on a disk where a folder for temporary files may be memory.
    let folder = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).expect("a folder");
    let group = Some(Group { data: 8, parity: 2 });
    let stores: [(&str, Arc<dyn Store>); 6] = [
        ("plain", Arc::new(memory())),
        ("native", volume(Arc::new(Edus(memory())), None, None)),
        ("native, anchor", volume(Arc::new(Edus(memory())), Some(&folder.path().join("native")), None)),
        ("native, parity", volume(Arc::new(Edus(memory())), None, group)),
        ("packed", volume(Arc::new(memory()), None, None)),
        ("packed, anchor", volume(Arc::new(memory()), Some(&folder.path().join("packed")), None)),
    ];
    let pool = Pool::new(64 << 20);
    flushes(criterion, &stores, &pool);
    for writes in [true, false] {
        let mut group = criterion.benchmark_group(if writes { "write" } else { "read" });
        for bytes in SIZES {
            group.throughput(Throughput::Bytes(bytes as u64));
            for (name, store) in &stores {
                let places = 64 * (1 << 20) / bytes as u64;
                let mut at = 0;
                let mut buffer = Some(pool.take(bytes).expect("room in the pool"));
                group.bench_function(BenchmarkId::new(*name, bytes), |bencher| {
                    bencher.iter(|| {
                        at = (at + 1) % places;
                        let (offset, bytes) = (at * bytes as u64, buffer.take().expect("it came back"));
                        let op = if writes {
                            Op::Write { offset, from: bytes, fua: false }
                        } else {
                            Op::Read { offset, into: bytes }
                        };
                        buffer = Some(run(&**store, op));
                    });
                });
            }
        }
        group.finish();
    }
}

/// A flush after one write of a quantum, and after 256 far from each other.
fn flushes(criterion: &mut Criterion, stores: &[(&str, Arc<dyn Store>)], pool: &Pool) {
    let mut group = criterion.benchmark_group("flush");
    for writes in [1, 256] {
        for (name, store) in stores {
            group.bench_function(BenchmarkId::new(*name, writes), |bencher| {
                bencher.iter(|| {
                    for at in 0..writes {
                        let from = pool.take(4096).expect("room in the pool");
                        run(&**store, Op::Write { offset: at * 200 * 4096, from, fua: false });
                    }
                    execute(&**store, Op::Flush).result.expect("memory does not fail");
                });
            });
        }
    }
    group.finish();
}

criterion_group!(benches, requests);
criterion_main!(benches);
