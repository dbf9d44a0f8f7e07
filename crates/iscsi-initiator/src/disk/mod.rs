//! A logical unit that is a disk.

mod blocks;
mod facts;
mod space;

use std::borrow::Cow;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, AtomicU64, Ordering};

use lunette_scsi::Lun;

use crate::limits::{MAX_LUNS, MAX_REQUEST_BYTES};
use crate::{Error, Initiator, Outcome, Repeat, Request, Session, Url};
pub use facts::Facts;

/// A disk on a session. Clones are handles to the same.
///
/// Addresses and lengths are in logical blocks of [`Facts::block_len`] bytes.
#[derive(Clone)]
pub struct Disk(Arc<Inner>);

struct Inner {
    session: Session,
    lun: Lun,
    facts: Facts,
    /// How this disk writes zeroes: what [`space`] has found out.
    zeroes: AtomicU8,
    power_ons: Arc<AtomicU64>,
}

impl Disk {
    /// Asks the logical unit for everything that [`Facts`] tells.
    ///
    /// # Errors
    ///
    /// [`Error::NotADisk`], and whatever keeps the unit from answering. One that is becoming ready is waited for.
    pub async fn open(session: Session, lun: Lun) -> Result<Self, Error> {
        let power_ons = Arc::new(AtomicU64::new(0));
        session.watch(lun, &power_ons);
        let facts = Facts::ask(&session, lun).await?;
        Ok(Self(Arc::new(Inner { session, lun, facts, zeroes: AtomicU8::new(0), power_ons })))
    }

    /// Opens the disk that a URL names, on an event loop of its own; LUN 0 when it names none.
    ///
    /// # Errors
    ///
    /// [`Error::Url`], and those of [`Session::connect`] and [`open`](Self::open).
    pub async fn connect(url: &str) -> Result<Self, Error> {
        let url = Url::parse(url)?;
        let session = url.connect(&Initiator::start()?, url.options()?).await?;
        Self::open(session, url.lun.unwrap_or(Lun::ZERO)).await
    }

    /// What the disk said of itself when it was opened.
    pub fn facts(&self) -> &Facts {
        &self.0.facts
    }

    /// How often the disk has said that it was powered on or reset, since it was opened. When [`Facts::volatile_cache`] is set,
    /// what it had acknowledged before and not flushed may be gone: no later [`flush`](Self::flush) brings it back. Many
    /// targets say it to every new session, for they do not remember the old one.
    pub fn power_ons(&self) -> u64 {
        self.0.power_ons.load(Ordering::Acquire)
    }

    /// The session.
    pub fn session(&self) -> &Session {
        &self.0.session
    }

    /// The logical unit number.
    pub fn lun(&self) -> Lun {
        self.0.lun
    }

    /// A command to this disk that may be sent twice.
    fn request(&self, cdb: [u8; 16]) -> Request {
        Request { repeat: Repeat::Always, ..Request::new(self.0.lun, cdb) }
    }

    /// Checks that blocks are on the disk, and gives their length in bytes.
    fn check(&self, lba: u64, blocks: u64) -> Result<u64, Error> {
        let capacity = &self.0.facts.capacity;
        let fits = lba.checked_add(blocks).is_some_and(|end| end <= capacity.blocks);
        if fits { Ok(blocks * u64::from(capacity.block_len)) } else { Err(self.out_of_range(lba, blocks)) }
    }

    fn out_of_range(&self, lba: u64, blocks: u64) -> Error {
        Error::OutOfRange { lba, blocks, disk_blocks: self.0.facts.capacity.blocks }
    }

    /// The longest request that disk and client take, in blocks.
    pub fn max_transfer_blocks(&self) -> u32 {
        let ours = MAX_REQUEST_BYTES as u32 / self.facts().block_len();
        match self.facts().limits.max_transfer {
            0 => ours,
            theirs => ours.min(theirs),
        }
        .max(1)
    }
}

/// Sends a command that answers with at most `len` bytes.
pub(crate) async fn ask(session: &Session, lun: Lun, cdb: [u8; 16], len: usize) -> Result<Vec<u8>, Error> {
    let data_in = if len > 0 { Some(session.buffer(len)?) } else { None };
    let request = Request { data_in, repeat: Repeat::Always, ..Request::new(lun, cdb) };
    let outcome: Outcome = session.execute(request).await;
    Ok(outcome.into_data()?.map(|data| data.to_vec()).unwrap_or_default())
}

impl Session {
    /// The logical units of the target (REPORT LUNS).
    ///
    /// # Errors
    ///
    /// When the target does not answer with a list, or with more than can be.
    pub async fn luns(&self) -> Result<Vec<Lun>, Error> {
        const FIRST_LEN: u32 = 4096;
        const LONGEST: u32 = MAX_LUNS as u32 * 8 + 8;
        // The list may be longer at the second time; then it has all the room that there is.
        for len in [FIRST_LEN, LONGEST] {
            let data = ask(self, Lun::ZERO, lunette_scsi::requests::report_luns(len), len as usize).await?;
            let bad = |what: Cow<'static, str>| Error::BadAnswer { command: "REPORT LUNS", what };
            let (needed, luns) = lunette_scsi::answers::luns(&data).ok_or(bad("shorter than its header".into()))?;
            if needed <= len {
                let whole = data.len() >= needed as usize;
                let cut = || bad(format!("LUN LIST LENGTH announces {needed} bytes, {} came", data.len()).into());
                return if whole { Ok(luns) } else { Err(cut()) };
            }
        }
        Err(Error::TooMuch { what: "the number of LUNs of the target", limit: MAX_LUNS })
    }
}
