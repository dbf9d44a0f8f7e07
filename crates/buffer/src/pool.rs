//! The pool, and the two kinds of handle on its memory.

use std::fmt;
use std::ops::{Deref, DerefMut, Range};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use crate::loan::{Entries, Ledger, Loan, Run};

/// Buffers start on a multiple of this many bytes, as direct I/O wants it.
pub const PAGE_LEN: usize = 4096;

/// The longest buffer that a pool gives out: the largest single transfer that a device accepts.
pub const MAX_BUFFER_LEN: usize = 16 << 20;

/// Memory that lies unused in the free lists is always kept up to this many bytes. More only a pool keeps that is
/// [trimmed](Pool::trimmed).
const MAX_IDLE_BYTES: usize = 8 << 20;

/// Lists of loans that are kept to be used again.
const MAX_IDLE_LISTS: usize = 256;

const CLASSES: usize = (MAX_BUFFER_LEN / PAGE_LEN).ilog2() as usize + 1;

/// A source of buffers with a bound on the bytes that are out at one time.
///
/// Clones share the budget and the memory.
#[derive(Clone)]
pub struct Pool(Arc<Shared>);

struct Shared {
    budget_bytes: usize,
    used_bytes: AtomicUsize,
    /// Unused memory is kept up to the budget, for somebody trims it.
    is_trimmed: bool,
    /// More is kept than always.
    has_surplus: AtomicBool,
    /// Somebody waits for bytes to come back.
    awaited: AtomicBool,
    when_back: OnceLock<Box<dyn Fn() + Send + Sync>>,
    idle: Mutex<Idle>,
}

#[derive(Default)]
struct Idle {
    bytes: usize,
    by_class: [Vec<Arc<Memory>>; CLASSES],
    /// How many of each class were never taken since the last [`Pool::trim`].
    unused: [usize; CLASSES],
    lists: Vec<Arc<Entries>>,
}

impl Idle {
    fn pop(&mut self, class: usize) -> Option<Arc<Memory>> {
        let memory = self.by_class[class].pop()?;
        self.bytes -= class_len(class);
        self.unused[class] = self.unused[class].min(self.by_class[class].len());
        Some(memory)
    }

    /// Gives memory of other classes than this back to the system, the longest first, until no more than `most` bytes are left,
    /// or none of it is.
    fn shrink(&mut self, class: usize, most: usize) {
        let mut others = (0..CLASSES).rev().filter(|other| *other != class);
        while self.bytes > most
            && let Some(other) = others.next()
        {
            while self.bytes > most && self.pop(other).is_some() {}
        }
    }
}

/// One aligned piece of memory. It belongs to a handle or lies in the free list of its class.
struct Memory {
    bytes: Vec<u8>,
    start: usize,
    class: usize,
    /// Set while a handle owns the memory. Idle memory has none, or pool and memory would keep each other alive.
    pool: Option<Arc<Shared>>,
}

impl Memory {
    fn new(class: usize) -> Self {
        let bytes = vec![0; class_len(class) + PAGE_LEN];
        let start = bytes.as_ptr().align_offset(PAGE_LEN);
        Self { bytes, start, class, pool: None }
    }
}

impl Drop for Memory {
    fn drop(&mut self) {
        // Reached with a pool only when two handles of the same memory were dropped at the same moment on two cores and
        // neither saw itself as the last. The memory is freed; its share of the budget must return.
        if let Some(pool) = self.pool.take() {
            pool.uncount(class_len(self.class));
        }
    }
}

fn class_of(len: usize) -> usize {
    len.div_ceil(PAGE_LEN).max(1).next_power_of_two().ilog2() as usize
}

fn class_len(class: usize) -> usize {
    PAGE_LEN << class
}

impl Pool {
    /// A pool whose buffers never hold more than `budget_bytes` together.
    pub fn new(budget_bytes: usize) -> Self {
        Self::with(budget_bytes, false)
    }

    /// The same, which keeps all memory that it has needed, and does not allocate again what it had before. With what is out it
    /// is never more than the budget, except for 8 MiB that are always kept. Who has it calls [`trim`](Self::trim) from time to
    /// time, as a [`Trimmer`](crate::Trimmer) says.
    pub fn trimmed(budget_bytes: usize) -> Self {
        Self::with(budget_bytes, true)
    }

