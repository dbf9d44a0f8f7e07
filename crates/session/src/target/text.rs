//! Text requests of the full feature phase: SendTargets, and what may be negotiated again (RFC 7143 sections 11.10 and
//! appendix C).

use std::collections::VecDeque;
use std::net::SocketAddr;

use lunette_pdu::text::{self, TextAssembler, TextError, TextWriter};
use lunette_pdu::{InitiatorTaskTag, TextRequest};

use super::directory::{Directory, TargetNode};
use super::session::Session;
use crate::keys::{Parameters, Rule, row};
use crate::limits::{MAX_KEYS, MAX_TEXT_BYTES};

/// Who asks, and through which address.
pub(crate) struct Asker<'a> {
    pub(crate) directory: &'a Directory,
    pub(crate) session: &'a Session,
    pub(crate) local: SocketAddr,
}

/// Why a request gets no answer. The exchange starts over.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum ExchangeError {
    #[error(transparent)]
    Text(#[from] TextError),
    #[error("more than {MAX_KEYS} keys in one request")]
    TooManyKeys,
}

/// One part of an answer.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Part {
    pub(crate) text: Vec<u8>,
    /// More parts follow when the initiator asks for them.
    pub(crate) continue_: bool,
    /// The exchange is over.
    pub(crate) final_: bool,
}

/// A text exchange in progress. A connection has one at a time; a new request without a transfer tag starts over.
pub(crate) struct TextExchange {
    itt: Option<InitiatorTaskTag>,
    assembler: TextAssembler,
    outgoing: VecDeque<Vec<u8>>,
}

impl TextExchange {
    pub(crate) fn new() -> Self {
        Self { itt: None, assembler: TextAssembler::new(MAX_TEXT_BYTES), outgoing: VecDeque::new() }
    }

    /// Takes a request with its data segment and gives the next part of the answer.
    pub(crate) fn request(
        &mut self,
        request: &TextRequest,
        data: &[u8],
        asker: &Asker<'_>,
        parameters: &mut Parameters,
    ) -> Result<Part, ExchangeError> {
        if request.ttt.is_reserved() || self.itt != Some(request.itt) {
            *self = Self::new();
            self.itt = Some(request.itt);
        }
        if data.is_empty() && !self.outgoing.is_empty() {
            return Ok(self.next_part(request));
        }
        let Some(list) = self.assembler.push(data, request.continue_)? else {
            return Ok(Part { text: Vec::new(), continue_: false, final_: false });
        };
        // A list that is refused half-way changes nothing.
        let mut declared = parameters.clone();
        let answer = answer(&list, asker, &mut declared)?;
        *parameters = declared;
        self.outgoing = text::split_text(answer.as_bytes(), parameters.send_data_segment_len as usize)
            .map(<[u8]>::to_vec)
            .collect();
        Ok(self.next_part(request))
    }

    fn next_part(&mut self, request: &TextRequest) -> Part {
        let text = self.outgoing.pop_front().unwrap_or_default();
        let continue_ = !self.outgoing.is_empty();
        Part { text, continue_, final_: request.final_ && !continue_ }
    }
}

fn answer(list: &[u8], asker: &Asker<'_>, parameters: &mut Parameters) -> Result<TextWriter, ExchangeError> {
    let mut answer = TextWriter::new();
    for (index, pair) in text::pairs(list).enumerate() {
        if index == MAX_KEYS {
            return Err(ExchangeError::TooManyKeys);
        }
        match pair? {
            ("SendTargets", value) => send_targets(value, asker, &mut answer)?,
            (key, value) => match row(key) {
                Some((_, row)) if row.full_feature => declare(row, value, parameters, &mut answer)?,
                Some(_) => answer.push(key, "Reject")?,
                None => answer.push(key, "NotUnderstood")?,
            },
        }
    }
    Ok(answer)
}

fn declare(
    row: &crate::keys::Row,
    value: &str,
    parameters: &mut Parameters,
    answer: &mut TextWriter,
) -> Result<(), TextError> {
    let Rule::Declared(range) = &row.rule else { return answer.push(row.key, "Reject") };
    let declared = text::parse_number(value).ok().and_then(|n| u32::try_from(n).ok());
    match declared.filter(|n| range.contains(n)) {
        Some(declared) => {
            (row.set)(parameters, declared);
            Ok(())
        }
        None => answer.push(row.key, "Reject"),
    }
}

/// RFC 7143 appendix C: `All` in a discovery session only, a name in either, nothing in a normal session only.
fn send_targets(value: &str, asker: &Asker<'_>, answer: &mut TextWriter) -> Result<(), TextError> {
    let mut visible = asker.directory.visible_to(&asker.session.initiator_name);
    match (&asker.session.target, value) {
        (None, "All") => visible.try_for_each(|target| list_target(target, asker.local, answer)),
        (None, name) if !name.is_empty() => {
            let mut named = visible.filter(|target| target.name.eq_ignore_ascii_case(name));
            named.try_for_each(|target| list_target(target, asker.local, answer))
        }
        // The session may be older than the directory: its target may have other portals now, or be gone.
        (Some(own), name) if name.is_empty() || own.name.eq_ignore_ascii_case(name) => {
            asker.directory.find(&own.name).map_or(Ok(()), |target| list_target(target, asker.local, answer))
        }
        _ => answer.push("SendTargets", "Reject"),
    }
}

fn list_target(target: &TargetNode, local: SocketAddr, answer: &mut TextWriter) -> Result<(), TextError> {
    answer.push("TargetName", &target.name)?;
    if let Some(alias) = &target.alias {
        answer.push("TargetAlias", alias)?;
    }
    for portal in &target.portals {
        if let Some(address) = reachable(portal.address, local) {
            answer.push("TargetAddress", &format!("{address},{}", portal.group))?;
        }
    }
    Ok(())
}

/// The address that the initiator should use: for "any address", the one that it used to come here. At a socket that takes
/// both families, IPv4 comes in the clothes of IPv6.
fn reachable(portal: SocketAddr, local: SocketAddr) -> Option<SocketAddr> {
    if !portal.ip().is_unspecified() {
        return Some(portal);
    }
    (portal.is_ipv4() == local.is_ipv4()).then(|| SocketAddr::new(local.ip().to_canonical(), portal.port()))
}
