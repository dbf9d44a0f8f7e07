//! The requests of an image: which are under way, which wait, and how each ends, once.

use std::collections::{HashMap, VecDeque};
use std::io;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use lunette_buffer::Buffer;
use lunette_store::{Completion, Outcome, StoreError};

use crate::librbd::Image;
use crate::limits::{MAX_REQUEST_BYTES, MAX_REQUESTS, MAX_ZERO_BYTES};

/// A request as librbd has it.
#[derive(Debug)]
pub(crate) enum Request {
    Read {
        offset: u64,
        into: Buffer,
    },
    Write {
        offset: u64,
        from: Buffer,
    },
    /// Makes bytes read as zero. More than [`MAX_ZERO_BYTES`] are made so in pieces.
    Zero {
        offset: u64,
        len: u64,
        /// Whether the space must stay.
        keep_space: bool,
    },
    Flush,
}

impl Request {
    /// The bytes that librbd is asked for.
    pub(crate) fn range(&self) -> (u64, usize) {
        match self {
            Self::Read { offset, into: buffer } | Self::Write { offset, from: buffer } => (*offset, buffer.len()),
            Self::Zero { offset, len, .. } => (*offset, (*len).min(MAX_ZERO_BYTES) as usize),
            Self::Flush => (0, 0),
        }
    }

    /// Bytes of its buffer.
    fn buffer_bytes(&self) -> usize {
        match self {
            Self::Read { into: buffer, .. } | Self::Write { from: buffer, .. } => buffer.len(),
            Self::Zero { .. } | Self::Flush => 0,
        }
    }

    fn into_buffer(self) -> Option<Buffer> {
        match self {
            Self::Read { into: buffer, .. } | Self::Write { from: buffer, .. } => Some(buffer),
            Self::Zero { .. } | Self::Flush => None,
        }
    }

    /// The rest of the request after a piece has ended well.
    fn rest(&self) -> Option<Self> {
        match *self {
            Self::Zero { offset, len, keep_space } if len > MAX_ZERO_BYTES => {
                Some(Self::Zero { offset: offset + MAX_ZERO_BYTES, len: len - MAX_ZERO_BYTES, keep_space })
            }
            _ => None,
        }
    }

    /// The meaning of librbd's result.
    fn outcome(&self, result: isize) -> Result<(), StoreError> {
        let (offset, len) = self.range();
        match usize::try_from(result) {
            // A read ends early at the end of an image that has become shorter.
            Ok(read) if matches!(self, Self::Read { .. }) && read < len => {
                Err(StoreError::OutOfRange { offset, len: len as u64, store_len: offset + read as u64 })
            }
            Ok(_) => Ok(()),
            Err(_) => Err(store_error(result)),
        }
    }
}

/// A request under way.
pub(crate) struct Job {
    request: Request,
    /// The number of its completion in [`State::under_way`], unless the request was abandoned.
    number: u64,
    image: Arc<Image>,
    flight: Arc<Flight>,
}

impl Job {
    pub(crate) fn request(&self) -> &Request {
        &self.request
    }

    pub(crate) fn request_mut(&mut self) -> &mut Request {
        &mut self.request
    }

    pub(crate) fn image(&self) -> &Image {
        &self.image
    }
}

/// The requests of one image.
pub(crate) struct Flight(Mutex<State>);

struct State {
    /// The image, until the store is closed or shut out. Each request under way has it, too.
    image: Result<Arc<Image>, Gone>,
    requests: usize,
    bytes: usize,
    under_way: HashMap<u64, Completion>,
    last_number: u64,
    waiting: VecDeque<(Request, Completion)>,
}

/// Why an image takes no more requests.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Gone {
    Closed,
    ShutOut,
}

impl Gone {
    fn error(self) -> StoreError {
        match self {
            Self::Closed => StoreError::Io(io::Error::other("the image is closed")),
            Self::ShutOut => shut_out(),
        }
    }
}

impl State {
    fn has_room(&self, request: &Request) -> bool {
        let bytes = request.buffer_bytes();
        self.requests < MAX_REQUESTS && (self.bytes == 0 || self.bytes + bytes <= MAX_REQUEST_BYTES || bytes == 0)
    }

    /// A request begins, under this number.
    fn enter(&mut self, request: &Request, done: Completion) -> u64 {
        self.requests += 1;
        self.bytes += request.buffer_bytes();
        self.last_number += 1;
        self.under_way.insert(self.last_number, done);
        self.last_number
    }
}