    fn with(budget_bytes: usize, is_trimmed: bool) -> Self {
        Self(Arc::new(Shared {
            budget_bytes,
            used_bytes: AtomicUsize::new(0),
            is_trimmed,
            has_surplus: AtomicBool::new(false),
            awaited: AtomicBool::new(false),
            when_back: OnceLock::new(),
            idle: Mutex::new(Idle::default()),
        }))
    }

    /// Has `call` called when bytes come back that were [awaited](Self::await_return), on the thread that gives them back. Only
    /// the first call to this has an effect.
    pub fn when_back(&self, call: impl Fn() + Send + Sync + 'static) {
        let _ = self.0.when_back.set(Box::new(call));
    }

    /// Asks to be [called](Self::when_back) once, when the next bytes come back. Who is short of bytes tries again after this: what
    /// came back before is there then.
    pub fn await_return(&self) {
        // In one order with the counts of bytes: either these come too late to be seen, or this is seen.
        self.0.awaited.swap(true, Ordering::SeqCst);
    }

    /// A buffer of `len` bytes, or `None` when the budget does not allow it now or `len` exceeds [`MAX_BUFFER_LEN`].
    ///
    /// The bytes may be those of an earlier user: the caller overwrites all of them before it shows any to a peer.
    pub fn take(&self, len: usize) -> Option<Buffer> {
        let class = self.count(len)?;
        Some(Buffer::new(self.memory(class), len))
    }

    /// The same, but the buffer gets its memory when its bytes are first looked at. Until then it only counts against the
    /// budget.
    ///
    /// For data that comes later: the memory is then the one that was given back last, which the processor's cache still
    /// holds. Reading 256 KiB at a time into 32 buffers by turns, every byte goes out to memory and back; into buffers that
    /// are given back as soon as they are full, nearly none does. And for data that may be [lent](Buffer::lend).
    pub fn reserve(&self, len: usize) -> Option<Buffer> {
        let class = self.count(len)?;
        let (class, len) = (class as u8, len as u32);
        Some(Buffer { handle: OnceLock::new(), reserved: Some(self.clone()), lent: Ledger::default(), class, len })
    }

    /// Counts a buffer of `len` bytes against the budget, and gives its class.
    fn count(&self, len: usize) -> Option<usize> {
        if len > MAX_BUFFER_LEN {
            return None;
        }
        let class = class_of(len);
        self.count_bytes(class_len(class), self.0.budget_bytes).then_some(class)
    }

    /// Counts bytes if no more than `most` are counted then.
    pub(crate) fn count_bytes(&self, bytes: usize, most: usize) -> bool {
        let fits = |used: usize| used.checked_add(bytes).filter(|sum| *sum <= most);
        self.0.used_bytes.fetch_update(Ordering::SeqCst, Ordering::SeqCst, fits).is_ok()
    }

    pub(crate) fn uncount_bytes(&self, bytes: usize) {
        self.0.uncount(bytes);
    }

    /// Memory whose bytes are already counted.
    fn memory(&self, class: usize) -> Handle {
        let mut memory = self.0.pop_idle(class).unwrap_or_else(|| Arc::new(Memory::new(class)));
        Arc::get_mut(&mut memory).expect("idle memory has one owner").pool = Some(Arc::clone(&self.0));
        Handle(Some(memory))
    }

    /// Bytes that are out, counted in whole size classes.
    pub fn used_bytes(&self) -> usize {
        self.0.used_bytes.load(Ordering::SeqCst)
    }

    /// The bound given at creation.
    pub fn budget_bytes(&self) -> usize {
        self.0.budget_bytes
    }

    /// Whether there may be something to [trim](Self::trim).
    pub fn has_surplus(&self) -> bool {
        self.0.has_surplus.load(Ordering::Relaxed)
    }

    /// Gives memory back to the system that nobody has taken since the last call, except for what is always kept.
    pub fn trim(&self) {
        let mut freed = Vec::new();
        let mut idle = self.0.idle();
        for class in (0..CLASSES).rev() {
            for _ in 0..idle.unused[class] {
                if idle.bytes > MAX_IDLE_BYTES {
                    freed.extend(idle.pop(class));
                }
            }
            idle.unused[class] = idle.by_class[class].len();
        }
        self.0.has_surplus.store(idle.bytes > MAX_IDLE_BYTES, Ordering::Relaxed);
        // It may take long: others need not wait for that.
        drop(idle);
    }

    /// An empty list for a loan, if one is kept.
    pub(crate) fn idle_entries(&self) -> Option<Arc<Entries>> {
        self.0.idle().lists.pop()
    }

