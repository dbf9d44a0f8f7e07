//! Text requests of the full feature phase: SendTargets, and what may be negotiated again (RFC 7143 sections 11.10 and
//! appendix C).

use std::net::SocketAddr;
use std::sync::Arc;

use lunette_pdu::text::{self, TextAssembler, TextError, TextWriter};
use lunette_pdu::{InitiatorTaskTag, TargetTransferTag, TextRequest};

use super::directory::{Directory, TargetNode};
use super::origin::Origin;
use super::session_info::SessionInfo;
use crate::keys::{MAX_RECV_DATA_SEGMENT_LENGTH, Row, Rule, first_duplicate, number_in, row};
use crate::limits::{MAX_KEYS, MAX_TEXT_BYTES, MAX_TEXT_SEGMENT_BYTES};
use crate::name::is_same_name;

/// The transfer tag of text exchanges. A connection has one exchange at a time, so one tag is enough.
pub(crate) const TEXT_TAG: TargetTransferTag = TargetTransferTag(0x0007_e870);

/// The session that asks, and the address through which it does.
pub(crate) struct Asker<'a> {
    pub(crate) directory: &'a Arc<Directory>,
    pub(crate) session: &'a SessionInfo,
    pub(crate) local: SocketAddr,
    pub(crate) origin: &'a Origin,
}

/// Why a request gets no answer. The exchange is over, and has changed nothing (RFC 7143 section 6.4).
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum ExchangeError {
    #[error(transparent)]
    Text(#[from] TextError),
    #[error("more than {MAX_KEYS} keys in one exchange")]
    TooManyKeys,
    #[error("a text request continues an exchange that is not under way")]
    NoExchange,
    #[error("keys were sent while an answer was being continued")]
    OutOfTurn,
    #[error("key {0} was offered twice in one exchange")]
    Twice(String),
}

/// One part of an answer.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Part {
    pub(crate) text: Vec<u8>,
    /// More parts follow when the initiator asks for them.
    pub(crate) continue_: bool,
    /// The exchange is over: what was declared in it holds from here on.
    pub(crate) declared: Option<Declared>,
}

/// The keys that an exchange has changed.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Declared {
    /// The initiator's new MaxRecvDataSegmentLength.
    pub(crate) theirs: Option<u32>,
    /// The length that the target has declared.
    pub(crate) ours: Option<u32>,
}

/// Text exchanges of a connection: one at a time; a new request without a transfer tag takes the place of the last.
#[derive(Default)]
pub(crate) struct TextExchanges {
    current: Option<Exchange>,
    /// The MaxRecvDataSegmentLength that we want to declare when there is an opportunity.
    pub(crate) to_declare: Option<u32>,
}

struct Exchange {
    itt: InitiatorTaskTag,
    assembler: TextAssembler,
    /// Text that the initiator has yet to ask for.
    outgoing: Vec<u8>,
    /// Targets that follow it.
    list: Option<TargetList>,
    keys: usize,
    /// Bit `n`: the n-th negotiable key was offered.
    offered: u32,
    targets_asked: bool,
    declared: Declared,
}

impl TextExchanges {
    /// Whether any exchange waits for more.
    pub(crate) fn are_open(&self) -> bool {
        self.current.is_some()
    }

    /// Whether the exchange that this tag names waits for more.
    pub(crate) fn is_open(&self, itt: InitiatorTaskTag) -> bool {
        self.current.as_ref().is_some_and(|exchange| exchange.itt == itt)
    }

    /// Ends the exchange that this tag names. Nothing of it holds. False when there is none.
    pub(crate) fn abort(&mut self, itt: InitiatorTaskTag) -> bool {
        self.current.take_if(|exchange| exchange.itt == itt).is_some()
    }

    /// Takes a request with its data segment and gives the next part of the answer.
    pub(crate) fn request(
        &mut self,
        request: &TextRequest,
        data: &[u8],
        asker: &Asker<'_>,
        segment_len: u32,
    ) -> Result<Part, ExchangeError> {
        let mut exchange = match self.current.take() {
            _ if request.ttt.is_reserved() => Exchange::new(request.itt),
            Some(current) if request.ttt == TEXT_TAG && request.itt == current.itt => current,
            _ => return Err(ExchangeError::NoExchange),
        };
        let (text, continue_) = exchange.step(request, data, asker, self.to_declare, segment_len)?;
        // The answer to a list that is not final, or not at its end, is not final either (RFC 7143 section 11.11.1).
        if !request.final_ || continue_ {
            self.current = Some(exchange);
            return Ok(Part { text, continue_, declared: None });
        }
        if exchange.declared.ours.is_some() {
            self.to_declare = None;
        }
        Ok(Part { text, continue_, declared: Some(exchange.declared) })
    }
}

