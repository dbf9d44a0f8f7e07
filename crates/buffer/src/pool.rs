//! The pool: a budget of bytes, and free lists of memory.

use std::fmt;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use crate::address_space::AddressSpace;
use crate::loan::Entries;
use crate::memory::{CLASSES, Handle, Memory, class_len, class_of};
use crate::{Buffer, KeepsWarm, MAX_BUFFER_LEN, warm};

/// Idle memory that any pool may keep, in bytes. Only a [trimmed](Pool::trimmed) pool keeps more.
const MAX_IDLE_BYTES: usize = 8 << 20;

/// Empty lists of loans that are kept for reuse.
const MAX_IDLE_LISTS: usize = 256;

/// A source of buffers with a bound on the bytes that are out at one time.
///
/// Clones share the budget and the memory.
#[derive(Clone)]
pub struct Pool(Arc<Shared>);

struct Shared {
    budget_bytes: usize,
    used_bytes: AtomicUsize,
    /// The owner calls [`Pool::trim`], so idle memory may grow up to the budget.
    is_trimmed: bool,
    space: &'static AddressSpace,
    /// The size class of [`Idle::last`], where the address space is limited.
    last_class: Option<usize>,
    /// More than [`MAX_IDLE_BYTES`] are idle.
    has_surplus: AtomicBool,
    /// The next bytes that return call `when_back`.
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
    /// Memory for the longest buffer of the pool, which counts against no bound of idle memory.
    ///
    /// Where the address space is limited, others may use up all of it. A pool without memory would then wait for bytes
    /// to return while none are out. With this memory some are always out when there is no buffer.
    last: Option<Arc<Memory>>,
}

impl Idle {
    fn pop(&mut self, class: usize) -> Option<Arc<Memory>> {
        let memory = self.by_class[class].pop()?;
        self.bytes -= class_len(class);
        self.unused[class] = self.unused[class].min(self.by_class[class].len());
        Some(memory)
    }

    /// Frees memory of other classes than this, the longest first, until at most `most` bytes are idle or no other
    /// class has any.
    fn shrink(&mut self, class: usize, most: usize) {
        let mut others = (0..CLASSES).rev().filter(|other| *other != class);
        while self.bytes > most
            && let Some(other) = others.next()
        {
            while self.bytes > most && self.pop(other).is_some() {}
        }
    }
}

impl Pool {
    /// A pool whose buffers never hold more than `budget_bytes` together.
    pub fn new(budget_bytes: usize) -> Self {
        Self::with(budget_bytes, false, AddressSpace::of_process())
    }

    /// Like [`new`](Self::new), but keeps freed memory for reuse, so that memory once needed is not allocated again.
    /// Used and idle bytes together stay within the budget, except that 8 MiB may always be idle. The owner calls
    /// [`trim`](Self::trim) from time to time, as [`Trimmer`](crate::Trimmer) says.
    pub fn trimmed(budget_bytes: usize) -> Self {
        Self::with(budget_bytes, true, AddressSpace::of_process())
    }

    fn with(budget_bytes: usize, is_trimmed: bool, space: &'static AddressSpace) -> Self {
        let last_class = if space.is_limited() { longest_class(budget_bytes) } else { None };
        let last = last_class.and_then(|class| new_memory(space, class));
        Self(Arc::new(Shared {
            budget_bytes,
            used_bytes: AtomicUsize::new(0),
            is_trimmed,
            space,
            last_class,
            has_surplus: AtomicBool::new(false),
            awaited: AtomicBool::new(false),
            when_back: OnceLock::new(),
            idle: Mutex::new(Idle { last, ..Idle::default() }),
        }))
    }

    /// Sets what is called when [awaited](Self::await_return) bytes return, on the thread that returns them. Only the
    /// first call to this has an effect.
    pub fn when_back(&self, call: impl Fn() + Send + Sync + 'static) {
        let _ = self.0.when_back.set(Box::new(call));
    }

