//! Fuzz targets. Each is a plain function over bytes that panics when something that must hold does not.
//!
//! - cargo-fuzz drives them with coverage, on nightly: `cargo xtask fuzz`.
//! - The `replay` binary drives them over their corpora and over pseudo-random inputs, on any toolchain: a step of
//!   `cargo xtask test`.
//!
//! Under cargo-fuzz (`cfg(fuzzing)`) the session does not look at digests, as no fuzzer guesses them.

#![forbid(unsafe_code)]

pub mod ahs;
pub mod digests;
pub mod ecl;
pub mod full_feature;
pub mod handover;
mod initiator;
pub mod initiator_full_feature;
pub mod initiator_login;
pub mod input;
pub mod key_file;
pub mod kmip;
pub mod lists;
pub mod login;
mod marked;
pub mod markers;
pub mod nbd;
pub mod pdu_headers;
pub mod quanta;
pub mod scsi;
pub mod sense;
pub mod text;
pub mod tls;
mod toy;
pub mod tunnel;
pub mod volume_stream;

use input::Random;
use lists::{extended_copy, mode_select, reserve_out, token_lists, unmap_list};

/// A fuzz target.
pub struct Target {
    /// The name of its binary and of its corpus.
    pub name: &'static str,
    /// The test. It panics when it fails.
    pub run: fn(&[u8]),
    /// An input that gets further than random bytes do.
    pub random: fn(&mut Random) -> Vec<u8>,
    /// Inputs to start from, by the names of their files.
    pub seeds: fn() -> Vec<(String, Vec<u8>)>,
}

/// All targets.
pub const TARGETS: [Target; 30] = [
    Target { name: "pdu_headers", run: pdu_headers::run, random: pdu_headers::random, seeds: pdu_headers::seeds },
    Target { name: "ahs", run: ahs::run, random: ahs::random, seeds: ahs::seeds },
    Target { name: "text", run: text::run, random: text::random, seeds: text::seeds },
    Target { name: "sense", run: sense::run, random: sense::random, seeds: sense::seeds },
    Target { name: "login", run: login::run, random: login::random, seeds: login::seeds },
    Target { name: "full_feature", run: full_feature::run, random: full_feature::random, seeds: full_feature::seeds },
    Target { name: "digests", run: digests::run, random: digests::random, seeds: digests::seeds },
    Target { name: "scsi", run: scsi::run, random: scsi::random, seeds: scsi::seeds },
    Target { name: "nbd", run: nbd::run, random: nbd::random, seeds: nbd::seeds },
    Target {
        name: "extended_copy",
        run: extended_copy::run,
        random: extended_copy::random,
        seeds: extended_copy::seeds,
    },
    Target { name: "token_lists", run: token_lists::run, random: token_lists::random, seeds: token_lists::seeds },
    Target { name: "mode_select", run: mode_select::run, random: mode_select::random, seeds: mode_select::seeds },
    Target { name: "unmap", run: unmap_list::run, random: unmap_list::random, seeds: unmap_list::seeds },
    Target { name: "reserve_out", run: reserve_out::run, random: reserve_out::random, seeds: reserve_out::seeds },
    Target {
        name: "initiator_login",
        run: initiator_login::run,
        random: initiator_login::random,
        seeds: initiator_login::seeds,
    },
    Target {
        name: "initiator_full_feature",
        run: initiator_full_feature::run,
        random: initiator_full_feature::random,
        seeds: initiator_full_feature::seeds,
    },
    Target { name: "markers", run: markers::run, random: markers::random, seeds: markers::seeds },
    Target {
        name: "initiator_markers",
        run: markers::run_initiator,
        random: markers::random_initiator,
        seeds: markers::seeds_initiator,
    },
    Target { name: "quanta_edu", run: quanta::edu::run, random: quanta::edu::random, seeds: quanta::edu::seeds },
    Target {
        name: "quanta_header",
        run: quanta::header::run,
        random: quanta::header::random,
        seeds: quanta::header::seeds,
    },
    Target {
        name: "quanta_journal",
        run: quanta::journal::run,
        random: quanta::journal::random,
        seeds: quanta::journal::seeds,
    },
    Target {
        name: "quanta_parity",
        run: quanta::parity::run,
        random: quanta::parity::random,
        seeds: quanta::parity::seeds,
    },
    Target {
        name: "ecl_association",
        run: ecl::association::run,
        random: ecl::association::random,
        seeds: ecl::association::seeds,
    },
    Target {
        name: "ecl_handshake",
        run: ecl::handshake::run,
        random: ecl::handshake::random,
        seeds: ecl::handshake::seeds,
    },
    Target { name: "kmip", run: kmip::run, random: kmip::random, seeds: kmip::seeds },
    Target { name: "tls", run: tls::run, random: tls::random, seeds: tls::seeds },
    Target { name: "key_file", run: key_file::run, random: key_file::random, seeds: key_file::seeds },
    Target {
        name: "volume_stream",
        run: volume_stream::run,
        random: volume_stream::random,
        seeds: volume_stream::seeds,
    },
    Target { name: "handover", run: handover::run, random: handover::random, seeds: handover::seeds },
    Target { name: "tunnel", run: tunnel::run, random: tunnel::random, seeds: tunnel::seeds },
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_target_accepts_its_seeds_and_no_bytes() {
        for target in &TARGETS {
            (target.run)(&[]);
            for (_, bytes) in (target.seeds)() {
                (target.run)(&bytes);
            }
        }
    }
}
