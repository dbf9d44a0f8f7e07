//! The choice of a kernel: by the CPU's feature bits once, by the message's length each time.

use core::ptr;
use core::sync::atomic::{AtomicPtr, Ordering};

use crate::cpu::Features;
use crate::kernel::{ENTRIES, Entry, Kernel, KernelError};

/// Copies from this length on bypass the cache. The destination is then larger than one core's share of the caches, and
/// reading it in only to overwrite it costs more than writing to memory.
pub(crate) const PAST_CACHE_FROM: usize = 16 << 20;

/// Which kernels serve which lengths, on CPUs that have what these need, and what the plan needs.
struct Plan {
    /// Extensions beyond those of the kernels without which another plan is better.
    needs: Features,
    short: &'static Entry,
    /// The first length that counts as long.
    long_from: usize,
    long: &'static Entry,
}

/// Positions in [`ENTRIES`].
const SLICING16: usize = 3;
#[cfg(target_arch = "x86_64")]
mod at {
    pub(super) const CRC32Q: usize = 4;
    pub(super) const CRC32Q_PCLMUL: usize = 5;
    pub(super) const PCLMUL_CRC32Q: usize = 6;
    pub(super) const VPCLMUL256: usize = 7;
    pub(super) const VPCLMUL512: usize = 8;
}
#[cfg(target_arch = "aarch64")]
mod at {
    pub(super) const CRC32CX: usize = 4;
    pub(super) const PMULL: usize = 5;
    pub(super) const PMULL_EOR3: usize = 6;
}

/// The plans, the best first; the first one whose extensions the CPU has is used. `lunette crc --bench` shows whether
/// each choice is the best on the CPU at hand.
///
/// Short messages stay with the CRC instruction even where wide vectors exist: some CPUs take microseconds to power
/// these up. From 1 KiB on there is a whole block for the multiplier.
static PLANS: &[Plan] = &[
    #[cfg(target_arch = "x86_64")]
    Plan::kernels(at::CRC32Q, 256, at::VPCLMUL512),
    #[cfg(target_arch = "x86_64")]
    Plan::kernels(at::CRC32Q, 1024, at::VPCLMUL256),
    #[cfg(target_arch = "x86_64")]
    Plan { needs: Features::FAST_PCLMULQDQ, ..Plan::kernels(at::CRC32Q, 1024, at::PCLMUL_CRC32Q) },
    #[cfg(target_arch = "x86_64")]
    Plan::kernels(at::CRC32Q, 1024, at::CRC32Q_PCLMUL),
    #[cfg(target_arch = "x86_64")]
    Plan::kernel(at::CRC32Q),
    #[cfg(target_arch = "aarch64")]
    Plan::kernels(at::CRC32CX, 1024, at::PMULL_EOR3),
    #[cfg(target_arch = "aarch64")]
    Plan::kernels(at::CRC32CX, 1024, at::PMULL),
    #[cfg(target_arch = "aarch64")]
    Plan::kernel(at::CRC32CX),
    Plan::kernel(SLICING16),
];

/// For each kernel, the plan that uses no other.
static FORCED: [Plan; ENTRIES.len()] = {
    let mut plans = [const { Plan::kernel(0) }; ENTRIES.len()];
    let mut index = 0;
    while index < plans.len() {
        plans[index] = Plan::kernel(index);
        index += 1;
    }
    plans
};

/// The plan in force; null until the first use.
static IN_FORCE: AtomicPtr<Plan> = AtomicPtr::new(ptr::null_mut());

#[inline]
fn in_force() -> &'static Plan {
    // SAFETY: null, or one of the plans above, which are never written to.
    let plan = unsafe { IN_FORCE.load(Ordering::Relaxed).as_ref() };
    plan.unwrap_or_else(choose)
}

#[cold]
fn choose() -> &'static Plan {
    let plan = match requested() {
        Some(Ok(kernel)) => forced(kernel),
        _ => best(),
    };
    put_in_force(plan);
    plan
}