    /// Asks for one [call](Self::when_back) when the next bytes return. The caller then tries once more to take its
    /// buffer, because bytes that returned before this request cause no call.
    pub fn await_return(&self) {
        // Sequentially consistent with the counts of bytes: bytes that return either precede the caller's second try or
        // see this flag.
        self.0.awaited.swap(true, Ordering::SeqCst);
    }

    /// A buffer of `len` bytes, or `None` when the budget does not allow it now, `len` exceeds [`MAX_BUFFER_LEN`] or
    /// there is no more [address space](crate::address_space). Some buffer of the pool is out then, unless `len`
    /// exceeds the budget, or there was no address space for the pool when it was made.
    ///
    /// The bytes may be those of an earlier user: the caller overwrites all of them before it shows any to a peer.
    pub fn take(&self, len: usize) -> Option<Buffer> {
        let class = self.count(len)?;
        let Some(memory) = self.memory(class).or_else(|| self.last_memory(class)) else {
            // Nothing has returned that another buffer could be made of, so nothing is called.
            self.0.used_bytes.fetch_sub(class_len(class), Ordering::SeqCst);
            return None;
        };
        Some(Buffer::new(Handle::new(memory, self.clone()), len))
    }

    /// Like [`take`](Self::take), but the buffer gets its memory when its bytes are first accessed. Until then it only
    /// counts against the budget.
    ///
    /// For data that comes later: the memory is then what was given back last, which the processor's cache still holds.
    /// When 32 buffers are filled in turns by reads of 256 KiB, every byte goes out to memory and back; when each is
    /// given back as soon as it is full, nearly none does. Also for reads that a store may answer with a
    /// [loan](Buffer::allow_loan). Where the address space is limited the buffer has its memory at once, because later
    /// there may be none.
    pub fn reserve(&self, len: usize) -> Option<Buffer> {
        if self.0.space.is_limited() {
            return self.take(len);
        }
        let class = self.count(len)?;
        Some(Buffer::reserved(self.clone(), class, len))
    }

    /// Counts a buffer of `len` bytes against the budget, and gives its class.
    #[inline]
    fn count(&self, len: usize) -> Option<usize> {
        if len > MAX_BUFFER_LEN {
            return None;
        }
        let class = class_of(len);
        self.count_bytes(class_len(class), self.0.budget_bytes).then_some(class)
    }

    /// Counts `bytes` if at most `most` are counted then.
    #[inline]
    pub(crate) fn count_bytes(&self, bytes: usize, most: usize) -> bool {
        let fits = |used: usize| used.checked_add(bytes).filter(|sum| *sum <= most);
        self.0.used_bytes.fetch_update(Ordering::SeqCst, Ordering::SeqCst, fits).is_ok()
    }

    /// Memory of a class, whose bytes are already counted.
    ///
    /// # Panics
    ///
    /// Where the address space is limited: there a buffer is not [reserved](Self::reserve) without its memory.
    #[inline]
    pub(crate) fn into_handle(self, class: usize) -> Handle {
        let memory = self.memory(class).expect("a reserved buffer finds room where nothing limits it");
        Handle::new(memory, self)
    }

    #[inline]
    fn memory(&self, class: usize) -> Option<Arc<Memory>> {
        warm::take(self, class).or_else(|| self.idle_or_new(class))
    }

    #[inline(never)]
    fn idle_or_new(&self, class: usize) -> Option<Arc<Memory>> {
        if let Some(memory) = self.0.pop_idle(class) {
            return Some(memory);
        }
        if !self.0.space.is_limited() {
            return Some(Arc::new(Memory::new(class)));
        }
        new_memory(self.0.space, class).or_else(|| {
            self.0.idle().shrink(class, 0);
            new_memory(self.0.space, class)
        })
    }

    /// The memory that is kept for when there is no other. All of its bytes are counted.
    fn last_memory(&self, class: usize) -> Option<Arc<Memory>> {
        let more_bytes = class_len(self.0.last_class?).checked_sub(class_len(class))?;
        let mut idle = self.0.idle();
        if idle.last.is_some() && self.count_bytes(more_bytes, self.0.budget_bytes) { idle.last.take() } else { None }
    }