impl Flight {
    pub(crate) fn new(image: Arc<Image>) -> Self {
        Self(Mutex::new(State {
            image: Ok(image),
            requests: 0,
            bytes: 0,
            under_way: HashMap::new(),
            last_number: 0,
            waiting: VecDeque::new(),
        }))
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The image, as long as it takes requests.
    pub(crate) fn image(&self) -> Result<Arc<Image>, StoreError> {
        self.lock().image.as_ref().map(Arc::clone).map_err(|gone| gone.error())
    }

    /// Whether the cluster takes nothing from this client any more.
    pub(crate) fn is_shut_out(&self) -> bool {
        matches!(self.lock().image, Err(Gone::ShutOut))
    }

    /// Begins a request now or when there is room for it.
    pub(crate) fn submit(self: &Arc<Self>, request: Request, done: Completion) {
        let mut state = self.lock();
        let image = match &state.image {
            Ok(image) => Arc::clone(image),
            Err(gone) => {
                let error = gone.error();
                drop(state);
                return done.complete(Outcome::new(Err(error), request.into_buffer()));
            }
        };
        if !state.waiting.is_empty() || !state.has_room(&request) {
            return state.waiting.push_back((request, done));
        }
        let number = state.enter(&request, done);
        drop(state);
        run(VecDeque::from([Box::new(Job { request, number, image, flight: Arc::clone(self) })]));
    }

    /// Takes no more requests. Those that wait end, those under way go on. The image is closed after the last one.
    pub(crate) fn close(&self) {
        self.end(Gone::Closed);
    }

    /// The cluster takes nothing from this client any more. Requests that wait end, and later ones fail.
    pub(crate) fn shut_out(&self) {
        self.end(Gone::ShutOut);
    }

    fn end(&self, gone: Gone) {
        let mut state = self.lock();
        // An image that was shut out stays so; after a close, the reason makes no difference.
        let image = state.image.as_ref().is_ok().then(|| std::mem::replace(&mut state.image, Err(gone)));
        let waiting = std::mem::take(&mut state.waiting);
        drop(state);
        if image.is_some() && gone == Gone::ShutOut {
            tracing::error!("this client is on the blocklist of its Ceph cluster, and has lost an image");
        }
        drop(image);
        for (request, done) in waiting {
            done.complete(Outcome::new(Err(gone.error()), request.into_buffer()));
        }
    }

    /// Ends the requests under way, of whose end librbd tells nothing. Only for a client on the blocklist, of which
    /// nothing can land after the next owner's first request. librbd keeps their buffers, and the image, until it ends
    /// them itself.
    pub(crate) fn abandon(&self) {
        self.shut_out();
        let under_way = std::mem::take(&mut self.lock().under_way);
        for done in under_way.into_values() {
            done.complete(Outcome::new(Err(shut_out()), None));
        }
    }

    /// A request has ended: its completion, unless it was abandoned. Those that have room now are under way.
    fn leave(self: &Arc<Self>, number: u64, bytes: usize) -> (Option<Completion>, VecDeque<Box<Job>>) {
        let mut state = self.lock();
        state.requests -= 1;
        state.bytes -= bytes;
        let done = state.under_way.remove(&number);
        let mut begun = VecDeque::new();
        while let (Ok(image), Some((request, _))) = (&state.image, state.waiting.front()) {
            if !state.has_room(request) {
                break;
            }
            let image = Arc::clone(image);
            let Some((request, done)) = state.waiting.pop_front() else { break };
            let number = state.enter(&request, done);
            begun.push_back(Box::new(Job { request, number, image, flight: Arc::clone(self) }));
        }
        (done, begun)
    }
}

/// Ends a job that librbd has ended with `result`, and begins what there is room for now.
pub(crate) fn ended(job: Box<Job>, result: isize) {
    run(finish(job, result));
}

/// Gives jobs to librbd. One that it refuses ends, which makes room for others.
fn run(mut jobs: VecDeque<Box<Job>>) {
    while let Some(job) = jobs.pop_front() {
        let image = Arc::clone(&job.image);
        if let Err((job, code)) = image.start(job) {
            jobs.extend(finish(job, code));
        }
    }
}

/// The continuation of a job's end: its next piece, or the jobs that waited for room.
fn finish(mut job: Box<Job>, result: isize) -> VecDeque<Box<Job>> {
    let outcome = job.request.outcome(result);
    if let (Ok(()), Some(rest)) = (&outcome, job.request.rest()) {
        job.request = rest;
        return VecDeque::from([job]);
    }
    let Job { request, number, image, flight } = *job;
    if matches!(outcome, Err(StoreError::ShutOut(_))) {
        flight.shut_out();
    }
    let (done, begun) = flight.leave(number, request.buffer_bytes());
    if let Some(done) = done {
        done.complete(Outcome::new(outcome, request.into_buffer()));
    }
    drop(image);
    begun
}

/// The error behind a negative result of librbd.
pub(crate) fn store_error(result: isize) -> StoreError {
    let code = i32::try_from(result.unsigned_abs()).unwrap_or(libc::EIO);
    match code {
        // The pool or the cluster is full, or the pool's quota is used up.
        libc::ENOSPC | libc::EDQUOT => StoreError::NoSpace,
        libc::EROFS => StoreError::ReadOnly,
        // Ceph's name for it is EBLOCKLISTED.
        libc::ESHUTDOWN => shut_out(),
        _ => StoreError::Io(io::Error::from_raw_os_error(code)),
    }
}

fn shut_out() -> StoreError {
    StoreError::ShutOut("this client is on the cluster's blocklist; open the image again".into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_are_what_they_mean() {
        let error = |code: i32| store_error(-(code as isize));
        assert!(matches!(error(libc::ENOSPC), StoreError::NoSpace));
        assert!(matches!(error(libc::EDQUOT), StoreError::NoSpace));
        assert!(matches!(error(libc::EROFS), StoreError::ReadOnly));
        assert!(matches!(error(libc::ESHUTDOWN), StoreError::ShutOut(_)));
        for code in [libc::EIO, libc::ETIMEDOUT, libc::EINVAL, libc::ENOENT] {
            assert!(matches!(error(code), StoreError::Io(error) if error.raw_os_error() == Some(code)));
        }
        assert!(matches!(store_error(isize::MIN), StoreError::Io(_)));
    }

    #[test]
    fn a_long_request_for_zeroes_is_made_in_pieces() {
        let zero = |offset, len| Request::Zero { offset, len, keep_space: true };
        let mut request = zero(4096, 2 * MAX_ZERO_BYTES + 512);
        let mut pieces = vec![request.range()];
        while let Some(rest) = request.rest() {
            pieces.push(rest.range());
            request = rest;
        }
        let whole = MAX_ZERO_BYTES as usize;
        let expected = [(4096, whole), (4096 + MAX_ZERO_BYTES, whole), (4096 + 2 * MAX_ZERO_BYTES, 512)];
        assert_eq!(pieces, expected);
        assert!(zero(0, MAX_ZERO_BYTES).rest().is_none());
    }
}