    /// Keeps an empty list for another loan.
    pub(crate) fn keep_entries(&self, entries: Arc<Entries>) {
        let mut idle = self.0.idle();
        if idle.lists.len() < MAX_IDLE_LISTS {
            idle.lists.push(entries);
        }
    }
}

impl Shared {
    fn idle(&self) -> MutexGuard<'_, Idle> {
        self.idle.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// How much memory may lie unused while so many bytes are out.
    fn max_idle_bytes(&self, used_bytes: usize) -> usize {
        if self.is_trimmed { self.budget_bytes.saturating_sub(used_bytes).max(MAX_IDLE_BYTES) } else { MAX_IDLE_BYTES }
    }

    /// Unused memory of the class, whose bytes are counted. When there is none, that of other classes makes room.
    fn pop_idle(&self, class: usize) -> Option<Arc<Memory>> {
        let mut idle = self.idle();
        let memory = idle.pop(class);
        if memory.is_none() {
            idle.shrink(class, self.max_idle_bytes(self.used_bytes.load(Ordering::Relaxed)));
        }
        memory
    }

    fn give_back(&self, memory: Arc<Memory>) {
        let (class, len) = (memory.class, class_len(memory.class));
        {
            let mut idle = self.idle();
            let most = self.max_idle_bytes(self.used_bytes.load(Ordering::Relaxed).saturating_sub(len));
            if let Some(most_before) = most.checked_sub(len) {
                // What is in use now is more likely to be asked for again than memory of other lengths.
                idle.shrink(class, most_before);
                if idle.bytes <= most_before {
                    idle.bytes += len;
                    idle.by_class[class].push(memory);
                }
            }
            if idle.bytes > MAX_IDLE_BYTES {
                self.has_surplus.store(true, Ordering::Relaxed);
            }
        }
        self.uncount(len);
    }

    /// Bytes have come back.
    fn uncount(&self, bytes: usize) {
        self.used_bytes.fetch_sub(bytes, Ordering::SeqCst);
        if self.awaited.load(Ordering::SeqCst)
            && self.awaited.swap(false, Ordering::SeqCst)
            && let Some(call) = self.when_back.get()
        {
            call();
        }
    }
}

impl fmt::Debug for Pool {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Pool")
            .field("used_bytes", &self.used_bytes())
            .field("budget_bytes", &self.0.budget_bytes)
            .finish()
    }
}

/// A reference on pooled memory that brings it home when it is the last one.
#[derive(Clone)]
struct Handle(Option<Arc<Memory>>);

impl Handle {
    fn memory(&self) -> &Arc<Memory> {
        self.0.as_ref().expect("a handle has memory until it is dropped")
    }

    /// Copies what was lent.
    #[cold]
    fn fill(&mut self, lent: &Ledger) {
        let memory = self.0.as_mut().and_then(Arc::get_mut).expect("new memory has one owner");
        let mut rest = &mut memory.bytes[memory.start..];
        for run in Loan::new(lent.clone()).runs() {
            let (now, later) = rest.split_at_mut(run.len());
            now.copy_from_slice(run);
            rest = later;
        }
    }
}

impl Drop for Handle {
    fn drop(&mut self) {
        let Some(mut memory) = self.0.take() else { return };
        if let Some(pool) = Arc::get_mut(&mut memory).and_then(|last| last.pool.take()) {
            pool.give_back(memory);
        }
    }
}

/// Writable bytes with one owner.
///
/// It is moved often, so it is small.
pub struct Buffer {
    handle: OnceLock<Handle>,
    /// Where the handle comes from; none where it was there from the start.
    reserved: Option<Pool>,
    /// What the bytes are until there is a handle.
    lent: Ledger,
    class: u8,
    len: u32,
}

impl Buffer {
    /// One that has its memory.
    fn new(handle: Handle, len: usize) -> Self {
        let class = handle.memory().class as u8;
        Self { handle: OnceLock::from(handle), reserved: None, lent: Ledger::default(), class, len: len as u32 }
    }

