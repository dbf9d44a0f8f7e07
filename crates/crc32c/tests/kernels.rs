//! Every kernel that this CPU can run, against an independent long division.

use lunette_crc32c::{Crc32c, Features, Kernel, KernelError, copy, crc32c, requested_tier};
use proptest::prelude::*;

/// The definition: one step of the division for each bit. Returns the digests of all prefixes of `bytes`, from the
/// empty one on.
fn prefix_digests(bytes: &[u8]) -> Vec<u32> {
    let mut register = u32::MAX;
    let mut digests = vec![!register];
    for byte in bytes {
        register ^= u32::from(*byte);
        for _ in 0..8 {
            let carry = register & 1;
            register >>= 1;
            if carry == 1 {
                register ^= 0x82F6_3B78;
            }
        }
        digests.push(!register);
    }
    digests
}

/// Pseudorandom bytes.
fn noise(len: usize) -> Vec<u8> {
    let mut state = 0x9E37_79B9_7F4A_7C15_u64;
    (0..len)
        .map(|_| {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            state.to_le_bytes()[5]
        })
        .collect()
}

/// A buffer whose first byte has the given address modulo 64.
struct Aligned {
    bytes: Vec<u8>,
    start: usize,
}

impl Aligned {
    fn new(offset: usize, len: usize) -> Self {
        let bytes = vec![0xA5; len + 128];
        let start = bytes.as_ptr().align_offset(64) + offset;
        Self { bytes, start }
    }

    fn get(&mut self, len: usize) -> &mut [u8] {
        &mut self.bytes[self.start..self.start + len]
    }

    /// Whether only the first `len` bytes were touched.
    fn untouched_around(&self, len: usize) -> bool {
        let around = self.bytes[..self.start].iter().chain(&self.bytes[self.start + len..]);
        around.copied().all(|byte| byte == 0xA5)
    }
}

#[test]
fn says_which_kernels_are_tested() {
    if let Some(tier) = requested_tier() {
        let tier = tier.expect("LUNETTE_CPU names a tier");
        println!("as on a CPU of the tier {}", tier.name());
        assert!(Features::of_this_cpu().without(tier.features()).is_none(), "the tier hides all beyond it");
    }
    for name in Kernel::names() {
        match Kernel::named(name) {
            Ok(kernel) => println!("{name}: tested (needs {})", kernel.needs()),
            Err(error) => println!("{name}: NOT tested: {error}"),
        }
    }
    assert!(Kernel::all().any(|kernel| kernel.name() == "slicing8"));
    assert_eq!(Kernel::named("abacus"), Err(KernelError::Unknown));
}

/// A way to digest and to copy: one kernel, or the crate's choice.
struct Way {
    name: &'static str,
    digest: Box<Digest>,
    copy: Box<Copy>,
}

type Digest = dyn Fn(&[u8]) -> u32;
type Copy = dyn Fn(&mut [u8], &[u8]) -> u32;

impl Way {
    fn of(kernel: Kernel) -> Self {
        let copy = move |dst: &mut [u8], src: &[u8]| {
            let mut digest = Crc32c::new();
            kernel.copy(&mut digest, dst, src);
            digest.finish()
        };
        Self { name: kernel.name(), digest: Box::new(move |bytes| kernel.crc32c(bytes)), copy: Box::new(copy) }
    }

    fn chosen() -> Self {
        Self { name: "auto", digest: Box::new(crc32c), copy: Box::new(copy) }
    }
}

/// Lengths 0 to 1100 at alignments 0 to 63: digest and copy, the copy's destination aligned differently.
fn every_length_at_every_alignment(way: &Way, alignments: impl Iterator<Item = usize>) {
    const LONGEST: usize = 1100;
    let name = way.name;
    let bytes = noise(LONGEST);
    let expected = prefix_digests(&bytes);
    for alignment in alignments {
        let mut source = Aligned::new(alignment, LONGEST);
        source.get(LONGEST).copy_from_slice(&bytes);
        let mut place = Aligned::new((alignment * 7 + 3) % 64, LONGEST);
        for (len, expected) in expected.iter().enumerate() {
            let message = &*source.get(len);
            assert_eq!((way.digest)(message), *expected, "{name}, {len} bytes at {alignment}");
            let digest = (way.copy)(place.get(len), message);
            assert_eq!(digest, *expected, "{name}, copy of {len} bytes at {alignment}");
            assert!(place.get(len) == message, "{name}, copy of {len} bytes at {alignment}");
        }
        place.get(LONGEST).fill(0xA5);
        assert!(place.untouched_around(0), "{name} wrote outside");
    }
}

