//! The fixed newstyle negotiation.

use std::io::{self, BufRead, Read, Write};

use lunette_tls::Peer;

use crate::limits::{MAX_OPTION_LEN, MAX_OPTIONS, MAX_SKIPPED_LEN};
use crate::options::{ContextRequest, InfoRequest};
use crate::request::Negotiated;
use crate::stream::{Output, Stream};
use crate::tls::ServerTls;
use crate::wire::{
    BASE_ALLOCATION, BASE_ALLOCATION_ID, FLAG_FIXED_NEWSTYLE, FLAG_NO_ZEROES, OPTION_HEADER_LEN, OPTION_MAGIC,
    OptionHeader, SERVER_MAGIC, info, option, option_reply, reply,
};
use crate::{Client, ConnectionError, Export, Exports};

/// Zeroes behind the answer to `EXPORT_NAME`, unless both sides agreed to leave them out.
const EXPORT_NAME_ZEROES: usize = 124;

/// How a negotiation ends.
pub(crate) enum End<'a> {
    /// The client has left.
    Left,
    /// The transmission phase follows.
    Agreed(Export, Negotiated),
    /// The handshake of TLS follows, and behind it the negotiation goes on.
    Tls(&'a ServerTls, Box<Negotiation<'a>>),
}

/// Negotiates from the first byte on. With `tls` the client has to begin TLS before all else.
pub(crate) fn negotiate<'a>(
    stream: &mut Stream<impl Read, impl Output>,
    exports: &'a dyn Exports,
    client: Client,
    tls: Option<&'a ServerTls>,
) -> Result<End<'a>, ConnectionError> {
    let Stream { reader, writer } = stream;
    let mut hello = Vec::with_capacity(18);
    hello.extend(SERVER_MAGIC.to_be_bytes());
    hello.extend(OPTION_MAGIC.to_be_bytes());
    hello.extend((FLAG_FIXED_NEWSTYLE | FLAG_NO_ZEROES).to_be_bytes());
    writer.write_all(&hello)?;
    writer.flush()?;
    if reader.fill_buf()?.is_empty() {
        return Ok(End::Left);
    }
    let mut flags = [0; 4];
    reader.read_exact(&mut flags)?;
    let security = tls.map_or(Security::None, Security::Demanded);
    Negotiation::new(exports, client, u32::from_be_bytes(flags), security)?.go_on(stream)
}

/// Reads the data of an option; `None` when it is too long and was skipped.
fn read_data(reader: &mut impl Read, len: u32) -> Result<Option<Vec<u8>>, ConnectionError> {
    if len > MAX_SKIPPED_LEN {
        return Err(ConnectionError::Protocol("an option of absurd length"));
    }
    if len > MAX_OPTION_LEN {
        skip(reader, len)?;
        return Ok(None);
    }
    let mut data = vec![0; len as usize];
    reader.read_exact(&mut data)?;
    Ok(Some(data))
}

/// Reads and discards `len` bytes.
pub(crate) fn skip(reader: &mut impl Read, len: u32) -> io::Result<()> {
    let skipped = io::copy(&mut reader.take(len.into()), &mut io::sink())?;
    if skipped < u64::from(len) { Err(io::ErrorKind::UnexpectedEof.into()) } else { Ok(()) }
}

/// The step that follows an option.
enum Step<'a> {
    /// The next option follows.
    Haggle,
    /// The transmission phase follows.
    Transmit(Export),
    /// The handshake of TLS follows.
    Tls(&'a ServerTls),
    /// The client leaves.
    Leave,
}

/// The part that TLS has in a negotiation ("TLS support").
#[derive(Debug, Clone, Copy)]
enum Security<'a> {
    /// None (`NOTLS`).
    None,
    /// The client has to begin it (`FORCEDTLS`).
    Demanded(&'a ServerTls),
    /// The client has begun it.
    Begun,
}

/// The state between options, without socket and clock.
pub(crate) struct Negotiation<'a> {
    exports: &'a dyn Exports,
    client: Client,
    /// The export that was found last, with the name that the client gave.
    found: Option<(String, Export)>,
    security: Security<'a>,
    fixed: bool,
    no_zeroes: bool,
    /// Options so far.
    options: usize,
    agreed: Negotiated,
    /// The export that the agreed metadata context is of.
    allocation_of: Option<String>,
}