    /// Has the present thread keep up to 64 KiB of memory that is given back there, one buffer, for the next one that
    /// is taken there. An event loop that fills short buffers one by one then takes no lock for them. What is kept
    /// counts against no bound of idle memory. A thread does so for one pool at a time.
    pub fn keep_warm(&self) -> KeepsWarm {
        KeepsWarm::begin(self.clone())
    }

    /// Whether it is the same pool.
    #[inline]
    pub(crate) fn is(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
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

    /// Frees memory that was not taken since the last call, down to the 8 MiB that are always kept.
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
        // `freed` is dropped outside the lock: returning memory to the system may take long.
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

    /// Keeps or frees memory whose last handle is gone, and uncounts its bytes.
    #[inline]
    pub(crate) fn give_back(&self, memory: Arc<Memory>) {
        let len = class_len(memory.class);
        if let Some(memory) = self.keep_last(memory).and_then(|memory| warm::keep(self, memory)) {
            self.keep_idle(memory);
        }
        self.uncount_bytes(len);
    }

    /// Keeps memory as [`Idle::last`], if there is none, or gives it back.
    #[inline]
    fn keep_last(&self, memory: Arc<Memory>) -> Option<Arc<Memory>> {
        if self.0.last_class != Some(memory.class) {
            return Some(memory);
        }
        let mut idle = self.0.idle();
        if idle.last.is_some() {
            return Some(memory);
        }
        idle.last = Some(memory);
        None
    }

    /// Keeps or frees memory whose bytes are still counted.
    #[inline(never)]
    fn keep_idle(&self, memory: Arc<Memory>) {
        let (class, len) = (memory.class, class_len(memory.class));
        let mut idle = self.0.idle();
        let most = self.0.max_idle_bytes(self.0.used_bytes.load(Ordering::Relaxed).saturating_sub(len));
        if let Some(most_before) = most.checked_sub(len) {
            // What was in use just now is more likely to be asked for again than memory of other lengths.
            if idle.bytes > most_before {
                idle.shrink(class, most_before);
            }
            if idle.bytes <= most_before {
                idle.bytes += len;
                idle.by_class[class].push(memory);
            }
        }
        if idle.bytes > MAX_IDLE_BYTES {
            self.0.has_surplus.store(true, Ordering::Relaxed);
        }
    }

    #[cfg(test)]
    pub(crate) fn idle_bytes(&self) -> usize {
        self.0.idle().bytes
    }

    /// Takes bytes off the count, and calls `when_back` if it is awaited.
    #[inline]
    pub(crate) fn uncount_bytes(&self, bytes: usize) {
        self.0.used_bytes.fetch_sub(bytes, Ordering::SeqCst);
        if self.0.awaited.load(Ordering::SeqCst)
            && self.0.awaited.swap(false, Ordering::SeqCst)
            && let Some(call) = self.0.when_back.get()
        {
            call();
        }
    }
}

impl Shared {
    fn idle(&self) -> MutexGuard<'_, Idle> {
        self.idle.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// How many bytes may lie idle while `used_bytes` are out.
    fn max_idle_bytes(&self, used_bytes: usize) -> usize {
        if self.is_trimmed { self.budget_bytes.saturating_sub(used_bytes).max(MAX_IDLE_BYTES) } else { MAX_IDLE_BYTES }
    }

    /// Idle memory of the class, whose bytes are counted. When there is none, idle memory of other classes makes room.
    fn pop_idle(&self, class: usize) -> Option<Arc<Memory>> {
        let mut idle = self.idle();
        let memory = idle.pop(class);
        if memory.is_none() {
            idle.shrink(class, self.max_idle_bytes(self.used_bytes.load(Ordering::Relaxed)));
        }
        memory
    }
}

/// The size class of the longest buffer in a budget.
fn longest_class(budget_bytes: usize) -> Option<usize> {
    (0..CLASSES).rev().find(|class| class_len(*class) <= budget_bytes)
}

/// New memory, where the address space is limited.
fn new_memory(space: &AddressSpace, class: usize) -> Option<Arc<Memory>> {
    space.claim(class_len(class), || Memory::try_new(class)).map(Arc::new)
}

impl fmt::Debug for Pool {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Pool")
            .field("used_bytes", &self.used_bytes())
            .field("budget_bytes", &self.0.budget_bytes)
            .finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{MAX_BUFFER_LEN, PAGE_LEN};