    /// How many bytes. Does not look at them (see [`Pool::reserve`]).
    pub fn len(&self) -> usize {
        self.len as usize
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Shortens the buffer to `len` bytes; longer values change nothing.
    pub fn truncate(&mut self, len: usize) {
        self.len = self.len.min(u32::try_from(len).unwrap_or(u32::MAX));
    }

    /// Changes the length to `len` bytes, if the buffer's size class has room for as many: after [`Self::truncate`] it has. The
    /// bytes that come anew may be those of an earlier user. False, and no change, when there is no room.
    pub fn resize(&mut self, len: usize) -> bool {
        let fits = len <= self.class_len();
        if fits {
            self.len = len as u32;
        }
        fits
    }

    /// Lets `runs`, as many bytes as the buffer has, be its content without a copy, for whoever asks for it with
    /// [`into_loan`](Self::into_loan); to others the buffer is as if they had been copied, which happens then.
    ///
    /// False, and no change, when the buffer has memory already (see [`Pool::reserve`]), when there are more than
    /// [`MAX_LOAN_RUNS`](crate::MAX_LOAN_RUNS), or when they keep more memory than the buffer has counted, which counts too,
    /// and half of the budget would be used up.
    ///
    /// # Panics
    ///
    /// When they are more or fewer bytes.
    pub fn lend(&mut self, runs: impl Iterator<Item = Run>) -> bool {
        let Some(pool) = self.reserved.as_ref().filter(|_| self.handle.get().is_none()) else { return false };
        let Some(lent) = Ledger::new(pool, self.class_len(), runs) else { return false };
        assert_eq!(lent.len(), self.len(), "bytes lent for a buffer");
        self.lent = lent;
        true
    }

    fn is_lent(&self) -> bool {
        // It may have grown since.
        self.lent.is_some() && self.handle.get().is_none() && self.len() <= self.lent.len()
    }

    /// The bytes where they are, when all of them were lent and nobody has looked at them since.
    ///
    /// # Errors
    ///
    /// Gives itself back when they are to be in memory of its own.
    #[inline]
    pub fn into_loan(self) -> Result<Loan, Self> {
        if self.is_lent() { Ok(self.loan()) } else { Err(self) }
    }

    fn loan(mut self) -> Loan {
        let mut lent = std::mem::take(&mut self.lent);
        self.reserved = None;
        lent.count_also(self.class_len());
        Loan::new(lent).slice(0..self.len())
    }

    /// Bytes of the pool that it counts for.
    fn class_len(&self) -> usize {
        class_len(usize::from(self.class))
    }

    /// Gives up writing, so that many readers can hold the bytes.
    pub fn share(mut self) -> SharedBuffer {
        self.handle();
        self.reserved = None;
        let handle = self.handle.take().expect("it has just been there");
        SharedBuffer { range: 0..self.len(), handle }
    }

    /// The memory: the buffer's own from now on.
    fn handle(&self) -> &Handle {
        self.handle.get_or_init(|| {
            let pool = self.reserved.as_ref().expect("a buffer without memory has a reservation");
            let mut handle = pool.memory(self.class.into());
            if self.lent.is_some() {
                handle.fill(&self.lent);
            }
            handle
        })
    }
}

impl Drop for Buffer {
    fn drop(&mut self) {
        // Memory returns what was reserved for it by itself.
        if let Some(pool) = self.reserved.take_if(|_| self.handle.get().is_none()) {
            pool.uncount_bytes(self.class_len());
        }
    }
}

impl Deref for Buffer {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        let memory = self.handle().memory();
        &memory.bytes[memory.start..memory.start + self.len()]
    }
}

impl DerefMut for Buffer {
    fn deref_mut(&mut self) -> &mut [u8] {
        self.handle();
        if self.lent.is_some() {
            // It has the bytes, and who has lent them may be written to next.
            self.lent = Ledger::default();
        }
        let len = self.len();
        let memory = self.handle.get_mut().and_then(|handle| handle.0.as_mut()).expect("it has just been there");
        let memory = Arc::get_mut(memory).expect("a Buffer is the only handle on its memory");
        &mut memory.bytes[memory.start..memory.start + len]
    }
}

impl fmt::Debug for Buffer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Buffer({} bytes)", self.len())
    }
}

/// Read-only bytes that several owners hold; a clone costs a reference count.
#[derive(Clone)]
pub struct SharedBuffer {
    handle: Handle,
    range: Range<usize>,
}

impl SharedBuffer {
    /// The same bytes, narrowed to `range` of this view.
    ///
    /// # Panics
    ///
    /// When `range` lies outside the view.
    #[must_use]
    pub fn slice(&self, range: Range<usize>) -> Self {
        assert!(range.start <= range.end && range.end <= self.len(), "slice {range:?} of {} bytes", self.len());
        let start = self.range.start + range.start;
        Self { handle: self.handle.clone(), range: start..start + range.len() }
    }