impl<'a> Negotiation<'a> {
    fn new(
        exports: &'a dyn Exports,
        client: Client,
        client_flags: u32,
        security: Security<'a>,
    ) -> Result<Self, ConnectionError> {
        let has = |flag: u16| client_flags & u32::from(flag) != 0;
        if client_flags & !u32::from(FLAG_FIXED_NEWSTYLE | FLAG_NO_ZEROES) != 0 {
            return Err(ConnectionError::Protocol("client flags that do not exist"));
        }
        let (fixed, no_zeroes) = (has(FLAG_FIXED_NEWSTYLE), has(FLAG_NO_ZEROES));
        Ok(Self {
            exports,
            client,
            found: None,
            security,
            fixed,
            no_zeroes,
            options: 0,
            agreed: Negotiated::default(),
            allocation_of: None,
        })
    }

    /// The client has shown a certificate, or none.
    pub(crate) fn prove(&mut self, certificate: Option<Peer>) {
        self.client.certificate = certificate;
    }

    /// The export that the client means by `name`, if there is one for it.
    fn find(&mut self, name: &str) -> Option<Export> {
        if let Some((_, export)) = self.found.as_ref().filter(|(found, _)| found == name) {
            return Some(export.clone());
        }
        // One at a time: what was found before is given back first.
        self.found = None;
        let export = self.exports.open(&self.client, name)?;
        self.found = Some((name.to_owned(), export.clone()));
        Some(export)
    }

    /// The terms that were agreed for `export`.
    fn terms_for(&self, export: &Export) -> Negotiated {
        let has_context = self.allocation_of.as_deref() == Some(export.name());
        Negotiated { allocation: self.agreed.allocation && has_context, ..self.agreed }
    }