fn put_in_force(plan: &'static Plan) {
    IN_FORCE.store(ptr::from_ref(plan).cast_mut(), Ordering::Relaxed);
}

fn best() -> &'static Plan {
    let can_follow = |plan: &&Plan| {
        let needs = plan.needs.and(plan.short.needs()).and(plan.long.needs());
        needs.without(Features::of_this_cpu()).is_none()
    };
    // The last plan requires no CPU feature.
    PLANS.iter().find(can_follow).unwrap_or(&FORCED[SLICING16])
}

fn forced(kernel: Kernel) -> &'static Plan {
    let its_own = |plan: &&Plan| ptr::eq(plan.long, kernel.entry());
    FORCED.iter().find(its_own).unwrap_or_else(best)
}

/// Makes `kernel` compute every digest of the process from now on, in all threads.
pub fn force(kernel: Kernel) {
    put_in_force(forced(kernel));
}

/// Undoes [`force`] and `LUNETTE_CRC`: the CPU and the length decide again.
pub fn unforce() {
    put_in_force(best());
}

/// The kernel that the environment variable `LUNETTE_CRC` names, if it is set. The first digest of a process uses that
/// kernel when this CPU can run it, and otherwise makes the usual choice without a word; a command can report the error
/// from here. Without the feature `std` there is no environment.
pub fn requested() -> Option<Result<Kernel, KernelError>> {
    #[cfg(feature = "std")]
    return std::env::var_os("LUNETTE_CRC")
        .map(|name| name.to_str().ok_or(KernelError::Unknown).and_then(Kernel::named));
    #[cfg(not(feature = "std"))]
    None
}

/// A kernel, and the shortest message that it serves.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Choice {
    /// The shortest message, in bytes, that the kernel serves; it serves all up to the next choice's.
    pub from: usize,
    /// The kernel for these messages.
    pub kernel: Kernel,
}

/// Which kernel serves which length now: one or two choices, the one for shorter messages first.
pub fn choices() -> impl Iterator<Item = Choice> {
    let plan = in_force();
    let short = (plan.long_from > 0).then_some((0, plan.short));
    short
        .into_iter()
        .chain([(plan.long_from, plan.long)])
        .filter_map(|(from, entry)| Some(Choice { from, kernel: Kernel::of_entry(entry)? }))
}

impl Plan {
    /// One kernel for messages from `long_from` bytes on, another one for shorter ones. Kernels are positions in
    /// [`ENTRIES`].
    const fn kernels(short: usize, long_from: usize, long: usize) -> Self {
        Self { needs: Features::NONE, short: &ENTRIES[short], long_from, long: &ENTRIES[long] }
    }

    /// One kernel for messages of any length.
    const fn kernel(kernel: usize) -> Self {
        Self::kernels(kernel, 0, kernel)
    }

    #[inline]
    fn kernel_for(&self, len: usize) -> &'static Entry {
        if len < self.long_from { self.short } else { self.long }
    }
}

/// Advances the register over `len` bytes.
///
/// # Safety
///
/// `src` is valid for reads of `len` bytes, which other threads or processes may write at the same time.
#[inline]
pub(crate) unsafe fn digest(register: u32, src: *const u8, len: usize) -> u32 {
    // SAFETY: the plan in force has kernels that this CPU can run; the rest is the caller's promise.
    unsafe { in_force().kernel_for(len).digest(register, src, len) }
}

/// Copies `len` bytes and advances the register over them.
///
/// # Safety
///
/// The conditions of [`digest`]; `dst` is valid for writes of `len` bytes, does not overlap `src`, and has no other
/// user.
#[inline]
pub(crate) unsafe fn copy(register: u32, dst: *mut u8, src: *const u8, len: usize) -> u32 {
    let kernel = in_force().kernel_for(len);
    // SAFETY: as above.
    unsafe {
        if len < PAST_CACHE_FROM {
            kernel.copy(register, dst, src, len)
        } else {
            kernel.copy_past_cache(register, dst, src, len)
        }
    }
}