impl Exchange {
    fn new(itt: InitiatorTaskTag) -> Self {
        Self {
            itt,
            assembler: TextAssembler::new(MAX_TEXT_BYTES),
            outgoing: Vec::new(),
            list: None,
            keys: 0,
            offered: 0,
            targets_asked: false,
            declared: Declared::default(),
        }
    }

    /// The text that answers a request, and whether more of it follows.
    fn step(
        &mut self,
        request: &TextRequest,
        data: &[u8],
        asker: &Asker<'_>,
        to_declare: Option<u32>,
        segment_len: u32,
    ) -> Result<(Vec<u8>, bool), ExchangeError> {
        if self.is_answering() {
            if !data.is_empty() || request.continue_ {
                return Err(ExchangeError::OutOfTurn);
            }
            return self.next_part(segment_len);
        }
        let Some(list) = self.assembler.push(data, request.continue_)? else {
            return Ok((Vec::new(), false));
        };
        self.outgoing = self.answer(&list, asker, to_declare)?.into_bytes();
        self.next_part(segment_len)
    }

    fn is_answering(&self) -> bool {
        !self.outgoing.is_empty() || self.list.is_some()
    }

    /// Makes no more of the list than this part takes: an answer may be thousands of times the size of its request.
    fn next_part(&mut self, segment_len: u32) -> Result<(Vec<u8>, bool), ExchangeError> {
        let limit = (segment_len as usize).min(MAX_TEXT_SEGMENT_BYTES);
        while self.outgoing.len() <= limit
            && let Some(list) = &mut self.list
        {
            match list.next()? {
                Some(target) => self.outgoing.extend(target.into_bytes()),
                None => self.list = None,
            }
        }
        let rest = self.outgoing.split_off(limit.min(self.outgoing.len()));
        let part = std::mem::replace(&mut self.outgoing, rest);
        Ok((part, self.is_answering()))
    }

    fn answer(&mut self, list: &[u8], asker: &Asker<'_>, to_declare: Option<u32>) -> Result<TextWriter, ExchangeError> {
        let mut answer = TextWriter::new();
        let pairs: Vec<(&str, &str)> = text::pairs(list).take(MAX_KEYS + 1).collect::<Result<_, _>>()?;
        self.keys += pairs.len();
        if self.keys > MAX_KEYS {
            return Err(ExchangeError::TooManyKeys);
        }
        if let Some(key) = first_duplicate(&pairs) {
            return Err(ExchangeError::Twice(key.into()));
        }
        for (key, value) in pairs {
            match key {
                "SendTargets" => self.send_targets(value, asker, &mut answer)?,
                _ => match row(key) {
                    Some((index, row)) => self.negotiable(index, row, value, &mut answer)?,
                    None => answer.push(key, "NotUnderstood")?,
                },
            }
        }
        if let Some(ours) = to_declare.filter(|_| self.declared.ours.is_none()) {
            answer.push(MAX_RECV_DATA_SEGMENT_LENGTH, &ours.to_string())?;
            self.declared.ours = Some(ours);
        }
        Ok(answer)
    }

    /// RFC 7143 appendix C: `All` in a discovery session only, a name in either, nothing in a normal session only. Once
    /// in an exchange: one list is under way at a time.
    fn send_targets(&mut self, value: &str, asker: &Asker<'_>, answer: &mut TextWriter) -> Result<(), ExchangeError> {
        if std::mem::replace(&mut self.targets_asked, true) {
            return Err(ExchangeError::Twice("SendTargets".into()));
        }
        let name = match (&asker.session.target, value) {
            (None, "All") => None,
            (None, name) if !name.is_empty() => Some(name),
            // The session may be older than the directory: its target may have other portals now, or be gone.
            (Some(own), name) if name.is_empty() || is_same_name(&own.name, name) => {
                let target = asker.directory.find(&own.name);
                return Ok(target
                    .map_or(Ok(()), |target| list_target(target, asker.session.portal_group, asker.local, answer))?);
            }
            _ => return Ok(answer.push("SendTargets", "Reject")?),
        };
        self.list = Some(TargetList {
            directory: Arc::clone(asker.directory),
            initiator: asker.session.initiator_name.clone(),
            group: asker.session.portal_group,
            local: asker.local,
            origin: asker.origin.clone(),
            name: name.map(Into::into),
            next: 0,
        });
        Ok(())
    }