    #[test]
    fn the_callback_is_called_once_for_each_request() {
        let pool = Pool::new(4 * PAGE_LEN);
        let calls = Arc::new(AtomicUsize::new(0));
        let counter = Arc::clone(&calls);
        pool.when_back(move || {
            counter.fetch_add(1, Ordering::SeqCst);
        });
        let [first, second, third] = [(); 3].map(|()| pool.take(PAGE_LEN).unwrap().share());
        let also = first.clone();
        drop(second);
        assert_eq!(calls.load(Ordering::SeqCst), 0, "no call was asked for");
        pool.await_return();
        drop(first);
        assert_eq!(calls.load(Ordering::SeqCst), 0, "another handle holds the memory");
        drop(also);
        drop(third);
        assert_eq!(calls.load(Ordering::SeqCst), 1);
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

    /// Takes `count` buffers at one time, and gives them back.
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
        // A reservation has no memory yet, but may take it at any time.
        let reserved = pool.reserve(16 * MIB).unwrap();
        drop(held);
        assert_eq!((pool.used_bytes(), pool.0.idle().bytes), (16 * MIB, 16 * MIB));
        assert_eq!(pool.0.idle().by_class[class_of(2 * MIB)].len(), 8);
        drop(reserved);
    }

    #[test]
    fn memory_that_is_too_long_to_be_kept_frees_no_other() {
        let pool = Pool::new(4 * MAX_IDLE_BYTES);
        drop(pool.take(PAGE_LEN));
        drop(pool.take(2 * MAX_IDLE_BYTES).unwrap());
        assert_eq!(pool.0.idle().bytes, PAGE_LEN);
    }

    thread_local! {
        static USED_BYTES: std::cell::Cell<u64> = const { std::cell::Cell::new(0) };
    }

    /// A limit of one byte less than the whole, of which the present thread uses what it says.
    static SPACE: AddressSpace =
        AddressSpace { limit_bytes: Some(u64::MAX), used_bytes: || Some(USED_BYTES.get()), claims: Mutex::new(()) };

    #[test]
    fn a_pool_without_address_space_goes_on_with_one_buffer() {
        for is_trimmed in [false, true] {
            USED_BYTES.set(0);
            let pool = Pool::with(4 * MAX_BUFFER_LEN, is_trimmed, &SPACE);
            USED_BYTES.set(u64::MAX);
            for len in [1, PAGE_LEN, 1 << 20, MAX_BUFFER_LEN] {
                let first = pool.reserve(len).unwrap();
                assert_eq!((first.len(), pool.used_bytes()), (len, MAX_BUFFER_LEN));
                assert!(pool.take(1).is_none());
                pool.trim();
                drop(first);
                assert_eq!(pool.used_bytes(), 0);
            }
        }
    }

    #[test]
    fn the_last_memory_is_kept_for_when_there_is_no_other() {
        USED_BYTES.set(0);
        let pool = Pool::with(3 * PAGE_LEN, false, &SPACE);
        let first = pool.take(PAGE_LEN).unwrap();
        USED_BYTES.set(u64::MAX);
        let second = pool.take(PAGE_LEN).unwrap();
        assert_eq!(pool.used_bytes(), 3 * PAGE_LEN, "the second one has the memory of two");
        drop(first);
        let _third = pool.take(PAGE_LEN).unwrap();
        drop(second);
        assert!(pool.take(2 * PAGE_LEN).is_some());
        USED_BYTES.set(0);
        let held = [PAGE_LEN; 3].map(|len| Pool::take(&Pool::with(len, false, &SPACE), len));
        assert!(held.iter().all(Option::is_some));
    }

    #[test]
    fn memory_outlives_its_pool() {
        let buffer = Pool::new(1 << 20).take(16).unwrap();
        assert_eq!(buffer.len(), 16);
    }
}
