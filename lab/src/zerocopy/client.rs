//! An iSCSI session over one TCP connection, driven by one thread that waits for the socket.
//!
//! The protocol is the session that ships (`lunette-session`). What the drivers that ship cannot do is here: data
//! leaves from the pages of a file.

use std::io::{IoSlice, IoSliceMut, Read};
use std::net::{SocketAddr, TcpStream};
use std::ops::Range;
use std::os::fd::AsFd;
use std::time::Instant;

use anyhow::{Context, Result, bail, ensure};
use lunette_buffer::{Buffer, SharedBuffer};
use lunette_pdu::{Cid, Isid, LunField, TaskAttribute};
use lunette_session::iscsi_initiator::{Command, Event, Response, Session, SessionConfig};
use lunette_session::keys::{Choices, Offer};
use lunette_session::{Entropy, Time, Timers};
use rustix::fs::sendfile;
use rustix::net::{SendAncillaryBuffer, SendFlags, sendmsg};

use super::socket;
use crate::experiment::commands::{BLOCK_LEN, NAME};

/// The bytes received at once, as many as the reactor that ships takes.
const RECEIVED: usize = 256 << 10;
/// Slices of one send.
const MAX_SLICES: usize = 64;
/// Commands that a disk may refuse after a login, each with a unit attention.
const MAX_ATTENTIONS: usize = 8;

/// The offer of a session without digests.
pub(super) fn plain_offer() -> Offer {
    const NONE: Choices = Choices(0b01);
    Offer { header_digest: NONE, data_digest: NONE, ..Offer::default() }
}

/// Which bytes of a send lie in a file, too, and may leave from its pages.
pub(super) trait Pages {
    /// Where they begin in the file.
    fn offset_of(&self, slice: &[u8]) -> Option<u64>;
    /// Sends some of them.
    fn send(&mut self, stream: &TcpStream, slice: &[u8], offset: u64) -> Result<usize>;
}

/// All bytes are copied from memory.
pub(super) struct NoPages;

impl Pages for NoPages {
    fn offset_of(&self, _: &[u8]) -> Option<u64> {
        None
    }

    fn send(&mut self, _: &TcpStream, _: &[u8], _: u64) -> Result<usize> {
        Ok(0)
    }
}

/// Bytes of one buffer leave from a file that holds the same.
pub(super) struct Mirror<F> {
    /// Where the buffer lies.
    pub(super) place: Range<usize>,
    pub(super) file: F,
    /// The flag MSG_ZEROCOPY in the place of sendfile(2).
    pub(super) by_flag: bool,
}

impl<F: AsFd> Pages for Mirror<F> {
    fn offset_of(&self, slice: &[u8]) -> Option<u64> {
        let at = slice.as_ptr() as usize;
        self.place.contains(&at).then(|| (at - self.place.start) as u64)
    }

    fn send(&mut self, stream: &TcpStream, slice: &[u8], offset: u64) -> Result<usize> {
        if self.by_flag {
            return socket::send_zero_copy(stream, slice, false);
        }
        Ok(sendfile(stream, &self.file, Some(&mut { offset }), slice.len())?)
    }
}

/// A session that has logged in.
pub(super) struct Client {
    session: Session,
    cid: Cid,
    pub(super) stream: TcpStream,
    began: Instant,
    received: Box<[u8]>,
    /// The part of it that the session has not consumed.
    rest: Range<usize>,
}

impl Client {
    /// Logs in, and takes the unit attentions of LUN 0.
    pub(super) fn log_in(target: SocketAddr, offer: Offer) -> Result<Self> {
        let stream = TcpStream::connect(target).with_context(|| format!("cannot reach {target}"))?;
        stream.set_nodelay(true)?;
        let mut session = Session::new(SessionConfig {
            initiator_name: "iqn.2026-11.lunette:lab".into(),
            initiator_alias: None,
            target_name: Some(NAME.into()),
            isid: Isid::random(1, 1),
            chap: None,
            offer,
            timers: Timers::default(),
        });
        let cid = session.connect(Entropy(std::array::from_fn(|at| at as u8)), Time::default());
        let received = vec![0; RECEIVED].into();
        let mut client = Self { session, cid, stream, began: Instant::now(), received, rest: 0..0 };
        match client.wait(&mut NoPages)? {
            Event::LoggedIn(_) => {}
            other => bail!("the login ended with {other:?}"),
        }
        for _ in 0..MAX_ATTENTIONS {
            client.submit(command(0, [0; 16]))?;
            let (_, response) = client.completed(&mut NoPages)?;
            if response.status == 0 {
                return Ok(client);
            }
        }
        bail!("the disk is not ready")
    }

