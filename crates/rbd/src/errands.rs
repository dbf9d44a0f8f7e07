//! The thread of a store for calls that wait for the cluster.

use std::io;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender};
use std::sync::{Arc, Weak};
use std::thread;
use std::time::{Duration, Instant};

use lunette_store::{AllocationMap, Completion, Outcome, Run, StoreError};

use crate::flight::{Flight, store_error};
use crate::length::Length;
use crate::librbd::Image;
use crate::limits::MAX_MAP_BYTES;

/// The work for the thread.
pub(crate) enum Errand {
    /// Look at the image, which may have changed.
    Look,
    /// Find what has space.
    Map(MapRequest),
}

/// A request for the allocation of a range.
pub(crate) struct MapRequest {
    pub(crate) image: Arc<Image>,
    pub(crate) whole_objects: bool,
    pub(crate) range: (u64, u64),
    pub(crate) found: Arc<AllocationMap>,
    pub(crate) done: Completion,
}

/// Starts the thread, which looks at the image every `look_interval`, too. It ends when no sender is left.
pub(crate) fn start(
    errands: Receiver<Errand>,
    flight: Weak<Flight>,
    length: Arc<Length>,
    look_interval: Duration,
) -> io::Result<()> {
    let run = move || {
        let mut next_look = Instant::now() + look_interval;
        loop {
            // Before each errand: errands that come without a pause do not put it off.
            if Instant::now() >= next_look {
                look(&flight, &length);
                next_look = Instant::now() + look_interval;
            }
            match errands.recv_timeout(next_look.saturating_duration_since(Instant::now())) {
                Ok(Errand::Map(request)) => map(request),
                Ok(Errand::Look) => next_look = Instant::now(),
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => break,
            }
        }
    };
    thread::Builder::new().name("lunette-rbd".into()).spawn(run).map(drop)
}

/// Asks the thread to look at the image.
pub(crate) fn look_soon(errands: &Sender<Errand>) {
    // A store that is closing has no thread any more, and no use for its length.
    let _ = errands.send(Errand::Look);
}

fn look(flight: &Weak<Flight>, length: &Length) {
    let Some(flight) = flight.upgrade() else { return };
    if flight.is_shut_out() {
        // A request has told of it. librbd (16.2) may never end the others.
        return flight.abandon();
    }
    let Ok(image) = flight.image() else { return };
    if image.is_shut_out() {
        // librbd (16.2) may never end a request that has come in the moment of the blocklisting.
        return flight.abandon();
    }
    match image.len_bytes() {
        Ok(len_bytes) => length.found(len_bytes),
        Err(error) => tracing::warn!(%error, "an image of Ceph has changed, and its length cannot be told"),
    }
}

fn map(request: MapRequest) {
    let MapRequest { image, whole_objects, range, found, done } = request;
    let (runs, covered) = Runs::of(range, &found);
    let result = runs.collect(|run| image.extents(covered.0..covered.0 + covered.1, whole_objects, run));
    drop(image);
    done.complete(Outcome::new(result, None));
}

/// Runs of a range, made from its extents with space.
struct Runs<'a> {
    /// The end of the runs so far.
    next: u64,
    end: u64,
    found: &'a AllocationMap,
}

impl<'a> Runs<'a> {
    /// The runs of what one question covers of a range, which it gives, too.
    fn of((offset, len): (u64, u64), found: &'a AllocationMap) -> (Self, (u64, u64)) {
        let len = len.min(MAX_MAP_BYTES);
        (Self { next: offset, end: offset + len, found }, (offset, len))
    }

    /// Makes the runs of what `extents` gives, until there is no room for more.
    fn collect(
        mut self,
        extents: impl FnOnce(&mut (dyn FnMut(u64, u64) -> bool + Send)) -> io::Result<()>,
    ) -> Result<(), StoreError> {
        let mut has_room = true;
        extents(&mut |offset, len| {
            has_room = self.add(offset, len);
            has_room
        })
        .map_err(|error| store_error(-(error.raw_os_error().unwrap_or(libc::EIO) as isize)))?;
        if has_room {
            self.push(self.end, false);
        }
        Ok(())
    }

    /// Adds an extent with space, and what lies before it. False when there is no room.
    fn add(&mut self, offset: u64, len: u64) -> bool {
        let start = offset.clamp(self.next, self.end);
        let end = offset.saturating_add(len).clamp(start, self.end);
        self.push(start, false) && self.push(end, true)
    }

    fn push(&mut self, end: u64, allocated: bool) -> bool {
        let pushed = self.found.push(Run { len: end - self.next, allocated });
        if pushed {
            self.next = end;
        }
        pushed
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn collect(range: (u64, u64), extents: &[(u64, u64)]) -> Vec<Run> {
        let found = AllocationMap::default();
        let (runs, _) = Runs::of(range, &found);
        let give = |run: &mut (dyn FnMut(u64, u64) -> bool + Send)| {
            let _ = extents.iter().all(|(offset, len)| run(*offset, *len));
            Ok(())
        };
        runs.collect(give).unwrap();
        found.take()
    }

    fn run(len: u64, allocated: bool) -> Run {
        Run { len, allocated }
    }

    #[test]
    fn runs_cover_the_range_and_no_more() {
        assert_eq!(collect((100, 50), &[]), [run(50, false)]);
        assert_eq!(collect((100, 50), &[(0, 1000)]), [run(50, true)]);
        let extents = [(90, 20), (110, 5), (120, 1), (140, 100)];
        let expected = [run(15, true), run(5, false), run(1, true), run(19, false), run(10, true)];
        assert_eq!(collect((100, 50), &extents), expected);
        assert_eq!(collect((100, 0), &[(0, 1000)]), []);
    }

    #[test]
    fn runs_end_where_there_is_no_room_for_more() {
        let extents: Vec<_> = (0..1000).map(|at| (at * 10, 5)).collect();
        let runs = collect((0, 10_000), &extents);
        assert_eq!(runs.len(), AllocationMap::MAX_RUNS);
        assert_eq!(runs.iter().map(|run| run.len).sum::<u64>(), 5 * AllocationMap::MAX_RUNS as u64);
    }

    #[test]
    fn a_question_covers_no_more_than_it_may() {
        let found = AllocationMap::default();
        assert_eq!(Runs::of((512, u64::MAX - 512), &found).1, (512, MAX_MAP_BYTES));
        assert_eq!(collect((512, MAX_MAP_BYTES + 1), &[(0, 1024)]), [run(512, true), run(MAX_MAP_BYTES - 512, false)]);
    }

    #[test]
    fn an_error_of_the_cluster_is_the_requests_own() {
        let found = AllocationMap::default();
        let (runs, _) = Runs::of((0, 10), &found);
        let error = runs.collect(|_| Err(io::Error::from_raw_os_error(libc::ESHUTDOWN))).unwrap_err();
        assert!(matches!(error, StoreError::ShutOut(_)));
    }
}
