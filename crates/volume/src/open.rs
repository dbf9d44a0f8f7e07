//! The open volume.

use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Instant;

use lunette_buffer::Buffer;
use lunette_quanta::packed::{Journal, Layout, ReplayError, replay};
use lunette_quanta::{Codec, Header, KeyRing, Native, Placement, VolumeId};
use lunette_store::{Capabilities, Completion, FileIo, Geometry, Op, Outcome, Run, Store, StoreError, execute};

use crate::anchor::{Anchor, AnchorSaver};
use crate::awaited::AwaitedKeys;
use crate::buffers::Buffers;
use crate::claims::Claims;
use crate::counts::{Counts, Tally};
use crate::error::VolumeError;
use crate::find::Found;
use crate::header::OpenHeader;
use crate::mailbox::Mailbox;
use crate::owners::Owners;
use crate::packed::Packed;
use crate::packed::journal::{highest_version, read_journal, take_over};
use crate::parity::ParityUnit;
use crate::request::{Request, What};
use crate::seals::Seals;
use crate::shared::{Place, Shared};
use crate::together::Together;
use crate::unit::{Unit, doing};
use crate::versions::Versions;
use crate::worker;

/// How a volume is to be opened.
#[derive(Debug, Clone, Default)]
pub struct OpenOptions {
    /// Whether requests that change the volume are refused.
    pub read_only: bool,
    /// The file of the volume's [`Anchor`], against which everything that is read is checked. It must be there.
    /// Requests then make no holes: zeroes are sealed, and unmaps free no space.
    pub anchor: Option<PathBuf>,
    /// Whether reads of quanta whose key is not known wait for it. Whoever says so calls [`Volume::set_keys`] when
    /// there are new keys, and [`Volume::refuse_waiting`] when reads have waited for long enough.
    pub await_keys: bool,
}

/// An open volume: a store of plain text.
///
/// Requests are whole quanta ([`Geometry::granularity_bytes`]). They are sealed on the thread that submits them and
/// opened on the thread that ends the request below. What has to wait (for the journal, for buffers, for another
/// request) goes on by a thread of the volume.
///
/// Dropping the volume leaves it as a killed process would: requests under way end, and a packed volume keeps in its
/// journal what is there, for the next [`open`](Self::open). [`close`](Self::close) leaves nothing to replay. Dropping
/// waits for nothing, so it may happen on any thread; a checkpoint that is being made goes on, and [`stop`](Self::stop)
/// waits for it. An anchor is given up at once; a request under way that would save it fails. Before the unit is opened
/// again in the same process, the requests and the checkpoint under way have ended.
pub struct Volume {
    pub(crate) shared: Arc<Shared>,
}

impl Volume {
    /// Opens the volume that [`find`](crate::find) has found, and replays its journal in memory if it is packed.
    ///
    /// When the newest of `keys` is newer than the volume's newest epoch, the header is changed to say so, unless the
    /// volume is opened read-only. One client at a time may open a packed volume for writing: when a second one does,
    /// the first fails its next checkpoint, and all changes after that. What both wrote until then may be lost.
    ///
    /// # Errors
    ///
    /// [`VolumeError`]; [`VolumeError::TailLost`] and [`VolumeError::RecordsLost`] are what [`recover`](crate::recover)
    /// is for.
    pub fn open(
        inner: Arc<dyn Store>,
        found: &Found,
        keys: KeyRing,
        options: OpenOptions,
    ) -> Result<Self, VolumeError> {
        Self::open_by(replay, inner, found, keys, options)
    }

