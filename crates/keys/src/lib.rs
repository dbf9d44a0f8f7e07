//! The keys of encrypted volumes: the holders that may have them, and the places where they are kept.
//!
//! Layer 2: over files, quanta, tls; under iscsi-initiator, lunette.
//!
//! [`source`] gives the keys of a volume to the code that encrypts, as a [`KeyRing`](lunette_quanta::KeyRing).
//!
//! # Four kinds of keys
//!
//! | key | encrypts | kept |
//! |---|---|---|
//! | data key | the data that is written during one epoch | in the key file, wrapped by the volume key |
//! | volume key | all data keys of a volume, and authenticates its key file | in the key file, wrapped once for each holder |
//! | holder's key | the volume key | nowhere (made from a passphrase by Argon2id), or in a key server |
//! | master key | the objects of our key server | in a file, a systemd credential, or made from a passphrase |
//!
//! # Parts
//!
//! - **Key files** ([`keyfile`]): one file for each volume. With a passphrase it needs no server. A holder can also be
//!   an object of a key server.
//! - **Key sources** ([`source`]): from the words of a user (`keys=file:…`, `keys=kmip://…`) to the keys of a volume.
//! - **Key server**: [`ttlv`] is the encoding of KMIP and [`kmip`] its messages, for both sides. [`server`] has the
//!   rules of objects as a state machine, their store, and the listener with mutual TLS. [`client`] talks to this
//!   server and to those of others. [`lunette_tls::authority`] issues the certificates.
//!
//! # What is free of I/O
//!
//! [`keyfile::KeyFile`] and [`keyfile::Unlocked`] (bytes in, bytes out), [`ttlv`], [`kmip`] and [`server::Engine`]. The
//! system's random generator is the exception: keys and nonces are drawn where they are needed.
//!
//! # Secrets in memory
//!
//! Keys and passphrases are overwritten when they are dropped, their `Debug` shows no byte, and errors never quote
//! them. A process that holds them should call [`protect_process`], which excludes all of its memory from core dumps:
//! excluding single pages (`MADV_DONTDUMP`) needs `unsafe`, which this crate forbids.

#![forbid(unsafe_code)]

pub mod client;
mod files;
mod hex;
pub mod keyfile;
pub mod kmip;
mod limited;
mod passphrase;
mod seal;
mod secret;
pub mod server;
pub mod source;
pub mod ttlv;

pub use files::{FileError, LockedFile, write_private};
pub use passphrase::{Argon2Cost, CostError};
pub use secret::{Key, Passphrase, SecretFileError, protect_process};
