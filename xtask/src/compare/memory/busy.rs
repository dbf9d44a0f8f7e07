//! The memory of a target under many sessions that want more buffers than it has.

use std::io::{ErrorKind, Write};
use std::net::TcpStream;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use lunette_pdu::{BHS_LEN, InitiatorTaskTag, LunField, ScsiCommand, SerialNumber, TaskAttribute};
use rustix::process::{Resource, getrlimit, setrlimit};

use super::{DISK_LEN, log_in, parts};
use crate::compare::cells::BLOCK_LEN;
use crate::compare::contestant::{Lunette, Stage};

pub(super) const SESSIONS: u16 = 1000;

/// The buffers of a server by default (`lunette_target::limits::DEFAULT_BUFFER_BYTES`).
pub(super) const BUFFER_BYTES: u64 = 256 << 20;

/// Commands of each session. Those of all sessions want twice the buffers.
const COMMANDS: u32 = 8;
const _: () = assert!(SESSIONS as u64 * COMMANDS as u64 * WRITE_LEN as u64 > BUFFER_BYTES * 3 / 2);

/// The default of FirstBurstLength, which holds because nothing is negotiated.
const WRITE_LEN: u32 = 64 << 10;

/// Bytes of data that come with the command. The rest never comes, so each command keeps its buffer, filled almost to
/// its end.
const IMMEDIATE_LEN: usize = WRITE_LEN as usize - 4096;

const WRITE_10: u8 = 0x2a;

/// When no byte has moved for this long, all sessions are waiting.
const STILL: Duration = Duration::from_secs(1);

const LIMIT: Duration = Duration::from_mins(1);

/// The peak of the server's memory in bytes.
pub(super) fn peak_bytes(stage: &Stage) -> Result<u64> {
    allow_files(u64::from(SESSIONS) + 256)?;
    let server = Lunette::start(stage, "serve-busy", DISK_LEN)?;
    let (portal, target) = parts(&server.url).with_context(|| format!("{} is no URL", server.url))?;
    let mut sessions = Vec::new();
    for number in 0..SESSIONS {
        stage.interrupt.check()?;
        let stream = log_in(portal, target, number).with_context(|| format!("session {number}"))?;
        stream.set_nonblocking(true)?;
        sessions.push(Sender { stream, sent: 0 });
    }
    let bytes: Vec<u8> = (1..=COMMANDS).flat_map(write_command).collect();
    let give_up = Instant::now() + LIMIT;
    let (mut moved, mut resident) = (Instant::now(), 0);
    while moved.elapsed() < STILL {
        stage.interrupt.check()?;
        if Instant::now() > give_up {
            bail!("the server still takes data after {LIMIT:?}");
        }
        let mut sent = 0;
        for session in &mut sessions {
            sent += session.send(&bytes)?;
        }
        let now = server.child.resident_bytes()?;
        if sent > 0 || now != resident {
            moved = Instant::now();
        }
        resident = now;
        thread::sleep(Duration::from_millis(10));
    }
    server.child.peak_resident_bytes()
}

/// One session's side of the stream.
struct Sender {
    stream: TcpStream,
    sent: usize,
}

impl Sender {
    /// Sends as much as the connection takes, and returns how much that was.
    fn send(&mut self, bytes: &[u8]) -> Result<usize> {
        let before = self.sent;
        while self.sent < bytes.len() {
            match self.stream.write(&bytes[self.sent..]) {
                Ok(len) => self.sent += len,
                Err(error) if error.kind() == ErrorKind::WouldBlock => break,
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(error).context("the server ended a session"),
            }
        }
        Ok(self.sent - before)
    }
}

/// A WRITE (10) of the first blocks, with almost all of its data. `cmd_sn` is counted from the login's.
fn write_command(cmd_sn: u32) -> Vec<u8> {
    let mut cdb = [0; 16];
    cdb[0] = WRITE_10;
    cdb[8] = (WRITE_LEN / BLOCK_LEN) as u8;
    let header = ScsiCommand {
        immediate: false,
        final_: true,
        read: false,
        write: true,
        attr: TaskAttribute::SIMPLE,
        priority: 0,
        lun: LunField::default(),
        itt: InitiatorTaskTag(cmd_sn),
        expected_data_transfer_length: WRITE_LEN,
        cmd_sn: SerialNumber(cmd_sn),
        exp_stat_sn: SerialNumber(0),
        cdb,
        ahs_len: 0,
        data_segment_len: IMMEDIATE_LEN,
    };
    let mut bytes = header.emit().to_vec();
    bytes.resize(BHS_LEN + IMMEDIATE_LEN, 0x5a);
    bytes
}

/// Raises this process's limit of open files.
fn allow_files(count: u64) -> Result<()> {
    let mut limit = getrlimit(Resource::Nofile);
    if limit.current.is_none_or(|current| current >= count) {
        return Ok(());
    }
    limit.current = Some(count);
    setrlimit(Resource::Nofile, limit).with_context(|| format!("cannot have {count} files open"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use lunette_pdu::Bhs;

    #[test]
    fn a_command_brings_all_but_its_last_block() {
        let bytes = write_command(7);
        let pdu = ScsiCommand::parse(Bhs::ref_from(&bytes[..BHS_LEN]).unwrap()).unwrap();
        assert_eq!(bytes.len(), BHS_LEN + pdu.data_segment_len);
        assert_eq!(u32::from(pdu.cdb[8]) * BLOCK_LEN, pdu.expected_data_transfer_length);
        assert_eq!(pdu.data_segment_len as u32 + BLOCK_LEN, WRITE_LEN);
    }
}
