//! The length of an image, as it is and as it is served.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};

/// The granularity of requests. Ceph has none; disks have sectors.
pub(crate) const GRANULARITY_BYTES: u32 = 512;

/// Called with the new length of an image, in bytes.
pub(crate) type OnResize = Box<dyn Fn(u64) + Send + Sync>;

pub(crate) struct Length {
    current: AtomicU64,
    served: AtomicU64,
    on_resize: OnceLock<OnResize>,
}

impl Length {
    pub(crate) fn new(image_len_bytes: u64) -> Self {
        let len = whole(image_len_bytes);
        Self { current: AtomicU64::new(len), served: AtomicU64::new(len), on_resize: OnceLock::new() }
    }

    /// The image has this length now. Tells whoever wants to know, when it is another one than before.
    pub(crate) fn found(&self, image_len_bytes: u64) {
        let len = whole(image_len_bytes);
        if self.current.swap(len, Ordering::AcqRel) != len
            && let Some(told) = self.on_resize.get()
        {
            told(len);
        }
    }

    pub(crate) fn current(&self) -> u64 {
        self.current.load(Ordering::Acquire)
    }

    pub(crate) fn served(&self) -> u64 {
        self.served.load(Ordering::Acquire)
    }

    pub(crate) fn serve(&self, len_bytes: u64) {
        self.served.store(len_bytes, Ordering::Release);
    }

    /// False when something is called already.
    pub(crate) fn on_resize(&self, told: OnResize) -> bool {
        self.on_resize.set(told).is_ok()
    }
}

/// Whole sectors of an image.
fn whole(image_len_bytes: u64) -> u64 {
    image_len_bytes / u64::from(GRANULARITY_BYTES) * u64::from(GRANULARITY_BYTES)
}

#[cfg(test)]
mod tests {
    use std::sync::{Arc, Mutex};

    use super::*;

    #[test]
    fn a_new_length_is_told_once_and_served_when_the_server_says_so() {
        let length = Length::new(1025);
        assert_eq!(length.served(), 1024);
        let told: Arc<Mutex<Vec<u64>>> = Arc::default();
        let list = Arc::clone(&told);
        assert!(length.on_resize(Box::new(move |len| list.lock().unwrap().push(len))));
        assert!(!length.on_resize(Box::new(|_| ())), "there is one");
        for len in [1030, 4096, 4096, 4100, 512] {
            length.found(len);
        }
        assert_eq!(*told.lock().unwrap(), [4096, 512]);
        assert_eq!((length.served(), length.current()), (1024, 512));
        length.serve(512);
        assert_eq!(length.served(), 512);
    }
}