    /// Opens a volume by one of the ways to read its journal.
    pub(crate) fn open_by(
        replay: impl FnOnce(&[u8], &Layout, VolumeId) -> Result<Journal, ReplayError>,
        inner: Arc<dyn Store>,
        found: &Found,
        keys: KeyRing,
        options: OpenOptions,
    ) -> Result<Self, VolumeError> {
        let header = found.authenticate(&keys)?;
        let read_only = options.read_only || inner.capabilities().read_only;
        let codec = Codec::new(header.volume, header.size, header.holes, keys.clone());
        let versions = Versions::default();
        let anchor = match options.anchor {
            None => None,
            Some(path) => {
                let anchor = Anchor::open(&path, &header, read_only)?;
                versions.saw(anchor.highest());
                Some(AnchorSaver::start(anchor).map_err(VolumeError::Thread)?)
            }
        };
        let tally = Arc::new(Tally::default());
        let seals = Arc::new(Seals::new(codec, header.holes, versions, anchor, Arc::clone(&tally)));
        let native = match header.placement {
            Placement::Native => {
                let blocks = inner.geometry().len_bytes / header.size.edu_len() as u64;
                Some(Native::of(&header, blocks)?)
            }
            Placement::Packed { .. } => None,
        };
        let parity = match native {
            Some(native) if header.group.is_some() => {
                Some(ParityUnit::new(Arc::clone(&inner), &header, native, Some(Arc::clone(&seals)), read_only)?)
            }
            _ => None,
        };
        let parity = parity.map(Arc::new);
        let mailbox = Arc::new(Mailbox::default());
        let owners = Owners {
            inner: parity.clone().map_or(inner, |parity| parity),
            size: header.size,
            seals,
            buffers: Arc::new(Buffers::new(&mailbox)),
            claims: Arc::new(Claims::new(&mailbox)),
            mailbox: Arc::clone(&mailbox),
            tally,
            awaited: Arc::new(AwaitedKeys::new(options.await_keys)),
        };
        let place = match native {
            Some(native) => Place::Native(native),
            None => Place::Packed(Arc::new(open_packed(owners.clone(), &header, replay, read_only)?)),
        };
        let shared = Arc::new(Shared {
            owners,
            parity,
            place,
            quanta: header.quanta,
            read_only,
            header: OpenHeader::new(header),
            together: Together::default(),
        });
        worker::start(mailbox, Arc::downgrade(&shared)).map_err(VolumeError::Thread)?;
        let volume = Self { shared };
        volume.set_keys(keys)?;
        Ok(volume)
    }

    /// The header as it is now.
    pub fn header(&self) -> Header {
        self.shared.header.get()
    }

    /// The counts of the volume so far.
    pub fn counts(&self) -> Counts {
        self.shared.owners.tally.counts()
    }

    /// Takes other keys: what is written from now on is sealed with the newest of them. Requests go on meanwhile.
    ///
    /// The header is written and flushed first when it does not know the newest epoch yet, so a client that finds it
    /// knows which keys to fetch.
    ///
    /// # Errors
    ///
    /// [`VolumeError::OtherCipher`], [`VolumeError::OldKeys`], and failures to write the header; the volume keeps its
    /// keys then.
    pub fn set_keys(&self, keys: KeyRing) -> Result<(), VolumeError> {
        let (shared, epoch) = (&self.shared, keys.newest_epoch());
        let newest = |header: Header| Header { newest_epoch: header.newest_epoch.max(epoch), ..header };
        let take = |keys| shared.owners.seals.set_keys(keys);
        let codec = shared.header.change(&shared.owners.inner, shared.read_only, || keys, newest, take)?;
        shared.owners.key_came(&codec);
        Ok(())
    }

    /// How many reads wait for a key, and since when the first of them. Only with [`OpenOptions::await_keys`].
    pub fn waiting_for_keys(&self) -> Option<(usize, Instant)> {
        self.shared.owners.awaited.oldest()
    }

    /// Refuses the reads that have been waiting for a key since `since`, or for longer. Gives how many they were.
    pub fn refuse_waiting(&self, since: Instant) -> usize {
        let owners = &self.shared.owners;
        let refused = owners.awaited.take_since(since);
        let count = refused.len();
        for (request, piece, error) in refused {
            request.ended(piece.end - piece.start, Err(owners.seals.refused(error)));
        }
        count
    }

    /// Says in the header that the volume has no quanta of older epochs than the newest.
    pub(crate) fn forget_older_epochs(&self, epoch: u32) -> Result<(), VolumeError> {
        let shared = &self.shared;
        let keys = || shared.owners.seals.codec().keys().clone();
        let oldest = |header: Header| Header { first_epoch: header.first_epoch.max(epoch), ..header };
        shared.header.change(&shared.owners.inner, shared.read_only, keys, oldest, drop)
    }