    /// Bytes of the pool that it keeps, however few of them it shows.
    pub fn pooled_bytes(&self) -> usize {
        class_len(self.handle.memory().class)
    }

    /// The writable buffer again, when this is the last handle and shows the buffer from its start.
    ///
    /// # Errors
    ///
    /// Gives itself back when others hold the bytes too, or it shows a later part of them.
    pub fn try_into_buffer(mut self) -> Result<Buffer, Self> {
        let alone = self.handle.0.as_mut().is_some_and(|memory| Arc::get_mut(memory).is_some());
        if !alone || self.range.start != 0 {
            return Err(self);
        }
        Ok(Buffer::new(self.handle, self.range.end))
    }
}

impl Deref for SharedBuffer {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        let memory = self.handle.memory();
        &memory.bytes[memory.start..][self.range.clone()]
    }
}

impl fmt::Debug for SharedBuffer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "SharedBuffer({} bytes)", self.len())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_awaits_bytes_is_called_once() {
        let pool = Pool::new(4 * PAGE_LEN);
        let calls = Arc::new(AtomicUsize::new(0));
        let counter = Arc::clone(&calls);
        pool.when_back(move || {
            counter.fetch_add(1, Ordering::SeqCst);
        });
        let [first, second, third] = [(); 3].map(|()| pool.take(PAGE_LEN).unwrap().share());
        let also = first.clone();
        drop(second);
        assert_eq!(calls.load(Ordering::SeqCst), 0, "nobody waits");
        pool.await_return();
        drop(first);
        assert_eq!(calls.load(Ordering::SeqCst), 0, "it is still held");
        drop(also);
        drop(third);
        assert_eq!(calls.load(Ordering::SeqCst), 1);
    }

    #[test]
    fn a_reservation_counts_and_takes_the_memory_that_was_last_in_use() {
        let pool = Pool::new(8192);
        let first = pool.reserve(PAGE_LEN).unwrap();
        let second = pool.reserve(PAGE_LEN).unwrap();
        assert_eq!((pool.used_bytes(), first.len()), (8192, PAGE_LEN));
        assert!(pool.take(1).is_none(), "the budget is used up");
        let place = first.as_ptr();
        drop(first);
        assert_eq!(second.as_ptr(), place);
        drop(second);
        drop(pool.reserve(1));
        assert_eq!(pool.used_bytes(), 0);
        drop(pool.reserve(1).unwrap().share());
        assert_eq!(pool.used_bytes(), 0);
    }

    #[test]
    fn a_buffer_gets_back_what_was_cut_off_and_no_more() {
        let pool = Pool::new(1 << 20);
        let mut buffer = pool.take(2 * PAGE_LEN).unwrap();
        buffer.truncate(1);
        assert!(!buffer.resize(2 * PAGE_LEN + 1));
        assert_eq!(buffer.len(), 1);
        assert!(buffer.resize(2 * PAGE_LEN));
        assert_eq!(buffer.len(), 2 * PAGE_LEN);
    }

    #[test]
    fn the_last_handle_can_be_written_to_again() {
        let pool = Pool::new(1 << 20);
        let shared = pool.take(100).unwrap().share();
        let other = shared.slice(10..20);
        let shared = shared.try_into_buffer().unwrap_err();
        assert!(other.try_into_buffer().is_err(), "a part from the middle");
        let mut buffer = shared.try_into_buffer().unwrap();
        buffer.fill(1);
        assert_eq!(buffer.len(), 100);
    }

    #[test]
    fn buffers_are_page_aligned_and_as_long_as_asked() {
        let pool = Pool::new(MAX_BUFFER_LEN * 2);
        for len in [0, 1, 512, 4095, 4096, 4097, 65_536, 1_000_001] {
            let buffer = pool.take(len).unwrap();
            assert_eq!(buffer.len(), len);
            assert_eq!(buffer.as_ptr().align_offset(PAGE_LEN), 0, "length {len}");
        }
        assert_eq!(pool.used_bytes(), 0);
    }

    #[test]
    fn the_budget_is_never_exceeded_and_comes_back() {
        let pool = Pool::new(3 * PAGE_LEN);
        let held: Vec<_> = std::iter::from_fn(|| pool.take(PAGE_LEN)).collect();
        assert_eq!(held.len(), 3);
        drop(held);
        assert!(pool.take(2 * PAGE_LEN).is_some());
        assert_eq!(pool.used_bytes(), 0);
    }

    #[test]
    fn longer_than_the_largest_class_is_refused() {
        assert!(Pool::new(usize::MAX).take(MAX_BUFFER_LEN + 1).is_none());
        assert!(Pool::new(usize::MAX).take(MAX_BUFFER_LEN).is_some());
    }

    #[test]
    fn memory_is_used_again() {
        let pool = Pool::new(1 << 20);
        let first = pool.take(100).unwrap().as_ptr();
        assert_eq!(pool.take(200).unwrap().as_ptr(), first);
    }

    #[test]
    fn shared_views_keep_the_memory_until_the_last_is_gone() {
        let pool = Pool::new(1 << 20);
        let mut buffer = pool.take(10).unwrap();
        buffer.copy_from_slice(b"0123456789");
        let whole = buffer.share();
        let part = whole.slice(2..6).slice(1..3);
        drop(whole);
        assert_eq!(&part[..], b"34");
        assert_eq!(pool.used_bytes(), PAGE_LEN);
        drop(part);
        assert_eq!(pool.used_bytes(), 0);
    }

    #[test]
    fn idle_memory_beyond_the_bound_is_freed() {
        let pool = Pool::new(64 << 20);
        let held: Vec<_> = (0..4).map(|_| pool.take(4 << 20).unwrap()).collect();
        drop(held);
        assert!(pool.0.idle().bytes <= MAX_IDLE_BYTES);
    }

    #[test]
    fn idle_memory_of_other_lengths_makes_room() {
        let pool = Pool::new(4 * MAX_IDLE_BYTES);
        let idle_of = |len: usize| pool.0.idle().by_class[class_of(len)].len();
        for len in [PAGE_LEN, 64 << 10, PAGE_LEN] {
            let count = 2 * MAX_IDLE_BYTES / len;
            drop((0..count).map(|_| pool.take(len).unwrap()).collect::<Vec<_>>());
            assert_eq!(idle_of(len), count / 2, "length {len}");
        }
        assert_eq!(idle_of(64 << 10), 0);
        assert_eq!(pool.0.idle().bytes, MAX_IDLE_BYTES);
    }

    /// Takes so many buffers at one time, and gives them back.
    fn use_at_once(pool: &Pool, count: usize, len: usize) {
        drop((0..count).map(|_| pool.take(len).unwrap()).collect::<Vec<_>>());
    }

    #[test]
    fn a_trimmed_pool_keeps_what_was_needed_since_it_was_last_trimmed() {
        let pool = Pool::trimmed(64 << 20);
        let idle_mib = || pool.0.idle().bytes >> 20;
        use_at_once(&pool, 32, 1 << 20);
        assert_eq!((idle_mib(), pool.has_surplus()), (32, true));
        for in_use in [20, 12] {
            pool.trim();
            use_at_once(&pool, in_use, 1 << 20);
            pool.trim();
            assert_eq!((idle_mib(), pool.has_surplus()), (in_use, true));
        }
        pool.trim();
        assert_eq!((pool.0.idle().bytes, pool.has_surplus()), (MAX_IDLE_BYTES, false));
    }

    #[test]
    fn a_trimmed_pool_and_what_is_out_stay_within_the_budget() {
        const MIB: usize = 1 << 20;
        let pool = Pool::trimmed(32 * MIB);
        use_at_once(&pool, 32, MIB);
        let held: Vec<_> = (0..8).map(|_| pool.take(2 * MIB).unwrap()).collect();
        assert_eq!((pool.used_bytes(), pool.0.idle().bytes), (16 * MIB, 16 * MIB));
        // What is counted may have no memory; all the same it may get some at any time.
        let reserved = pool.reserve(16 * MIB).unwrap();
        drop(held);
        assert_eq!((pool.used_bytes(), pool.0.idle().bytes), (16 * MIB, 16 * MIB));
        assert_eq!(pool.0.idle().by_class[class_of(2 * MIB)].len(), 8);
        drop(reserved);
    }

    #[test]
    fn memory_that_is_too_long_to_be_kept_takes_nobodys_place() {
        let pool = Pool::new(4 * MAX_IDLE_BYTES);
        drop(pool.take(PAGE_LEN));
        drop(pool.take(2 * MAX_IDLE_BYTES).unwrap());
        assert_eq!(pool.0.idle().bytes, PAGE_LEN);
    }

    #[test]
    fn memory_outlives_its_pool() {
        let buffer = Pool::new(1 << 20).take(16).unwrap();
        assert_eq!(buffer.len(), 16);
    }
}
