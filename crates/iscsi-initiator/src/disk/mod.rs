//! A logical unit that is a disk.

mod blocks;
mod facts;
pub(crate) mod query;
mod space;

use std::borrow::Cow;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, AtomicU64, Ordering};

use lunette_scsi::Lun;

use crate::limits::{MAX_LUNS, MAX_REQUEST_BYTES};
use crate::paths::multipath::Multipath;
use crate::pending::Slot;
use crate::{Completion, Error, Initiator, Options, PathStatus, Pending, Repeat, Request, Session, Sink, Url};
pub use facts::Facts;
use query::ask;

/// A disk on a session. Clones are handles to the same.
///
/// Addresses and lengths are in logical blocks of [`Facts::block_len`] bytes.
#[derive(Clone)]
pub struct Disk(Arc<Inner>);

struct Inner {
    session: Session,
    /// All paths, if the disk was opened with several.
    paths: Option<Arc<Multipath>>,
    lun: Lun,
    facts: Facts,
    /// The index of the way to write zeroes that this disk supports, as [`space`] has found out.
    zeroes: AtomicU8,
    power_ons: Arc<AtomicU64>,
}

impl Disk {
    /// Opens the disk: asks the logical unit for its [`Facts`]. A unit that is becoming ready is waited for.
    ///
    /// # Errors
    ///
    /// [`Error::NotADisk`], and the errors of the commands.
    pub async fn open(session: Session, lun: Lun) -> Result<Self, Error> {
        let power_ons = Arc::new(AtomicU64::new(0));
        session.watch(lun, &power_ons);
        let facts = Facts::ask(&session, lun).await?;
        Ok(Self(Arc::new(Inner { session, paths: None, lun, facts, zeroes: AtomicU8::new(0), power_ons })))
    }

    /// Opens the disk that a URL names, over as many paths as it asks for ([`Url::paths`]); LUN 0 when it names none.
    ///
    /// # Errors
    ///
    /// [`Error::Url`], those of [`Session::connect`] and [`open`](Self::open); with several paths [`Error::OtherDisk`]
    /// and [`Error::TooFewPortals`]. One path that can be made is enough.
    pub async fn of_url(initiator: &Initiator, url: &Url, options: Options) -> Result<Self, Error> {
        let lun = url.lun.unwrap_or(Lun::ZERO);
        let Some(paths) = &url.paths else {
            return Self::open(url.connect(initiator, options).await?, lun).await;
        };
        let multipath = Multipath::open(initiator, url, paths, options).await?;
        let (session, facts) = ask_over_any(&multipath, lun).await?;
        let power_ons = Arc::default();
        Ok(Self(Arc::new(Inner { session, paths: Some(multipath), lun, facts, zeroes: AtomicU8::new(0), power_ons })))
    }

    /// Opens the disk that a URL names, on an event loop of its own; LUN 0 when it names none.
    ///
    /// # Errors
    ///
    /// [`Error::Url`], and those of [`Session::connect`] and [`open`](Self::open).
    pub async fn connect(url: &str) -> Result<Self, Error> {
        let url = Url::parse(url)?;
        Self::of_url(&Initiator::start()?, &url, url.options()?).await
    }

    /// Identity, capacity and features of the disk, as of when it was opened.
    pub fn facts(&self) -> &Facts {
        &self.0.facts
    }

    /// The number of times that the disk has reported a power-on or reset since it was opened. If
    /// [`Facts::volatile_cache`] is set, writes that it acknowledged before and had not flushed may be lost: no later
    /// [`flush`](Self::flush) brings them back. Many targets report a power-on to every new session, because they do
    /// not remember the old one.
    pub fn power_ons(&self) -> u64 {
        match &self.0.paths {
            None => self.0.power_ons.load(Ordering::Acquire),
            Some(paths) => paths.power_ons(),
        }
    }

    /// The session of the disk, for buffers and for what was negotiated. Of a disk with several paths it is the one
    /// that it was opened with, and a command that is sent by it takes no other path.
    pub fn session(&self) -> &Session {
        &self.0.session
    }

    /// Sends a command over the best path; `completion` is told of its end. See [`Session::submit`].
    #[inline]
    pub fn submit(&self, request: Request, completion: Completion) {
        match &self.0.paths {
            None => self.0.session.submit(request, completion),
            Some(paths) => paths.submit(request, completion),
        }
    }

    /// Sends a command over the best path, and gives a future of its end. See [`Session::execute`]. With several paths
    /// a command whose future is dropped runs to its end.
    #[inline]
    pub fn execute(&self, request: Request) -> Pending {
        match &self.0.paths {
            None => self.0.session.execute(request),
            Some(paths) => {
                let slot = Slot::new();
                let sink: Arc<dyn Sink> = Arc::clone(&slot) as _;
                paths.submit(request, Completion::new(sink, 0));
                Pending::without_task(self.0.session.clone(), slot)
            }
        }
    }

    /// The paths of the disk as they are at the moment. Empty unless it was opened with several.
    pub fn paths(&self) -> Vec<PathStatus> {
        self.0.paths.as_ref().map(|paths| paths.status()).unwrap_or_default()
    }

    /// The logical unit number of the disk.
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

    /// The length of the longest request that disk and client support, in blocks.
    pub fn max_transfer_blocks(&self) -> u32 {
        let ours = MAX_REQUEST_BYTES as u32 / self.facts().block_len();
        match self.facts().limits.max_transfer {
            0 => ours,
            theirs => ours.min(theirs),
        }
        .max(1)
    }
}

/// Asks for the facts over one path after another: the best path may be lost after its login and before its last
/// answer.
async fn ask_over_any(paths: &Multipath, lun: Lun) -> Result<(Session, Facts), Error> {
    let mut others = paths.status().len();
    loop {
        let session = paths.session().ok_or(Error::Closed)?;
        match Facts::ask(&session, lun).await {
            Err(Error::Lost { .. } | Error::Session { .. }) if others > 0 => others -= 1,
            result => return result.map(|facts| (session, facts)),
        }
    }
}

impl Disk {
    /// Sends a command that may run twice over the best path, and gives its answer of at most `len` bytes.
    async fn ask(&self, cdb: [u8; 16], len: usize) -> Result<Vec<u8>, Error> {
        let data_in = Some(self.session().buffer(len)?);
        let outcome = self.execute(Request { data_in, ..self.request(cdb) }).await;
        Ok(outcome.into_data()?.map(|data| data.to_vec()).unwrap_or_default())
    }
}

impl Session {
    /// The logical units of the target (REPORT LUNS).
    ///
    /// # Errors
    ///
    /// [`Error::BadAnswer`] if the target does not send a whole list, [`Error::TooMuch`] if the list is too long.
    pub async fn luns(&self) -> Result<Vec<Lun>, Error> {
        const FIRST_LEN: u32 = 4096;
        const LONGEST: u32 = MAX_LUNS as u32 * 8 + 8;
        // The second attempt has room for the longest list that is accepted.
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
