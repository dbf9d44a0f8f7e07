//! The reasons to check files: news of the system on one of them, a failure of a store, or time.
//!
//! The system tells of programs that have written a file and close it (as truncate(1) does), of renames and of links
//! that come or go. It could tell of each write, too, but the server's own writes would wake the thread then. So a
//! change by a program that keeps the file open, or by truncate(2), is found after [`INTERVAL`] at the latest.

use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::sync::OnceLock;
use std::thread;
use std::time::Duration;

use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec, eventfd, poll};
use rustix::fs::inotify::{self, CreateFlags, WatchFlags};

/// The longest time between two looks.
const INTERVAL: Duration = Duration::from_secs(1);

/// The shortest time between two looks.
const BURST: Duration = Duration::from_millis(10);

const INTERVAL_TIMESPEC: Timespec = Timespec { tv_sec: INTERVAL.as_secs().cast_signed(), tv_nsec: 0 };

/// The descriptors of the watch, made when they are needed first.
pub(super) struct Watch(OnceLock<Option<Descriptors>>);

struct Descriptors {
    inotify: OwnedFd,
    wake: OwnedFd,
}

impl Watch {
    pub(super) const fn new() -> Self {
        Self(OnceLock::new())
    }

    /// Makes the descriptors, so that a server that is ready opens no more.
    pub(super) fn open(&self) {
        self.descriptors();
    }

    /// Without descriptors, only time passes.
    fn descriptors(&self) -> Option<&Descriptors> {
        let open = || -> io::Result<Descriptors> {
            Ok(Descriptors {
                inotify: inotify::init(CreateFlags::CLOEXEC | CreateFlags::NONBLOCK)?,
                wake: eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?,
            })
        };
        let opened =
            || open().inspect_err(|error| tracing::warn!(%error, "files are looked at once a second only")).ok();
        self.0.get_or_init(opened).as_ref()
    }

    /// Watches an open file. `None` where the system cannot, for example because there are too many watches.
    pub(super) fn add(&self, file: &impl AsFd) -> Option<i32> {
        let flags = WatchFlags::CLOSE_WRITE | WatchFlags::ATTRIB | WatchFlags::MOVE_SELF;
        // The file itself, whatever has its path now.
        let path = format!("/proc/self/fd/{}", file.as_fd().as_raw_fd());
        inotify::add_watch(&self.descriptors()?.inotify, path, flags).ok()
    }

    /// Ends a watch.
    pub(super) fn remove(&self, watch: i32) {
        if let Some(descriptors) = self.descriptors() {
            // The system ends it by itself when the file is gone.
            let _ = inotify::remove_watch(&descriptors.inotify, watch);
        }
    }

    /// Lets the thread look.
    pub(super) fn wake(&self) {
        if let Some(descriptors) = self.descriptors() {
            // The counter is full only when the thread is woken already.
            let _ = rustix::io::write(&descriptors.wake, &1_u64.to_ne_bytes());
        }
    }

    /// Waits for a reason to look.
    pub(super) fn wait(&self) {
        let Some(Descriptors { inotify, wake }) = self.descriptors() else { return thread::sleep(INTERVAL) };
        // A program that writes a file again and again costs no more than this.
        thread::sleep(BURST);
        let mut sources = [PollFd::new(inotify, PollFlags::IN), PollFd::new(wake, PollFlags::IN)];
        if matches!(poll(&mut sources, Some(&INTERVAL_TIMESPEC)), Ok(0)) {
            return;
        }
        let _ = rustix::io::read(wake, &mut [0; 8]);
        let mut buffer = [MaybeUninit::uninit(); 4096];
        let mut news = inotify::Reader::new(inotify, &mut buffer);
        while news.next().is_ok() {}
    }
}
