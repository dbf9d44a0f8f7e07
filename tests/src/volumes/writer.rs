//! The load: one number after the other, to both volumes in turn.

use std::io;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread::{self, JoinHandle};

use std::sync::Arc;

use lunette_testkit::ScriptedInitiator;

use super::model::{filled, place};

/// The numbers that were acknowledged, by volume, and the number that is being written.
#[derive(Debug, Default)]
pub(super) struct Numbers {
    pub(super) acknowledged: [AtomicU64; 2],
    pub(super) begun: AtomicU64,
}

/// A load that goes on until its connection breaks.
pub(super) struct Writer(JoinHandle<()>);

impl Writer {
    /// Writes what follows on `last`, to logical units 0 and 1.
    pub(super) fn start(mut initiator: ScriptedInitiator, numbers: Arc<Numbers>, last: u64) -> Self {
        let write = move || {
            for number in last + 1.. {
                numbers.begun.store(number, Ordering::SeqCst);
                for (lun, acknowledged) in (0..).zip(&numbers.acknowledged) {
                    if put(&mut initiator, lun, number).is_err() {
                        return;
                    }
                    acknowledged.store(number, Ordering::SeqCst);
                }
            }
        };
        Self(thread::spawn(write))
    }

    /// Waits for the end, after the server was killed.
    pub(super) fn wait(self) {
        self.0.join().expect("a write that was answered has succeeded");
    }
}

/// Writes a number to its place, and then to the head.
fn put(initiator: &mut ScriptedInitiator, lun: u16, number: u64) -> io::Result<()> {
    for block in [place(number), 0] {
        let write = initiator.try_start_write(lun, block, filled(number), 0)?;
        initiator.try_finish(write)?.good();
    }
    Ok(())
}