    pub(super) fn recovery_r2ts(&self) -> u64 {
        self.session.recoveries().recovery_r2ts
    }

    pub(super) fn submit(&mut self, command: Command) -> Result<()> {
        let submitted = self.session.submit(command, self.now());
        submitted.map(drop).ok().context("the session has no room for a command")
    }

    /// Sends and receives until a command has ended.
    pub(super) fn completed(&mut self, pages: &mut impl Pages) -> Result<(Command, Response)> {
        match self.wait(pages)? {
            Event::Completed { command, response } => Ok((command, response)),
            other => bail!("the session goes on with {other:?}"),
        }
    }

    fn wait(&mut self, pages: &mut impl Pages) -> Result<Event> {
        loop {
            if let Some(event) = self.next_event() {
                return Ok(event);
            }
            self.send(pages)?;
            self.receive()?;
        }
    }

    fn now(&self) -> Time {
        Time::new(self.began.elapsed())
    }

    /// An event of what has been received.
    fn next_event(&mut self) -> Option<Event> {
        let now = self.now();
        let mut input = &self.received[self.rest.clone()];
        let event = self.session.next_event(self.cid, &mut input, now);
        self.rest.start = self.rest.end - input.len();
        event
    }

    /// Receives once: where the session says, and what is beyond that into the memory for all.
    fn receive(&mut self) -> Result<()> {
        debug_assert!(self.rest.is_empty(), "events are taken first");
        let now = self.now();
        let place = self.session.direct(self.cid).unwrap_or_default();
        let direct = place.len();
        let len = match direct {
            0 => self.stream.read(&mut self.received),
            _ => self.stream.read_vectored(&mut [IoSliceMut::new(place), IoSliceMut::new(&mut self.received)]),
        };
        let len = len.context("cannot receive")?;
        ensure!(len > 0, "the target has closed the connection");
        if direct > 0 {
            self.session.direct_received(self.cid, len.min(direct), now);
        }
        self.rest = 0..len.saturating_sub(direct);
        Ok(())
    }

    /// Sends all that is ready.
    pub(super) fn send(&mut self, pages: &mut impl Pages) -> Result<()> {
        while self.session.has_output(self.cid) {
            let mut slices = Vec::with_capacity(MAX_SLICES);
            let mut from_pages = None;
            for slice in self.session.slices(self.cid).take(MAX_SLICES) {
                if let Some(offset) = pages.offset_of(slice) {
                    from_pages = Some((slice, offset));
                    break;
                }
                slices.push(IoSlice::new(slice));
            }
            let sent = match from_pages {
                Some((slice, offset)) if slices.is_empty() => pages.send(&self.stream, slice, offset)?,
                _ => {
                    let more = if from_pages.is_some() { SendFlags::MORE } else { SendFlags::empty() };
                    let flags = SendFlags::NOSIGNAL | more;
                    sendmsg(&self.stream, &slices, &mut SendAncillaryBuffer::default(), flags)?
                }
            };
            ensure!(sent > 0, "nothing more can be sent");
            self.session.sent(self.cid, sent);
        }
        Ok(())
    }
}

/// A command without data.
pub(super) fn command(user: u64, cdb: [u8; 16]) -> Command {
    Command {
        user,
        lun: LunField::default(),
        cdb,
        cdb_rest: Box::default(),
        attribute: TaskAttribute::SIMPLE,
        priority: 0,
        data_out: None,
        data_in: None,
        block_len: 0,
    }
}

/// READ (10) of `place`'s length.
pub(super) fn read(user: u64, lba: u32, block_len: usize, place: Buffer) -> Command {
    let cdb = cdb(0x28, lba, place.len() / block_len);
    Command { data_in: Some(place), ..command(user, cdb) }
}

/// WRITE (10) of `data`.
pub(super) fn write(user: u64, lba: u32, block_len: usize, data: SharedBuffer) -> Command {
    let cdb = cdb(0x2a, lba, data.len() / block_len);
    Command { data_out: Some(data), ..command(user, cdb) }
}

fn cdb(opcode: u8, lba: u32, blocks: usize) -> [u8; 16] {
    let mut cdb = [0; 16];
    cdb[0] = opcode;
    cdb[2..6].copy_from_slice(&lba.to_be_bytes());
    cdb[7..9].copy_from_slice(&(blocks as u16).to_be_bytes());
    cdb
}

/// Bytes of a block of plain disks.
pub(super) const PLAIN_BLOCK: usize = BLOCK_LEN as usize;
