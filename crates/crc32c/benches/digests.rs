//! Criterion's view of the kernels: `cargo bench -p lunette-crc32c`.

use std::hint::black_box;

use criterion::{BenchmarkId, Criterion, Throughput, criterion_group, criterion_main};
use lunette_crc32c::{Crc32c, Kernel, copy, crc32c};

const SIZES: [usize; 5] = [48, 512, 4 << 10, 64 << 10, 1 << 20];

fn digests(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("digest");
    for bytes in SIZES {
        let message = vec![0x5A; bytes];
        group.throughput(Throughput::Bytes(bytes as u64));
        group.bench_function(BenchmarkId::new("auto", bytes), |bencher| bencher.iter(|| crc32c(black_box(&message))));
        for kernel in Kernel::all() {
            group.bench_function(BenchmarkId::new(kernel.name(), bytes), |bencher| {
                bencher.iter(|| kernel.crc32c(black_box(&message)));
            });
        }
    }
    group.finish();
}

fn copies(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("copy");
    for bytes in SIZES {
        let message = vec![0x5A; bytes];
        let mut place = vec![0; bytes];
        group.throughput(Throughput::Bytes(bytes as u64));
        group.bench_function(BenchmarkId::new("memcpy", bytes), |bencher| {
            bencher.iter(|| black_box(&mut place[..]).copy_from_slice(black_box(&message)));
        });
        group.bench_function(BenchmarkId::new("auto", bytes), |bencher| {
            bencher.iter(|| copy(black_box(&mut place), black_box(&message)));
        });
        for kernel in Kernel::all() {
            group.bench_function(BenchmarkId::new(kernel.name(), bytes), |bencher| {
                bencher.iter(|| {
                    let mut digest = Crc32c::new();
                    kernel.copy(&mut digest, black_box(&mut place), black_box(&message));
                    digest.finish()
                });
            });
        }
    }
    group.finish();
}

criterion_group!(benches, digests, copies);
criterion_main!(benches);