#[test]
fn plain_kernels_at_every_length_and_alignment() {
    for name in ["sarwate", "slicing8", "slicing16"] {
        every_length_at_every_alignment(&Way::of(Kernel::named(name).unwrap()), 0..64);
    }
    // Bit by bit it would take minutes without optimization, and alignment makes no difference to it.
    every_length_at_every_alignment(&Way::of(Kernel::named("bitwise").unwrap()), (0..64).step_by(21));
}

#[test]
fn wide_kernels_at_every_length_and_alignment() {
    for kernel in Kernel::all().filter(|kernel| !kernel.needs().is_none()) {
        every_length_at_every_alignment(&Way::of(kernel), 0..64);
    }
}

#[test]
fn the_chosen_kernels_at_every_length_and_alignment() {
    every_length_at_every_alignment(&Way::chosen(), 0..64);
}

/// Lengths around every boundary in a kernel: blocks, steps, streams, the change to folding only, and the change of
/// kernels.
#[test]
fn long_messages() {
    let bytes = noise((2 << 20) + 5000);
    let slicing = Kernel::named("slicing8").unwrap();
    let mut lengths = vec![bytes.len()];
    for cut in [1 << 11, 3928, 3936, 4000, 4064, 4080, 4096, 8160, 8192, 12288, 1 << 16, 2 << 20] {
        lengths.extend([cut - 1, cut, cut + 1, cut + 8, cut + 255, cut + 767]);
    }
    let kernels = Kernel::all().filter(|kernel| kernel.name() != "bitwise");
    let ways: Vec<_> = kernels.map(Way::of).chain([Way::chosen()]).collect();
    let mut place = vec![0; bytes.len()];
    for len in lengths {
        let message = &bytes[bytes.len() - len..];
        let expected = slicing.crc32c(message);
        for way in &ways {
            let name = way.name;
            assert_eq!((way.digest)(message), expected, "{name}, {len} bytes");
            assert_eq!((way.copy)(&mut place[..len], message), expected, "{name}, copy of {len} bytes");
            assert!(place[..len] == *message, "{name}, copy of {len} bytes");
        }
    }
}

proptest! {
    /// Any bytes, any initial register, any cut, and any kernel after any other.
    #[test]
    fn any_message(
        bytes in proptest::collection::vec(any::<u8>(), 0..20_000),
        cut in any::<prop::sample::Index>(),
        skew in 0usize..64,
    ) {
        let expected = *prefix_digests(&bytes).last().unwrap();
        let (head, tail) = bytes.split_at(cut.index(bytes.len() + 1));
        for first in Kernel::all() {
            for second in Kernel::all() {
                let mut digest = Crc32c::new();
                first.update(&mut digest, head);
                let mut place = Aligned::new(skew, tail.len());
                second.copy(&mut digest, place.get(tail.len()), tail);
                prop_assert_eq!(digest.finish(), expected, "{:?} then {:?}", first, second);
                prop_assert!(place.get(tail.len()) == tail);
                prop_assert!(place.untouched_around(tail.len()));
            }
        }
    }

    /// Copies past the cache store whole lines; the head and the tail must not be lost.
    #[test]
    fn any_copy_past_the_cache(bytes in proptest::collection::vec(any::<u8>(), 0..20_000), skew in 0usize..64) {
        let expected = *prefix_digests(&bytes).last().unwrap();
        for kernel in Kernel::all() {
            let mut place = Aligned::new(skew, bytes.len());
            let mut digest = Crc32c::new();
            kernel.copy_past_cache(&mut digest, place.get(bytes.len()), &bytes);
            prop_assert_eq!(digest.finish(), expected, "{:?}", kernel);
            prop_assert!(place.get(bytes.len()) == bytes);
            prop_assert!(place.untouched_around(bytes.len()));
        }
    }
}