    /// A key of the login: the length of data segments alone may be declared again (RFC 7143 section 13.12).
    fn negotiable(
        &mut self,
        index: usize,
        row: &'static Row,
        value: &str,
        answer: &mut TextWriter,
    ) -> Result<(), ExchangeError> {
        if self.offered & (1 << index) != 0 {
            return Err(ExchangeError::Twice(row.key.into()));
        }
        self.offered |= 1 << index;
        if let (Rule::Declared(range), true) = (&row.rule, row.full_feature)
            && let Some(declared) = number_in(value, range)
        {
            self.declared.theirs = Some(declared);
            return Ok(());
        }
        Ok(answer.push(row.key, "Reject")?)
    }
}

/// Targets that an initiator has asked for and that are yet to be named.
struct TargetList {
    /// The directory as it was when the list was begun, so that nothing is named twice.
    directory: Arc<Directory>,
    initiator: String,
    group: u16,
    local: SocketAddr,
    origin: Origin,
    /// `None`: all that the initiator may see.
    name: Option<String>,
    /// The place in the directory to go on from.
    next: usize,
}

impl TargetList {
    /// The keys of the next target; `None` at the end.
    fn next(&mut self) -> Result<Option<TextWriter>, TextError> {
        let Self { initiator, name, origin, .. } = self;
        let is_asked_for = |target: &TargetNode| {
            target.host_of(initiator, origin).is_some()
                && name.as_ref().is_none_or(|name| is_same_name(&target.name, name))
        };
        let mut rest = self.directory.targets.iter().enumerate().skip(self.next);
        let Some((index, target)) = rest.find(|(_, target)| is_asked_for(target)) else { return Ok(None) };
        self.next = index + 1;
        let mut keys = TextWriter::new();
        list_target(target, self.group, self.local, &mut keys)?;
        Ok(Some(keys))
    }
}

fn list_target(target: &TargetNode, group: u16, local: SocketAddr, answer: &mut TextWriter) -> Result<(), TextError> {
    // TargetAlias goes with a login (RFC 7143 section 13.6). Here libiscsi takes no other keys than these two.
    answer.push("TargetName", &target.name)?;
    for portal in target.portals_beside(group) {
        if let Some(address) = reachable(portal.address, local) {
            answer.push("TargetAddress", &format!("{address},{}", portal.group))?;
        }
    }
    Ok(())
}

/// The address that the initiator should use: for "any address", the one that it used to come here. At a socket that
/// takes both families, IPv4 comes in the clothes of IPv6. Without a zone: the number of an interface means nothing on
/// another machine (RFC 4007 section 11).
fn reachable(portal: SocketAddr, local: SocketAddr) -> Option<SocketAddr> {
    if !portal.ip().is_unspecified() {
        return Some(SocketAddr::new(portal.ip(), portal.port()));
    }
    (portal.is_ipv4() == local.is_ipv4()).then(|| SocketAddr::new(local.ip().to_canonical(), portal.port()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_those_that_the_initiator_can_use() {
        for (portal, local, told) in [
            ("192.0.2.1:3260", "192.0.2.9:3260", Some("192.0.2.1:3260")),
            ("0.0.0.0:860", "192.0.2.9:3260", Some("192.0.2.9:860")),
            ("[::]:860", "192.0.2.9:3260", None),
            ("[::]:860", "[::ffff:192.0.2.9]:3260", Some("192.0.2.9:860")),
            ("[fe80::1%7]:3260", "192.0.2.9:3260", Some("[fe80::1]:3260")),
            ("[::]:860", "[fe80::1%7]:3260", Some("[fe80::1]:860")),
        ] {
            let address = |text: &str| text.parse::<SocketAddr>().unwrap();
            assert_eq!(reachable(address(portal), address(local)), told.map(address), "{portal} at {local}");
        }
    }
}
