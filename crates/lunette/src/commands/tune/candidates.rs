//! The settings that every run measures: those of `lunette cp`, and those of today.

use lunette_initiator::{TcpOptions, Url};
use lunette_session::keys::Offer;
use lunette_tuning::{Bounds, Candidate, CongestionControl, Settings};

use super::Arguments;
use super::survey::MAX_CP_DEPTH;
use crate::failure::Failure;

/// Bytes of a request of `lunette cp`, which are the defaults that are compared with.
const DEFAULT_REQUEST: u64 = 256 << 10;

/// Settings that the user names; the rest is as with the defaults.
pub(super) struct Today {
    offer: Offer,
    tcp: TcpOptions,
    congestion: Option<CongestionControl>,
    request_len: Option<u64>,
    depth: Option<u32>,
}

impl Today {
    pub(super) fn of(arguments: &Arguments, url: &Url) -> Result<Option<Self>, Failure> {
        let congestion = match url.tcp.congestion_control.as_deref() {
            None => None,
            Some(name) => {
                Some(CongestionControl::ALL.into_iter().find(|control| control.name() == name).ok_or_else(|| {
                    Failure::Usage(format!("congestion_control={name}: tune knows cubic, reno and bbr"))
                })?)
            }
        };
        let (offer, tcp) = (url.offer.clone(), url.tcp.clone());
        let today = Self { offer, tcp, congestion, request_len: arguments.request, depth: arguments.depth };
        let is_default = settings_of(&today.offer) == plain() && today.tcp == TcpOptions::default();
        let says_nothing =
            is_default && arguments.depth.is_none() && (arguments.request.is_none() || arguments.fixed_request);
        Ok((!says_nothing).then_some(today))
    }

    pub(super) fn candidate(&self, bounds: &Bounds, defaults: &Candidate) -> Candidate {
        let request_len = self.request_len.unwrap_or(defaults.settings.request_len);
        let settings = Settings {
            request_len,
            depth: self.depth.unwrap_or(cp_depth(bounds, request_len)),
            ..within(bounds, settings_of(&self.offer))
        };
        Candidate {
            settings,
            finds_depth: self.depth.is_none(),
            congestion: self.congestion,
            send_buffer_bytes: self.tcp.send_buffer_bytes,
            receive_buffer_bytes: self.tcp.receive_buffer_bytes,
        }
    }
}

/// The keys of an offer.
fn settings_of(offer: &Offer) -> Settings {
    Settings {
        connections: offer.max_connections,
        initial_r2t: offer.initial_r2t,
        immediate_data: offer.immediate_data,
        first_burst_len: offer.first_burst_len.into(),
        max_burst_len: offer.max_burst_len.into(),
        max_outstanding_r2t: offer.max_outstanding_r2t,
        max_data_segment_len: offer.recv_data_segment_len.into(),
        ..Settings::default()
    }
}

/// The result of an offer at this target.
fn within(bounds: &Bounds, offer: Settings) -> Settings {
    Settings {
        connections: offer.connections.min(bounds.max_connections),
        initial_r2t: offer.initial_r2t || !bounds.may_send_unsolicited,
        immediate_data: offer.immediate_data && bounds.may_send_immediate,
        first_burst_len: offer.first_burst_len.min(bounds.max_first_burst_len),
        max_burst_len: offer.max_burst_len.min(bounds.max_burst_len),
        max_outstanding_r2t: offer.max_outstanding_r2t.min(bounds.max_outstanding_r2t),
        digest_len: bounds.digest_len,
        ..offer
    }
}

/// The keys that our initiator offers when it is told nothing.
pub(super) fn plain() -> Settings {
    settings_of(&Offer::initiator())
}

/// A candidate that asks nothing of TCP.
pub(super) fn unset() -> Candidate {
    Candidate {
        settings: Settings::default(),
        finds_depth: false,
        congestion: None,
        send_buffer_bytes: None,
        receive_buffer_bytes: None,
    }
}

/// The most requests of this length that `lunette cp` has in flight.
fn cp_depth(bounds: &Bounds, request_len: u64) -> u32 {
    let affordable = u32::try_from(bounds.max_in_flight_bytes / request_len.max(1)).unwrap_or(u32::MAX);
    affordable.clamp(1, MAX_CP_DEPTH)
}

/// The settings of `lunette cp` without options.
pub(super) fn defaults(bounds: &Bounds) -> Candidate {
    let request_len = bounds.request_len.unwrap_or(bounds.whole_blocks(DEFAULT_REQUEST.min(bounds.max_request_len)));
    let settings = within(bounds, plain());
    let settings = Settings { request_len, depth: cp_depth(bounds, request_len), ..settings };
    Candidate { settings, finds_depth: true, ..unset() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn todays_requests_fit_the_memory() {
        let bounds = Bounds { max_in_flight_bytes: 256 << 20, ..Bounds::default() };
        let (offer, tcp) = (Offer::initiator(), TcpOptions::default());
        let mut today = Today { offer, tcp, congestion: None, request_len: Some(4 << 20), depth: None };
        assert_eq!(today.candidate(&bounds, &defaults(&bounds)).settings.depth, 64);
        today.depth = Some(200);
        assert_eq!(today.candidate(&bounds, &defaults(&bounds)).settings.depth, 200);
    }

    #[test]
    fn the_defaults_are_whole_blocks() {
        let bounds = Bounds { block_len: 4160, ..Bounds::default() };
        assert_eq!(defaults(&bounds).settings.request_len, 63 * 4160);
    }
}
