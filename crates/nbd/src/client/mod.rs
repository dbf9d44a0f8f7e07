//! A client of the NBD protocol: an export of any server, as a [`Store`](lunette_store::Store).
//!
//! [`NbdUrl`] is the name of an export, as `uri.md` of the NetworkBlockDevice project has it; [`NbdStore`] is the
//! export when it is open. TLS is spoken where the URI demands it, and then never left out: its handshake comes before
//! all that is said of the export. Extended headers and block status are not supported.
//!
//! # The path of a request
//!
//! [`NbdStore`] checks the request against the geometry and puts it into the inbox of the connection's thread, which is
//! woken once for all requests of a [turn](lunette_reactor::Turn). The thread makes a *task* of it: one command or
//! several that follow one another, for what is longer than the server takes. The commands under way on the connection
//! are a machine without I/O, as is the negotiation. It gives the bytes to send, payloads straight from the buffers of
//! the requests, and takes those that were received. The thread receives long payloads straight into the buffers. It
//! ends a request when the last of its commands is answered, in whatever order the server answers.
//!
//! # A lost connection
//!
//! A connection is lost when it closes, when the server breaks the protocol, and when a command has no reply in time.
//! The thread then takes all requests back and begins each of them again on the next connection: what an earlier
//! command has written may be lost with the server. Reads, writes, zeroes, trims and flushes may run twice. The
//! protocol has no means to end the commands of a lost connection. So a server that goes on with them after the
//! connection is lost may write old data over new ones; a server that ends, or that reads nothing of a closed
//! connection, does not.
//!
//! ```no_run
//! use lunette_buffer::Pool;
//! use lunette_nbd::client::NbdStore;
//! use lunette_store::{Op, execute};
//!
//! let disk = NbdStore::open(&"nbd+unix:///disk?socket=/run/disk.sock".parse()?, false)?;
//! let mut from = Pool::new(1 << 20).take(4096).expect("room in the pool");
//! from.fill(7);
//! execute(&disk, Op::Write { offset: 0, from, fua: false }).result?;
//! execute(&disk, Op::Flush).result?;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod commands;
mod connect;
mod connection;
mod coverage;
mod driver;
mod durability;
mod error;
mod facts;
mod handshake;
mod inbox;
pub mod limits;
mod store;
mod task;
mod tls;
mod url;

pub use error::{OpenError, Said};
pub use store::NbdStore;
pub use url::{NbdUrl, Place, Tls, UrlError};
