//! Reads and writes of volumes over memory, beside the plain store: `cargo bench -p lunette-volume`.

use std::sync::Arc;

use criterion::{BenchmarkId, Criterion, Throughput, criterion_group, criterion_main};
use lunette_buffer::{Buffer, Pool};
use lunette_quanta::{Cipher, DataKey, KeyRing, QuantumSize, VolumeId};
use lunette_store::{Capabilities, Completion, FileIo, Geometry, MemoryStore, Op, Store, execute};
use lunette_volume::{FormatOptions, OpenOptions, Volume, find, format};

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

fn volume(unit: Arc<dyn Store>) -> Arc<dyn Store> {
    let keys = KeyRing::new(Cipher::Aegis256, 1, &DataKey::new([1; 32])).expect("epochs begin with 1");
    format(&unit, VolumeId([1; 16]), &keys, &FormatOptions::default(), &mut |_| {}).expect("memory does not fail");
    let found = find(&unit).expect("it was just made");
    Arc::new(Volume::open(unit, &found, keys, OpenOptions::default()).expect("it was just made"))
}

/// Executes a request that ends before `submit` returns, or waits for it.
fn run(store: &dyn Store, op: Op) -> Buffer {
    let outcome = execute(store, op);
    outcome.result.expect("memory does not fail");
    outcome.buffer.expect("a request returns its buffer")
}

fn requests(criterion: &mut Criterion) {
    let memory = || MemoryStore::new(UNIT_BYTES).expect("short enough");
    let stores: [(&str, Arc<dyn Store>); 3] = [
        ("plain", Arc::new(memory())),
        ("native", volume(Arc::new(Edus(memory())))),
        ("packed", volume(Arc::new(memory()))),
    ];
    let pool = Pool::new(64 << 20);
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

criterion_group!(benches, requests);
criterion_main!(benches);