    /// Flushes everything acknowledged so far, and moves what is in the journal to its places, so that the next
    /// [`open`](Self::open) finds it empty. The volume can be used after that.
    ///
    /// # Errors
    ///
    /// [`VolumeError::Unit`].
    pub fn close(&self) -> Result<(), VolumeError> {
        let failed = doing("closing the volume");
        if self.shared.read_only {
            return Ok(());
        }
        let flush = || execute(self, Op::Flush).result;
        let Place::Packed(packed) = &self.shared.place else { return flush().map_err(failed) };
        // The checkpoint says all that a note of this flush would.
        packed.bar_notes();
        let closed = flush().and_then(|()| packed.checkpoint());
        packed.admit_notes();
        closed.map(drop).map_err(failed)
    }

    /// Drops the volume, waits for a checkpoint that is being made, and notes in the journal what was flushed. When the
    /// requests under way have ended, too, the unit can be opened again.
    ///
    /// It must not be called on the thread that ends the requests of the unit.
    pub fn stop(self) {
        if let Place::Packed(packed) = &self.shared.place {
            packed.drop_handle();
            packed.wait_for_checkpoint();
            packed.wait_for_note();
            packed.note();
            packed.wait_for_note();
        }
    }

    fn check(&self, op: &Op) -> Result<(), StoreError> {
        let len = self.shared.owners.size.bytes() as u64;
        op.check(self.shared.quanta * len, self.shared.read_only)?;
        let (offset, bytes) = op.range();
        if offset.is_multiple_of(len) && bytes.is_multiple_of(len) {
            return Ok(());
        }
        Err(io::Error::new(io::ErrorKind::InvalidInput, "the request is not of whole quanta").into())
    }

    fn request(
        &self,
        what: What,
        (offset, len): (u64, u64),
        buffer: Option<Buffer>,
        io: &dyn FileIo,
        done: Completion,
    ) {
        let size = self.shared.owners.size.bytes() as u64;
        let range = offset / size..(offset + len) / size;
        if range.is_empty() {
            return done.complete(Outcome::new(Ok(()), buffer));
        }
        let done = if what.fua() { self.anchored(done) } else { done };
        let (volume, size) = (Arc::<Shared>::clone(&self.shared), self.shared.owners.size);
        self.shared.begin(&Request::new(volume, size, what, range, buffer, false, done), io);
    }

    /// The end of a write that is safe when it is acknowledged: with an anchor, the anchor is saved first, which takes
    /// a flush.
    fn anchored(&self, done: Completion) -> Completion {
        if self.shared.owners.seals.anchor().is_none() {
            return done;
        }
        let shared = Arc::clone(&self.shared);
        Completion::call(move |outcome: Outcome| match shared.owners.seals.anchor() {
            Some(saver) if outcome.result.is_ok() => saver.flush(&shared.owners.inner, outcome, done),
            _ => done.complete(outcome),
        })
    }

    fn flush(&self, io: &dyn FileIo, done: Completion) {
        let flush = |done| match self.shared.owners.seals.anchor() {
            None => self.shared.owners.inner.submit(Op::Flush, io, done),
            Some(saver) => saver.flush(&self.shared.owners.inner, Outcome::new(Ok(()), None), done),
        };
        let Place::Packed(packed) = &self.shared.place else { return flush(done) };
        if let Err(error) = packed.check_open() {
            return done.complete(Outcome::new(Err(error), None));
        }
        let (shared, through) = (Arc::clone(&self.shared), packed.flush_begins());
        let ended = move |mut outcome: Outcome| {
            if let Place::Packed(packed) = &shared.place {
                outcome.result = outcome.result.map_err(|error| packed.close_for_changes(error));
                if outcome.result.is_ok() && !shared.read_only {
                    packed.flushed(through);
                }
            }
            done.complete(outcome);
        };
        flush(Completion::call(ended));
    }
}

