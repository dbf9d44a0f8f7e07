//! Where and how the Effective Cross Layer is spoken: the keys `ecl` and `ecl_…`.

use std::str::FromStr;
use std::sync::Arc;

use lunette_device::system_entropy;
use lunette_initiator::Seal;
use lunette_reactor::Offloads;
use lunette_state::{StateError, StateStore};
use lunette_target::{DatagramConfig, DatagramPlace, ResetSecret};
use serde::{Deserialize, Deserializer};

use super::{Config, Listen};
use crate::failure::Failure;
use crate::text;

/// The prefix of the name of an interface.
const ETHERNET: &str = "eth:";

/// The longest name of an interface (`IFNAMSIZ` of Linux, less its end).
const MAX_INTERFACE_BYTES: usize = 15;

/// Places to answer at.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Place {
    /// UDP addresses.
    Udp(Listen),
    /// `eth:INTERFACE`.
    Ethernet(String),
}

impl Place {
    /// One by one.
    pub(super) fn places(&self) -> Vec<DatagramPlace> {
        match self {
            Self::Udp(listen) => listen.addresses.iter().copied().map(DatagramPlace::Udp).collect(),
            Self::Ethernet(interface) => vec![DatagramPlace::Ethernet(interface.clone())],
        }
    }

    /// The text of the addresses.
    pub(super) fn listen(&self) -> Option<&Listen> {
        if let Self::Udp(listen) = self { Some(listen) } else { None }
    }

    /// The text of the addresses, to be changed.
    pub(super) fn listen_mut(&mut self) -> Option<&mut Listen> {
        if let Self::Udp(listen) = self { Some(listen) } else { None }
    }
}

impl FromStr for Place {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text.strip_prefix(ETHERNET) {
            Some(interface) if interface.is_empty() || interface.len() > MAX_INTERFACE_BYTES => {
                Err(format!("{interface:?} is no interface; write eth: and its name, such as eth:eth0"))
            }
            Some(interface) => Ok(Self::Ethernet(interface.into())),
            None => match text.parse() {
                Ok(listen) => Ok(Self::Udp(listen)),
                Err(error) => Err(format!("{error}, or eth:INTERFACE for Ethernet")),
            },
        }
    }
}

/// A place as the configuration names it.
pub(super) fn shown(place: &DatagramPlace) -> String {
    match place {
        DatagramPlace::Udp(address) => address.to_string(),
        DatagramPlace::Ethernet(interface) => format!("{ETHERNET}{interface}"),
    }
}

impl<'de> Deserialize<'de> for Place {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        text::read(from)
    }
}

/// The traffic to encrypt after the login.
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
    /// The rate that the path was seen to carry, whatever it loses.
    Bbr,
}

/// The name of the reset secret in the state store.
const RESET_SECRET: &str = "ecl reset secret";

/// How associations are carried. `state`: what keeps the reset secret over a restart.
pub(crate) fn carriage(config: &Config, state: Option<&Arc<dyn StateStore>>) -> Result<DatagramConfig, Failure> {
    let offloads = if config.ecl_offloads { Offloads::On } else { Offloads::Off };
    let seal = config.ecl_protect.map(|protect| match protect {
        Protect::Headers => Seal::Headers,
        Protect::All => Seal::Everything,
    });
    let mut carriage = DatagramConfig { seal, ..DatagramConfig::default() };
    carriage.sockets.offloads = offloads;
    carriage.association.congestion_control = match config.ecl_congestion_control {
        CongestionControl::Cubic => lunette_initiator::CongestionControl::Cubic,
        CongestionControl::Bbr => lunette_initiator::CongestionControl::Bbr,
    };
    carriage.reset_secret = state.map(|state| reset_secret(&**state).map_err(Failure::configuration)).transpose()?;
    if state.is_none() && !config.ecl.is_empty() {
        tracing::info!(
            "there is no state file, so clients of ecl will not be told when this server has been restarted: their requests wait until a timer of \
             theirs finds out (30 s); name one with --state, or in the configuration with state"
        );
    }
    Ok(carriage)
}

/// The secret behind Reset packets: the one that an earlier process has left in `state`, else random bytes, which the
/// next process will find there.
fn reset_secret(state: &dyn StateStore) -> Result<ResetSecret, StateError> {
    let kept: Option<[u8; 32]> = state.load(RESET_SECRET)?.and_then(|bytes| bytes.try_into().ok());
    if let Some(secret) = kept {
        return Ok(ResetSecret::new(secret));
    }
    let mut secret = [0; 32];
    system_entropy()(&mut secret).map_err(|error| StateError(error.to_string()))?;
    state.save(RESET_SECRET, Some(&secret))?;
    Ok(ResetSecret::new(secret))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_are_addresses_or_interfaces() {
        let place = |text: &str| text.parse::<Place>().map(|place| place.places());
        let udp = |text: &str| DatagramPlace::Udp(text.parse().expect("an address"));
        assert_eq!(place("192.0.2.1"), Ok(vec![udp("192.0.2.1:3260")]));
        assert_eq!(place("[::]:860"), Ok(vec![udp("[::]:860")]));
        assert_eq!(place("*:860"), Ok(vec![udp("0.0.0.0:860"), udp("[::]:860")]));
        assert_eq!(place("[fe80::1%lo]"), Ok(vec![udp("[fe80::1%1]:3260")]));
        assert_eq!(place("eth:lab0"), Ok(vec![DatagramPlace::Ethernet("lab0".into())]));
        for (wrong, why) in
            [("eth:", "no interface"), ("eth:0123456789abcdef", "no interface"), ("lab/0", "eth:INTERFACE")]
        {
            let error = place(wrong).expect_err(wrong);
            assert!(error.contains(why), "{error}");
        }
    }
}
