//! A target that gives false answers where a test wants them.
//!
//! Left alone it is correct: it accepts every login, has one disk of [`DISK_LEN`] bytes, and keeps what is written. A
//! [`Script`] sees each answer before it is sent and may change it. What such an answer implies stays true unless it is
//! changed too: lengths in headers, residuals, and the numbers of RFC 7143.

mod connection;
mod disk;

use std::io::{self, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::AtomicU32;
use std::sync::{Arc, Mutex};
use std::thread;

use lunette_pdu::{BHS_LEN, LoginResponse, Residual, ScsiCommand};

use self::disk::Disk;
use crate::{TARGET, read_frame};
pub use connection::Connection;

/// Bytes of the disk.
pub const DISK_LEN: usize = 1 << 20;

/// A PDU that is ready to be sent: its header and its data segment.
pub type PduBytes = ([u8; BHS_LEN], Vec<u8>);

/// A login response that is about to be sent.
#[derive(Debug)]
pub struct LoginAnswer {
    /// The header; the length of the data segment follows from `keys`.
    pub response: LoginResponse,
    /// Keys and values, as they are sent.
    pub keys: Vec<(String, String)>,
}

impl LoginAnswer {
    /// Replaces the value of `key`, or appends the key.
    pub fn set(&mut self, key: &str, value: &str) {
        self.keys.retain(|(known, _)| known != key);
        self.keys.push((key.into(), value.into()));
    }
}

/// The answer to a SCSI command.
#[derive(Debug, Clone, Default)]
pub struct Answer {
    /// The data for the initiator. Data beyond the expected length is cut, and makes the true residual an overflow.
    pub data: Vec<u8>,
    /// The number of bytes that the target takes. A write that takes less than all its bytes changes nothing on the
    /// disk.
    pub solicited: u32,
    /// The SAM-5 status.
    pub status: u8,
    /// The sense data.
    pub sense: Vec<u8>,
    /// A residual in place of the true one.
    pub residual: Option<Residual>,
}

impl Answer {
    /// Overwrites bytes of the data from `at` on.
    pub fn put(&mut self, at: usize, bytes: &[u8]) {
        self.data[at..at + bytes.len()].copy_from_slice(bytes);
    }
}

type Change<T> = Box<dyn Fn(&mut T) + Send + Sync>;
type ChangeCommand = Box<dyn Fn(&ScsiCommand, &mut Answer) + Send + Sync>;

/// The lies of a target in place of the truth. The default changes nothing.
pub struct Script {
    /// Changes login responses.
    pub login: Change<LoginAnswer>,
    /// Changes the answers to SendTargets, as bytes of a text segment.
    pub text: Change<Vec<u8>>,
    /// Changes the answers to commands.
    pub command: ChangeCommand,
}

impl Default for Script {
    fn default() -> Self {
        Self { login: Box::new(|_| {}), text: Box::new(|_| {}), command: Box::new(|_, _| {}) }
    }
}

/// A target: its script, its disk, and what its connections share.
pub struct ScriptedTarget {
    address: SocketAddr,
    script: Script,
    disk: Mutex<Disk>,
    /// ExpCmdSN of the one session that it has at a time.
    exp_cmd_sn: AtomicU32,
}

impl ScriptedTarget {
    /// A target whose answers name `address`. Its [connections](Connection::new) are the caller's to serve.
    pub fn new(address: SocketAddr, script: Script) -> Arc<Self> {
        Arc::new(Self { address, script, disk: Mutex::default(), exp_cmd_sn: AtomicU32::new(0) })
    }

    /// Listens on a port of the system's choice until the test ends.
    pub fn start(script: Script) -> Arc<Self> {
        Self::start_with(|_| script)
    }

    /// Like [`start`](Self::start), for scripts that name the target's own address.
    pub fn start_with(script: impl FnOnce(SocketAddr) -> Script) -> Arc<Self> {
        let listener = TcpListener::bind("127.0.0.1:0").expect("the loopback interface has a free port");
        let address = listener.local_addr().expect("a listener has an address");
        let target = Self::new(address, script(address));
        let served = Arc::clone(&target);
        serve(listener, move |stream| {
            // A stream ends when the initiator closes it.
            drop(answer_all(stream, Connection::new(Arc::clone(&served))));
        });
        target
    }

    /// The address of its portal.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// The URL of its portal.
    pub fn portal_url(&self) -> String {
        format!("iscsi://{}", self.address)
    }

    /// The URL of its disk.
    pub fn url(&self) -> String {
        format!("iscsi://{}/{TARGET}/0", self.address)
    }

    /// The current content of the disk.
    pub fn content(&self) -> Vec<u8> {
        self.disk.lock().expect("no connection panics").bytes.clone()
    }
}

/// Answers until the initiator disconnects or logs out.
fn answer_all(mut stream: TcpStream, mut connection: Connection) -> io::Result<()> {
    stream.set_nodelay(true)?;
    while !connection.is_logged_out() {
        let frame = read_frame(&mut stream, connection.format())?;
        for (header, data) in connection.answer(&frame) {
            stream.write_all(&connection.format().encode(&header, &[], &data))?;
        }
        connection.answered();
    }
    Ok(())
}

/// Gives each connection of `listener` to `act`, on a thread of its own, until the test ends.
pub fn serve(listener: TcpListener, act: impl Fn(TcpStream) + Send + Sync + 'static) {
    let act = Arc::new(act);
    thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            let act = Arc::clone(&act);
            thread::spawn(move || act(stream));
        }
    });
}

#[cfg(test)]
mod tests {
    use lunette_pdu::LogoutResponseCode;

    use super::*;
    use crate::{BLOCK_LEN, Port, ScriptedInitiator, blocks};

    #[test]
    fn the_scripted_peers_understand_each_other() {
        let target = ScriptedTarget::start(Script::default());
        let written = blocks(300, 1);
        for keys in [&[][..], &[("HeaderDigest", "CRC32C"), ("DataDigest", "CRC32C")]] {
            let mut initiator = ScriptedInitiator::log_in(target.address(), Port::A, keys);
            initiator.write(0, 8, written.clone()).good();
            assert!(initiator.read(0, 8, 300).good() == written);
            initiator.send_logout();
            assert_eq!(initiator.logout_response(), LogoutResponseCode::CLOSED);
        }
        assert!(target.content()[8 * BLOCK_LEN..][..written.len()] == written);
    }
}
