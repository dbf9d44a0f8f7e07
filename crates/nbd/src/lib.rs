//! A server of the NBD protocol (network block device) over any store.
//!
//! Floor 3 of the house: it knows stores and buffers, and nothing of iSCSI. The section names in this crate are those of
//! the protocol's own document, `proto.md` of the NetworkBlockDevice project.
//!
//! What it speaks: the fixed newstyle negotiation with `EXPORT_NAME`, `ABORT`, `LIST`, `INFO`, `GO`, `STRUCTURED_REPLY`,
//! `LIST_META_CONTEXT` and `SET_META_CONTEXT`; reads, writes, flush, trim, write zeroes and block status
//! (`base:allocation`), with FUA, on several connections at a time. What it does not: TLS, extended headers, resize.
//!
//! # A request's way
//!
//! A connection is two threads. One reads: [`wire`] parses the header, `Export::plan` turns it into a store's request or an
//! error, and before any memory is taken the connection's `Window` must have room, or reading stops until replies have gone.
//! The store ends the request on any thread and hands the reply to the other thread, which writes. Replies overtake each
//! other as the protocol allows.
//!
//! ```
//! use std::sync::Arc;
//!
//! use lunette_nbd::{Export, Listener, Server};
//! use lunette_store::{InlineIo, MemoryStore};
//!
//! let store = Arc::new(MemoryStore::new(1 << 30).expect("short enough"));
//! let server = Server::new(Export::new("disk", store, false)?, Arc::new(InlineIo));
//! let listener = Listener::tcp("127.0.0.1:0".parse()?)?;
//! println!("nbd://{}/disk", listener.address().expect("it listens on TCP"));
//! let stopper = server.stopper(&listener)?;
//! let serving = std::thread::spawn(move || server.run(&listener));
//! stopper.stop();
//! serving.join().expect("it does not panic")?;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

#![forbid(unsafe_code)]

mod connection;
mod export;
mod handshake;
mod limited;
pub mod limits;
mod options;
mod reply;
mod request;
mod server;
mod socket;
mod transmission;
mod window;
pub mod wire;

pub use connection::{ConnectionError, serve};
pub use export::{BlockLenError, Export};
pub use server::{Server, Stopper};
pub use socket::{Listener, Socket};

/// File operations that any thread may start.
pub type SharedIo = std::sync::Arc<dyn lunette_store::FileIo + Send + Sync>;
