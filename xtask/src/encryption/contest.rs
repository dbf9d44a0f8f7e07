//! The rounds, and the ratios that they give.

use anyhow::{Context, Result};

use super::client::{self, LOADS};
use super::contestant::{Parties, Party};
use crate::compare::contestant::Stage;
use crate::compare::statistics::Spread;

/// The ciphers of the parties, for the reader of the results.
pub(super) const ENCRYPTED: &str =
    "ours authenticate (AEGIS-256, quanta of 4096 bytes); LUKS (aes-256-xts, sectors of 512 bytes) does not";

/// Requests a second of a party, for each load, in each round.
pub(super) struct Measured {
    pub(super) party: Party,
    pub(super) iops: [Vec<f64>; LOADS.len()],
}

/// One party beside another, under one load.
pub(super) struct Ratio {
    pub(super) name: String,
    pub(super) value: Option<Spread>,
    /// The least solid value.
    pub(super) solid: f64,
}

/// The pairs to compare, and the least ratio of each under each load.
const PAIRS: [(Party, Party, f64); 5] = [
    (Party::Encrypted, Party::Plain, 0.8),
    (Party::EncryptedNbd, Party::PlainNbd, 0.8),
    (Party::EncryptedNbd, Party::QemuLuks, 2.0),
    (Party::EncryptedNbd, Party::QemuLuksIscsi, 2.0),
    (Party::EncryptedNbd, Party::NbdkitLuks, 2.0),
];

/// Every party takes its turn under every load once in each round, so that a disturbance of the machine affects all
/// alike.
pub(super) fn rounds(stage: &Stage, parties: &Parties, rounds: u32, seconds: u32) -> Result<Vec<Measured>> {
    let mut all: Vec<_> =
        Party::ALL.into_iter().map(|party| Measured { party, iops: LOADS.map(|_| Vec::new()) }).collect();
    for round in 1..=rounds {
        eprintln!("round {round} of {rounds}");
        for (at, load) in LOADS.iter().enumerate() {
            for measured in &mut all {
                let place = parties.place(measured.party);
                let ask = if measured.party.is_nbd() { client::fio } else { client::bench };
                let turn = || format!("{}: {}", measured.party.name(), load.name);
                measured.iops[at].push(ask(stage, load, seconds, place).with_context(turn)?);
            }
        }
    }
    Ok(all)
}

pub(super) fn ratios(measured: &[Measured]) -> Vec<Ratio> {
    let iops = |party, load: usize| {
        measured.iter().find(|measured| measured.party == party).map_or(&[][..], |measured| &measured.iops[load])
    };
    let of_pair = |(over, under, solid): &(Party, Party, f64)| {
        let (over, under, solid) = (*over, *under, *solid);
        LOADS.iter().enumerate().map(move |(at, load)| Ratio {
            name: format!("{}: {} ÷ {}", load.name, over.name(), under.name()),
            value: Spread::of_ratio(iops(over, at), iops(under, at)),
            solid,
        })
    };
    PAIRS.iter().flat_map(of_pair).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ratios_name_what_is_missing_and_invent_nothing() {
        let iops = |value| LOADS.map(|_| vec![value]);
        let measured = [(Party::Encrypted, 9.0), (Party::Plain, 10.0), (Party::EncryptedNbd, 8.0)]
            .map(|(party, value)| Measured { party, iops: iops(value) });
        let ratios = ratios(&measured);
        assert_eq!(ratios.len(), PAIRS.len() * LOADS.len());
        assert_eq!(ratios[0].name, "4 KiB reads: encrypted ÷ plain");
        assert_eq!(ratios[0].value.map(|value| value.median), Some(0.9));
        assert!(ratios[LOADS.len()..].iter().all(|ratio| ratio.value.is_none()));
    }
}
