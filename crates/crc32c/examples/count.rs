//! A process that does one thing and prints nothing, to have its instructions counted:
//!
//! ```text
//! valgrind --tool=callgrind --toggle-collect='*counted*' target/release/examples/count digest crc32q 4096
//! ```
//!
//! Arguments: `digest`, `copy` or `memcpy`; a kernel's name, or `auto`; the message's length; how often, once if not said. Ends with status 2 on
//! anything else, and with 3 if this CPU (or valgrind, which shows programs a CPU without AVX-512) cannot run the kernel.

use std::hint::black_box;
use std::process::ExitCode;

use lunette_crc32c::{Crc32c, Kernel, KernelError, copy, crc32c};

/// The part to count. Not inlined, so that it has a name to be toggled by.
#[inline(never)]
fn counted(op: &str, kernel: Option<Kernel>, dst: &mut [u8], src: &[u8], times: usize) {
    for _ in 0..times {
        let (dst, src) = (black_box(&mut *dst), black_box(src));
        match (op, kernel) {
            ("memcpy", _) => dst.copy_from_slice(src),
            ("copy", None) => drop(black_box(copy(dst, src))),
            ("copy", Some(kernel)) => kernel.copy(black_box(&mut Crc32c::new()), dst, src),
            (_, None) => drop(black_box(crc32c(src))),
            (_, Some(kernel)) => drop(black_box(kernel.crc32c(src))),
        }
    }
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
    if !["digest", "copy", "memcpy"].contains(&op) {
        return ExitCode::from(2);
    }
    let kernel = match kernel {
        "auto" => None,
        name => match Kernel::named(name) {
            Ok(kernel) => Some(kernel),
            Err(KernelError::Unknown) => return ExitCode::from(2),
            Err(KernelError::Lacks(_)) => return ExitCode::from(3),
        },
    };
    // The first use asks the CPU what it can; that is not to be counted.
    black_box(crc32c(&[]));
    counted(op, kernel, &mut vec![0; bytes], &vec![0x5A; bytes], times);
    ExitCode::SUCCESS
}
