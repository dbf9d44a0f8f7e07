//! The progress of what takes long, and its end from outside.

use std::ffi::{c_int, c_void};
use std::io;
use std::ops::ControlFlow;
use std::panic::resume_unwind;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{SyncSender, sync_channel};
use std::thread;

use super::super::check;
use super::super::table::ProgressCallback;

/// News of progress that wait for the caller. Later ones are left out when it is slow.
const MAX_NEWS: usize = 16;

/// The end of the news at librbd's threads.
struct Reporter<'a> {
    news: SyncSender<(u64, u64)>,
    is_stopped: &'a AtomicBool,
}

/// Makes a call of librbd that reports progress, on a thread of its own. `told` learns on the caller's thread how much
/// is done of how much. When it breaks, the call is stopped, if librbd can stop it.
///
/// # Errors
///
/// The error of the call; `Interrupted` when it was stopped.
pub(super) fn follow(
    call: impl FnOnce(ProgressCallback, *mut c_void) -> c_int + Send,
    told: &mut dyn FnMut(u64, u64) -> ControlFlow<()>,
) -> io::Result<()> {
    let (news, received) = sync_channel(MAX_NEWS);
    let is_stopped = AtomicBool::new(false);
    let result = thread::scope(|scope| {
        let reporter = Reporter { news, is_stopped: &is_stopped };
        let calling = thread::Builder::new().name("lunette-rbd-long".into()).spawn_scoped(scope, move || {
            let reporter = reporter;
            check(call(progressed, (&raw const reporter).cast_mut().cast()))
        })?;
        // They end with the call, which has the only sender.
        for (done, total) in received {
            if !is_stopped.load(Ordering::Relaxed) && told(done, total).is_break() {
                is_stopped.store(true, Ordering::Relaxed);
            }
        }
        calling.join().unwrap_or_else(|panic| resume_unwind(panic))
    });
    match result {
        Err(error) if error.raw_os_error() == Some(libc::ECANCELED) && is_stopped.into_inner() => {
            Err(io::ErrorKind::Interrupted.into())
        }
        other => other,
    }
}

/// Called by librbd, on any thread, for one step after the other.
unsafe extern "C" fn progressed(done: u64, total: u64, argument: *mut c_void) -> c_int {
    // SAFETY: the argument is what `follow` has given, which lives until the call has ended.
    let reporter = unsafe { &*argument.cast::<Reporter<'_>>() };
    // News that have no room are left out.
    let _ = reporter.news.try_send((done, total));
    if reporter.is_stopped.load(Ordering::Relaxed) { -libc::ECANCELED } else { 0 }
}

/// Called by librbd for progress that is of no interest.
pub(super) unsafe extern "C" fn ignored(_: u64, _: u64, _: *mut c_void) -> c_int {
    0
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A call of this many steps, which a negative answer ends.
    fn call(steps: u64) -> impl FnOnce(ProgressCallback, *mut c_void) -> c_int + Send {
        move |told, argument| {
            for step in 0..steps {
                // SAFETY: the argument is what came with the callback.
                let code = unsafe { told(step, steps, argument) };
                if code < 0 {
                    return code;
                }
            }
            0
        }
    }

    #[test]
    fn the_caller_learns_of_progress() {
        let mut seen = Vec::new();
        follow(call(3), &mut |done, total| {
            seen.push((done, total));
            ControlFlow::Continue(())
        })
        .unwrap();
        assert_eq!(seen, [(0, 3), (1, 3), (2, 3)]);
    }

    #[test]
    fn a_call_is_stopped_when_the_caller_breaks() {
        let mut calls = 0;
        // More steps than there is room for news, so that the call sees the break.
        let stopped = follow(call(u64::MAX), &mut |_, _| {
            calls += 1;
            ControlFlow::Break(())
        });
        assert_eq!(stopped.unwrap_err().kind(), io::ErrorKind::Interrupted);
        assert_eq!(calls, 1);
    }

    #[test]
    fn a_call_that_fails_by_itself_was_not_stopped() {
        let failed = follow(|_, _| -libc::ECANCELED, &mut |_, _| ControlFlow::Continue(()));
        assert_eq!(failed.unwrap_err().raw_os_error(), Some(libc::ECANCELED));
    }
}
