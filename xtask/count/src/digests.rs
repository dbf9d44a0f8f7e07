//! A process that does one thing and prints nothing, to have its instructions counted:
//!
//! ```text
//! valgrind --tool=callgrind --toggle-collect='*counted*' target/release/count-digests digest crc32q 4096
//! ```
//!
//! Arguments: `digest`, `copy`, or `memcpy` with `auto`; a kernel's name, or `auto`; the message's length; the number
//! of repetitions, 1 by default. Exits with status 2 on anything else, and with 3 if this CPU (or valgrind, which shows
//! programs a CPU without AVX-512) cannot run the kernel.

use std::hint::black_box;
use std::process::ExitCode;

use lunette_crc32c::{Crc32c, Kernel, KernelError, copy, crc32c};

/// The counted operation, on a destination and a source.
type Work = dyn Fn(&mut [u8], &[u8]) -> u32;

/// Does the counted work. Not inlined, so that callgrind can toggle on its name.
#[inline(never)]
fn counted(work: &Work, dst: &mut [u8], src: &[u8], times: usize) {
    for _ in 0..times {
        black_box(work(black_box(dst), black_box(src)));
    }
}

fn work(op: &str, kernel: Option<Kernel>) -> Option<Box<Work>> {
    Some(match (op, kernel) {
        ("memcpy", None) => Box::new(|dst, src| {
            dst.copy_from_slice(src);
            0
        }),
        ("digest", None) => Box::new(|_, src| crc32c(src)),
        ("digest", Some(kernel)) => Box::new(move |_, src| kernel.crc32c(src)),
        ("copy", None) => Box::new(copy),
        ("copy", Some(kernel)) => Box::new(move |dst, src| {
            let mut digest = Crc32c::new();
            kernel.copy(&mut digest, dst, src);
            digest.finish()
        }),
        _ => return None,
    })
}

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let args: Vec<&str> = args.iter().map(String::as_str).collect();
    let (op, kernel, bytes, times) = match args[..] {
        [op, kernel, bytes] => (op, kernel, bytes, "1"),
        [op, kernel, bytes, times] => (op, kernel, bytes, times),
        _ => return ExitCode::from(2),
    };
    let (Ok(bytes), Ok(times)) = (bytes.parse(), times.parse()) else { return ExitCode::from(2) };
    let kernel = match kernel {
        "auto" => None,
        name => match Kernel::named(name) {
            Ok(kernel) => Some(kernel),
            Err(KernelError::Unknown) => return ExitCode::from(2),
            Err(KernelError::Lacks(_)) => return ExitCode::from(3),
        },
    };
    let Some(work) = work(op, kernel) else { return ExitCode::from(2) };
    // The first use asks the CPU for its features, which is not to be counted.
    black_box(crc32c(&[]));
    counted(&work, &mut vec![0; bytes], &vec![0x5A; bytes], times);
    ExitCode::SUCCESS
}
