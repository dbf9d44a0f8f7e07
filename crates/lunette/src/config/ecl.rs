//! Where and how the Effective Cross Layer is spoken: the keys `ecl` and `ecl_…`.

use std::str::FromStr;

use lunette_initiator::Seal;
use lunette_reactor::Offloads;
use lunette_target::{DatagramConfig, DatagramPlace};
use serde::Deserialize;

use super::{Config, Listen};

/// What stands before the name of an interface.
const ETHERNET: &str = "eth:";

/// The longest name of an interface (`IFNAMSIZ` of Linux, less its end).
const MAX_INTERFACE_BYTES: usize = 15;

/// A place to answer at: `ADDR:PORT`, an address alone, or `eth:INTERFACE`.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(try_from = "String")]
pub(crate) struct Place(pub(crate) DatagramPlace);

impl FromStr for Place {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text.strip_prefix(ETHERNET) {
            Some(interface) if interface.is_empty() || interface.len() > MAX_INTERFACE_BYTES => {
                Err(format!("{interface:?} is no interface; write eth: and its name, such as eth:eth0"))
            }
            Some(interface) => Ok(Self(DatagramPlace::Ethernet(interface.into()))),
            None => match text.parse() {
                Ok(Listen(address)) => Ok(Self(DatagramPlace::Udp(address))),
                Err(error) => Err(format!("{error}, or eth:INTERFACE for Ethernet")),
            },
        }
    }
}

impl TryFrom<String> for Place {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        text.parse()
    }
}

/// What is encrypted after the login.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, clap::ValueEnum)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Protect {
    /// Headers are authenticated, and payloads checked.
    Headers,
    /// Payloads are encrypted, too.
    All,
}

/// How much of what is sent may be in flight.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize, clap::ValueEnum)]
#[serde(rename_all = "lowercase")]
pub(crate) enum CongestionControl {
    /// Losses make it less, as with most TCP connections.
    #[default]
    Cubic,
    /// As much as the path was seen to carry, whatever it loses.
    Bbr,
}

/// How associations are carried.
pub(crate) fn carriage(config: &Config) -> DatagramConfig {
    let offloads = if config.ecl_offloads { Offloads::On } else { Offloads::Off };
    let seal = config.ecl_protect.map(|protect| match protect {
        Protect::Headers => Seal::Headers,
        Protect::All => Seal::Everything,
    });
    let mut carriage = DatagramConfig { seal, ..DatagramConfig::default() };
    carriage.sockets.offloads = offloads;
    carriage.association.parity = config.ecl_parity;
    carriage.association.congestion_control = match config.ecl_congestion_control {
        CongestionControl::Cubic => lunette_initiator::CongestionControl::Cubic,
        CongestionControl::Bbr => lunette_initiator::CongestionControl::Bbr,
    };
    carriage
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_are_addresses_or_interfaces() {
        let place = |text: &str| text.parse::<Place>().map(|Place(place)| place);
        assert_eq!(place("192.0.2.1"), Ok(DatagramPlace::Udp("192.0.2.1:3260".parse().expect("an address"))));
        assert_eq!(place("[::]:860"), Ok(DatagramPlace::Udp("[::]:860".parse().expect("an address"))));
        assert_eq!(place("eth:lab0"), Ok(DatagramPlace::Ethernet("lab0".into())));
        for (wrong, why) in
            [("eth:", "no interface"), ("eth:0123456789abcdef", "no interface"), ("lab0", "eth:INTERFACE")]
        {
            let error = place(wrong).expect_err(wrong);
            assert!(error.contains(why), "{error}");
        }
    }
}
