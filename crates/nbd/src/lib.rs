//! The NBD protocol (network block device): a server over any store, and a client that is a store.
//!
//! Layer 3: over buffer, reactor, store, tls; under lunette.
//!
//! The crate knows stores, buffers and the turns of threads, and nothing of iSCSI. Section names are those of the
//! protocol's document, `proto.md` of the NetworkBlockDevice project.
//!
//! Supported: the fixed newstyle negotiation with `EXPORT_NAME`, `ABORT`, `LIST`, `INFO`, `GO`, `STARTTLS`,
//! `STRUCTURED_REPLY`, `LIST_META_CONTEXT` and `SET_META_CONTEXT`; reads, writes, flush, trim, write zeroes and block
//! status (`base:allocation`), with FUA, on several connections at a time. TLS is TLS 1.3 with certificates, and a
//! server has it for all clients or for none. Not supported: pre-shared keys, extended headers, resize.
//!
//! The client is in [`client`]; it shares the bytes of the protocol ([`wire`]) with the server. The rest of this page
//! is about the server.
//!
//! [`Exports`] says which exports a client may use, by its address and its certificate; one [`Export`] is for all.
//!
//! An option of the negotiation is a constant in [`wire`] and an arm in `Negotiation::step`. `STARTTLS` consumes the
//! [`Stream`], and what was read ahead of it is a part of the handshake of TLS. Another stream takes its place, which
//! opens and seals records; the phases of the protocol do not know which of the two they have.
//!
//! # The path of a request
//!
//! A connection has two threads. The reading thread parses the header ([`wire`]), and `Export::plan` turns it into a
//! store's request or an error. Before any memory is taken the connection's `Window` must have room; otherwise reading
//! stops until replies have been written. Requests that come together are submitted in one
//! [turn](lunette_reactor::Turn), which wakes a store with its own thread only once. The store ends the request on any
//! thread and puts the reply into the `Outbox`. The writing thread is woken once for all replies of a turn, and sends
//! all that are there together. Replies may overtake each other, as the protocol allows.
//!
//! A store that [answers at once](lunette_store::Store::answers_at_once) does so on the reading thread. That thread
//! sends such replies before it waits, as far as the socket takes them. No other thread is woken from request to reply.
//!
//! ```
//! use std::sync::Arc;
//!
//! use lunette_nbd::{Export, Listener, Server};
//! use lunette_store::{InlineIo, MemoryStore};
//!
//! let store = Arc::new(MemoryStore::new(1 << 30).expect("short enough"));
//! let export = Export::new("disk", store, false)?;
//! let server = Server::new(Arc::new(export.clone()), Arc::new(InlineIo));
//! let listener = Listener::tcp("127.0.0.1:0".parse()?)?;
//! println!("nbd://{}/disk", listener.address().expect("it listens on TCP"));
//! let stopper = server.stopper(&listener)?;
//! let serving = std::thread::spawn(move || server.run(&listener));
//! stopper.stop();
//! serving.join().expect("it does not panic");
//! export.flush(&(Arc::new(InlineIo) as _))?;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

#![forbid(unsafe_code)]

pub mod client;
mod connection;
mod connections;
mod export;
mod exports;
mod handshake;
mod limited;
pub mod limits;
mod options;
mod outbox;
mod reply;
mod request;
mod server;
mod socket;
mod stream;
mod tls;
mod transmission;
mod window;
pub mod wire;

pub use connection::{ConnectionError, serve};
pub use export::{BlockLenError, Export};
pub use exports::{Client, Ending, Exports};
pub use server::{Server, Stopper};
pub use socket::Listener;
pub use stream::{Output, Stream};
pub use tls::{Admitted, ServerTls};

/// File operations that any thread may start.
pub type SharedIo = std::sync::Arc<dyn lunette_store::FileIo + Send + Sync>;
