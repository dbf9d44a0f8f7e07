//! The images in Ceph that this process has open: initiators learn of their resizes, and they are closed at the end.
//!
//! An image that is not closed stays locked until the cluster gives this client up, for half a minute.

use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, Weak};
use std::thread;
use std::time::{Duration, Instant};

use lunette_device::LogicalUnit;
use lunette_rbd::{Closer, RbdStore, RbdUrl};
use lunette_store::{OpenOptions, Store};
use lunette_target::{Control, Growth};

use crate::failure::Failure;

/// The time that all images together have to close.
const CLOSE_LIMIT: Duration = Duration::from_secs(5);

/// The images that are not closed, by their names. Their stores may be gone.
static OPEN: Mutex<Vec<(String, Closer)>> = Mutex::new(Vec::new());

/// The images that are logical units.
static SERVED: Mutex<Vec<Served>> = Mutex::new(Vec::new());

/// Whether an image may have another length.
static RESIZED: (Mutex<bool>, Condvar) = (Mutex::new(false), Condvar::new());

#[derive(Clone)]
struct Served {
    store: Weak<RbdStore>,
    unit: Weak<LogicalUnit>,
}

/// Opens an image. [`close`] closes it.
pub(crate) fn open(url: &RbdUrl, options: &OpenOptions) -> Result<Arc<RbdStore>, Failure> {
    let store = RbdStore::open(url, options.read_only).map_err(|error| Failure::disk(format!("{url}: {error}")))?;
    let store = Arc::new(if options.any_length { store.exact() } else { store });
    let mut open = lock(&OPEN);
    open.retain(|(_, image)| !image.is_closed());
    open.push((url.to_string(), store.closer()));
    Ok(store)
}

/// Lets initiators of `unit` learn of resizes of its image, once [`follow`] is called.
pub(super) fn served(store: &Arc<RbdStore>, unit: &Arc<LogicalUnit>) {
    let mut served = lock(&SERVED);
    served.retain(|served| served.unit.strong_count() > 0);
    served.push(Served { store: Arc::downgrade(store), unit: Arc::downgrade(unit) });
    // A store that has moved from one unit to another tells it already.
    let _ = store.on_resize(|_| resized());
    // It may have been resized since it was opened.
    resized();
}

fn resized() {
    *lock(&RESIZED.0) = true;
    RESIZED.1.notify_all();
}

/// Serves the new lengths of images, until the server stops.
pub(crate) fn follow(control: Control) -> Result<(), Failure> {
    let run = move || {
        loop {
            let resized = RESIZED.1.wait_while(lock(&RESIZED.0), |resized| !*resized);
            *resized.unwrap_or_else(PoisonError::into_inner) = false;
            let growth = growth();
            if !growth.is_empty() && control.grow(growth).is_err() {
                return;
            }
        }
    };
    thread::Builder::new().name("lunette-images".into()).spawn(run).map(drop).map_err(Failure::no_thread)
}

/// The units whose images have other lengths than they serve.
fn growth() -> Vec<Growth> {
    let served = lock(&SERVED).clone();
    let growth = |served: Served| {
        let (store, unit) = (served.store.upgrade()?, served.unit.upgrade()?);
        let (before, now) = (store.geometry().len_bytes, store.current_len());
        if now == before {
            return None;
        }
        if now < before {
            tracing::warn!(image = %store.url(), before, now, "an image that is served has become shorter");
        } else {
            tracing::info!(image = %store.url(), before, now, "an image has grown");
        }
        Some(Growth { unit, grow: Box::new(move || store.serve_len(now)) })
    };
    served.into_iter().filter_map(growth).collect()
}

/// Closes all images.
pub(crate) fn close() -> Result<(), Failure> {
    let open = std::mem::take(&mut *lock(&OPEN));
    let deadline = Instant::now() + CLOSE_LIMIT;
    let mut failed = Ok(());
    for (url, image) in open {
        if let Err(error) = image.close(deadline.saturating_duration_since(Instant::now())) {
            failed = Err(Failure::other(format!("{url}: {error}")));
        }
    }
    failed
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