    /// Answers options until one of them ends the negotiation, or begins TLS.
    pub(crate) fn go_on(mut self, stream: &mut Stream<impl Read, impl Output>) -> Result<End<'a>, ConnectionError> {
        let Stream { reader, writer } = stream;
        while self.options < MAX_OPTIONS {
            self.options += 1;
            if reader.fill_buf()?.is_empty() {
                return Ok(End::Left);
            }
            let mut header = [0; OPTION_HEADER_LEN];
            reader.read_exact(&mut header)?;
            let header = OptionHeader::parse(&header)
                .ok_or(ConnectionError::Protocol("an option that does not start with its magic number"))?;
            let data = read_data(reader, header.len)?;
            let mut answer = Vec::new();
            let step = self.step(header.option, data.as_deref(), &mut answer)?;
            writer.write_all(&answer)?;
            writer.flush()?;
            match step {
                Step::Haggle => {}
                Step::Transmit(export) => {
                    let terms = self.terms_for(&export);
                    return Ok(End::Agreed(export, terms));
                }
                // What was agreed in plain text counts no longer (`NBD_OPT_STARTTLS`).
                Step::Tls(tls) => {
                    let (security, agreed) = (Security::Begun, Negotiated::default());
                    return Ok(End::Tls(tls, Box::new(Self { security, agreed, ..self })));
                }
                Step::Leave => return Ok(End::Left),
            }
        }
        Err(ConnectionError::Protocol("no end of options"))
    }

    /// Answers one option; `data` is `None` when it was too long.
    fn step(&mut self, option: u32, data: Option<&[u8]>, answer: &mut Vec<u8>) -> Result<Step<'a>, ConnectionError> {
        if option == option::EXPORT_NAME {
            return self.export_name(data, answer);
        }
        if !self.fixed {
            return Err(ConnectionError::Protocol("an option that needs the fixed newstyle"));
        }
        let mut replies = Replies { option, answer };
        if matches!(self.security, Security::Demanded(_)) && ![option::ABORT, option::STARTTLS].contains(&option) {
            replies.add(reply::ERR_TLS_REQD, &[]);
            return Ok(Step::Haggle);
        }
        let Some(data) = data else {
            replies.add(reply::ERR_TOO_BIG, &[]);
            return Ok(Step::Haggle);
        };
        let end = match option {
            option::ABORT => {
                replies.add(reply::ACK, &[]);
                return Ok(Step::Leave);
            }
            option::STARTTLS => match self.start_tls(data) {
                Ok(tls) => {
                    replies.add(reply::ACK, &[]);
                    return Ok(Step::Tls(tls));
                }
                Err(error) => Err(error),
            },
            option::LIST => self.list(data, &mut replies),
            option::INFO => self.info(data, &mut replies).map(drop),
            option::GO => match self.info(data, &mut replies) {
                Ok(export) => {
                    replies.add(reply::ACK, &[]);
                    return Ok(Step::Transmit(export));
                }
                Err(error) => Err(error),
            },
            option::STRUCTURED_REPLY => self.structured_reply(data),
            option::LIST_META_CONTEXT => self.list_contexts(data, &mut replies),
            option::SET_META_CONTEXT => self.set_contexts(data, &mut replies),
            _ => Err(reply::ERR_UNSUP),
        };
        replies.add(end.err().unwrap_or(reply::ACK), &[]);
        Ok(Step::Haggle)
    }

    /// Answers `EXPORT_NAME`, the old way to start, which has no error reply.
    fn export_name(&mut self, data: Option<&[u8]>, answer: &mut Vec<u8>) -> Result<Step<'a>, ConnectionError> {
        if matches!(self.security, Security::Demanded(_)) {
            return Err(ConnectionError::WithoutTls);
        }
        let name = String::from_utf8_lossy(data.unwrap_or(b"(a long name)"));
        let Some(export) = self.find(&name) else {
            return Err(ConnectionError::UnknownExport(name.into_owned()));
        };
        answer.extend(self.size_and_flags(&export));
        if !self.no_zeroes {
            answer.resize(answer.len() + EXPORT_NAME_ZEROES, 0);
        }
        Ok(Step::Transmit(export))
    }

    fn start_tls(&self, data: &[u8]) -> Result<&'a ServerTls, u32> {
        match self.security {
            Security::None => Err(reply::ERR_POLICY),
            Security::Begun => Err(reply::ERR_INVALID),
            Security::Demanded(_) if !data.is_empty() => Err(reply::ERR_INVALID),
            Security::Demanded(tls) => Ok(tls),
        }
    }

    fn list(&self, data: &[u8], replies: &mut Replies<'_>) -> Result<(), u32> {
        if !data.is_empty() {
            return Err(reply::ERR_INVALID);
        }
        for name in self.exports.names(&self.client) {
            replies.add(reply::SERVER, &[&(name.len() as u32).to_be_bytes(), name.as_bytes()].concat());
        }
        Ok(())
    }

    fn info(&mut self, data: &[u8], replies: &mut Replies<'_>) -> Result<Export, u32> {
        let request = InfoRequest::parse(data).ok_or(reply::ERR_INVALID)?;
        let export = self.find(request.export).ok_or(reply::ERR_UNKNOWN)?;
        replies.info(info::EXPORT, &self.size_and_flags(&export));
        if request.wants_name {
            replies.info(info::NAME, export.name().as_bytes());
        }
        replies.info(info::BLOCK_SIZE, &export.block_sizes().map(u32::to_be_bytes).concat());
        Ok(export)
    }

    fn structured_reply(&mut self, data: &[u8]) -> Result<(), u32> {
        if !data.is_empty() {
            return Err(reply::ERR_INVALID);
        }
        self.agreed.structured = true;
        Ok(())
    }

    fn contexts<'d>(&mut self, data: &'d [u8]) -> Result<(Export, ContextRequest<'d>), u32> {
        let request = ContextRequest::parse(data).ok_or(reply::ERR_INVALID)?;
        if !self.agreed.structured {
            return Err(reply::ERR_INVALID);
        }
        let export = self.find(request.export).ok_or(reply::ERR_UNKNOWN)?;
        Ok((export, request))
    }

    fn list_contexts(&mut self, data: &[u8], replies: &mut Replies<'_>) -> Result<(), u32> {
        if self.contexts(data)?.1.lists_allocation {
            replies.context(0);
        }
        Ok(())
    }

    fn set_contexts(&mut self, data: &[u8], replies: &mut Replies<'_>) -> Result<(), u32> {
        // The request drops an earlier selection even when it fails.
        self.agreed.allocation = false;
        let (export, request) = self.contexts(data)?;
        self.agreed.allocation = request.names_allocation;
        self.allocation_of = Some(export.name().to_owned());
        if self.agreed.allocation {
            replies.context(BASE_ALLOCATION_ID);
        }
        Ok(())
    }

    fn size_and_flags(&self, export: &Export) -> [u8; 10] {
        let mut bytes = [0; 10];
        bytes[..8].copy_from_slice(&export.len_bytes().to_be_bytes());
        bytes[8..].copy_from_slice(&export.flags(self.agreed.structured).to_be_bytes());
        bytes
    }
}

/// The replies to one option.
struct Replies<'a> {
    option: u32,
    answer: &'a mut Vec<u8>,
}

impl Replies<'_> {
    fn add(&mut self, kind: u32, data: &[u8]) {
        self.answer.extend(option_reply(self.option, kind, data.len() as u32));
        self.answer.extend_from_slice(data);
    }

    fn info(&mut self, kind: u16, data: &[u8]) {
        self.add(reply::INFO, &[&kind.to_be_bytes(), data].concat());
    }

    fn context(&mut self, id: u32) {
        self.add(reply::META_CONTEXT, &[&id.to_be_bytes(), BASE_ALLOCATION.as_bytes()].concat());
    }
}

#[cfg(test)]
mod tests;
