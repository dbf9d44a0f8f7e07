//! A target that gives false answers where a test wants them.
//!
//! Left alone it is honest: it accepts every login, has one disk of [`DISK_LEN`] bytes, and keeps what is written. [`Lies`]
//! see each answer before it is sent and may change it. What such an answer implies stays true unless it is changed too:
//! lengths in headers, residuals, and the numbers of RFC 7143.

mod connection;
mod disk;

use std::net::{SocketAddr, TcpListener};
use std::sync::{Arc, Mutex};
use std::thread;

use lunette_pdu::{LoginResponse, Residual, ScsiCommand};

use self::connection::Connection;
use self::disk::Disk;
use crate::server::DEFAULT_TARGET;

/// The block length of the disk by default.
pub const BLOCK_LEN: usize = 512;

/// Bytes of the disk.
pub const DISK_LEN: usize = 1 << 20;

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
    /// The number of bytes that R2Ts ask for. A write that asks for less than all its bytes changes nothing on the disk.
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

/// The changes to the truth. The default changes nothing.
pub struct Lies {
    /// Changes login responses.
    pub login: Change<LoginAnswer>,
    /// Changes the answers to SendTargets, as bytes of a text segment.
    pub text: Change<Vec<u8>>,
    /// Changes the answers to commands.
    pub command: ChangeCommand,
}

impl Default for Lies {
    fn default() -> Self {
        Self { login: Box::new(|_| {}), text: Box::new(|_| {}), command: Box::new(|_, _| {}) }
    }
}

/// A target that listens on the loopback interface until the test ends.
pub struct ScriptedTarget {
    address: SocketAddr,
    shared: Arc<Shared>,
}

struct Shared {
    address: SocketAddr,
    lies: Lies,
    disk: Mutex<Disk>,
}

impl ScriptedTarget {
    /// Listens on a port of the system's choice.
    pub fn start(lies: Lies) -> Self {
        Self::start_with(|_| lies)
    }

    /// Like [`start`](Self::start), for lies that contain the target's own address.
    pub fn start_with(lies: impl FnOnce(SocketAddr) -> Lies) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("the loopback interface has a free port");
        let address = listener.local_addr().expect("a listener has an address");
        let shared = Shared { address, lies: lies(address), disk: Mutex::default() };
        let shared = Arc::new(shared);
        let behind = Arc::clone(&shared);
        thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let shared = Arc::clone(&behind);
                // A stream ends when the initiator closes it.
                thread::spawn(move || drop(Connection::new(stream, shared).run()));
            }
        });
        Self { address, shared }
    }

    /// The URL of its portal.
    pub fn portal_url(&self) -> String {
        format!("iscsi://{}", self.address)
    }

    /// The URL of its disk.
    pub fn url(&self) -> String {
        format!("iscsi://{}/{DEFAULT_TARGET}/0", self.address)
    }

    /// The current content of the disk.
    pub fn content(&self) -> Vec<u8> {
        self.shared.disk.lock().expect("no connection panics").bytes.clone()
    }
}