impl Drop for Volume {
    fn drop(&mut self) {
        // No one brings keys any more.
        self.refuse_waiting(Instant::now());
        if let Some(saver) = self.shared.owners.seals.anchor() {
            saver.anchor().close();
        }
        if let Place::Packed(packed) = &self.shared.place {
            packed.drop_handle();
        }
    }
}

/// The driver of a packed volume, with its journal replayed.
fn open_packed(
    owners: Owners,
    header: &Header,
    replay: impl FnOnce(&[u8], &Layout, VolumeId) -> Result<Journal, ReplayError>,
    read_only: bool,
) -> Result<Packed, VolumeError> {
    let layout = Layout::of(header, owners.inner.geometry().len_bytes)?;
    let unit = Unit::new(&owners.inner);
    let area = read_journal(&unit, &layout)?;
    let mut journal = replay(&area, &layout, header.volume)?;
    let highest = highest_version(&journal, &area, &owners.seals.codec());
    owners.seals.saw_version(highest);
    if !read_only {
        take_over(&unit, &layout, &mut journal)?;
    }
    Ok(Packed::new(owners, layout, journal, unit))
}

impl Store for Volume {
    fn geometry(&self) -> Geometry {
        let (len, inner) = (self.shared.owners.size.bytes() as u32, self.shared.owners.inner.geometry());
        let unmap_bytes = match &self.shared.place {
            Place::Native(_) => inner.unmap_bytes / self.shared.owners.size.edu_len() as u32 * len,
            Place::Packed(_) => inner.unmap_bytes.checked_next_multiple_of(len).unwrap_or(u32::MAX / len * len),
        };
        Geometry {
            len_bytes: self.shared.quanta * u64::from(len),
            granularity_bytes: len,
            physical_bytes: len,
            unmap_bytes: unmap_bytes.max(len),
        }
    }

    /// The promises of the unit, as far as they hold for a volume: space is freed only where holes are allowed and the
    /// unit zeroes what it frees.
    fn capabilities(&self) -> Capabilities {
        let inner = self.shared.owners.inner.capabilities();
        let holes = !self.shared.read_only && self.shared.owners.seals.makes_holes();
        let is_native = matches!(self.shared.place, Place::Native(_));
        let unmap = holes && inner.unmap && inner.unmap_zeroes;
        Capabilities {
            read_only: self.shared.read_only,
            volatile_cache: inner.volatile_cache,
            unmap,
            unmap_zeroes: unmap,
            anchors: holes && is_native && inner.anchors,
            write_zeroes: holes && inner.write_zeroes,
            memory: is_native && inner.memory,
        }
    }

    fn submit(&self, op: Op, io: &dyn FileIo, done: Completion) {
        if let Err(error) = self.check(&op) {
            return done.complete(Outcome::of(op, Err(error)));
        }
        let range = op.range();
        let holes = self.shared.owners.seals.makes_holes();
        match op {
            Op::Read { into, .. } => self.request(What::Read, range, Some(into), io, done),
            Op::Write { from, fua, .. } => self.request(What::Write { fua }, range, Some(from), io, done),
            Op::WriteZeroes { may_unmap, fua, .. } => {
                let what = if holes { What::Holes { fua, unmap: false, may_unmap } } else { What::Write { fua } };
                self.request(what, range, None, io, done);
            }
            Op::Unmap { .. } if !self.capabilities().unmap => done.complete(Outcome::new(Ok(()), None)),
            Op::Unmap { .. } => {
                let what = What::Holes { fua: false, unmap: true, may_unmap: true };
                self.request(what, range, None, io, done);
            }
            Op::Allocation { len, found, .. } => {
                // What the unit knows is about EDUs, or about ciphertexts whose slots may say otherwise.
                found.push(Run { len, allocated: true });
                done.complete(Outcome::new(Ok(()), None));
            }
            Op::Copy { .. } => {
                let error = io::Error::new(io::ErrorKind::Unsupported, "a volume cannot copy from other stores");
                done.complete(Outcome::new(Err(error.into()), None));
            }
            Op::Flush => self.flush(io, done),
        }
    }
}
