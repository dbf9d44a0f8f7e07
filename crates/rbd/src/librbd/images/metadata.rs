//! The metadata of pools and images: texts by their keys.

use std::collections::BTreeMap;
use std::ffi::{CStr, c_char, c_int};
use std::io;

use super::super::check;
use super::lists::{self, name, texts};
use super::{Images, ManagedImage};
use crate::limits::MAX_LIST;

/// Keys that one question asks for. librbd has all of their values at once.
const PAGE: u64 = 128;

/// The most bytes of keys, or of values, of a page.
const MAX_PAGE_BYTES: usize = 16 << 20;

impl Images {
    /// The value of a key of the pool's metadata.
    ///
    /// # Errors
    ///
    /// An error of the cluster.
    pub fn metadata_of(&self, key: &str) -> io::Result<Option<String>> {
        value_of(key, |key, value, len| {
            // SAFETY: the pool is open, the key is a text, and there is room for `len` bytes.
            unsafe { (self.table.rbd_pool_metadata_get)(self.pool.handle, key.as_ptr(), value, len) }
        })
    }

    /// Keys and values of the pool's metadata, of the keys that begin so.
    ///
    /// # Errors
    ///
    /// An error of the cluster.
    pub fn metadata(&self, prefix: &str) -> io::Result<BTreeMap<String, String>> {
        pairs(prefix, |start, page| {
            let (keys, key_bytes, values, value_bytes) = page.parts();
            // SAFETY: the pool is open, the start is a text, and there is room for as many bytes as said.
            unsafe {
                (self.table.rbd_pool_metadata_list)(
                    self.pool.handle,
                    start.as_ptr(),
                    PAGE,
                    keys,
                    key_bytes,
                    values,
                    value_bytes,
                )
            }
        })
    }

    /// Sets the value of a key of the pool's metadata.
    ///
    /// # Errors
    ///
    /// An error of the cluster.
    pub fn set_metadata(&self, key: &str, value: &str) -> io::Result<()> {
        let (key, value) = (name(key)?, name(value)?);
        // SAFETY: the pool is open, and the texts live beyond the call.
        check(unsafe { (self.table.rbd_pool_metadata_set)(self.pool.handle, key.as_ptr(), value.as_ptr()) })
    }

    /// Removes a key of the pool's metadata, unless it is not there.
    ///
    /// # Errors
    ///
    /// An error of the cluster.
    pub fn remove_metadata(&self, key: &str) -> io::Result<()> {
        let key = name(key)?;
        // SAFETY: the pool is open, and the text lives beyond the call.
        removed(unsafe { (self.table.rbd_pool_metadata_remove)(self.pool.handle, key.as_ptr()) })
    }
}

impl ManagedImage {
    /// The value of a key of the image's metadata.
    ///
    /// # Errors
    ///
    /// An error of the cluster.
    pub fn metadata_of(&self, key: &str) -> io::Result<Option<String>> {
        let get = self.image().table().rbd_metadata_get;
        value_of(key, |key, value, len| {
            // SAFETY: the image is open, the key is a text, and there is room for `len` bytes.
            unsafe { get(self.image().handle, key.as_ptr(), value, len) }
        })
    }

    /// Keys and values of the image's metadata, of the keys that begin so.
    ///
    /// # Errors
    ///
    /// An error of the cluster.
    pub fn metadata(&self, prefix: &str) -> io::Result<BTreeMap<String, String>> {
        pairs(prefix, |start, page| {
            let (keys, key_bytes, values, value_bytes) = page.parts();
            // SAFETY: the image is open, the start is a text, and there is room for as many bytes as said.
            unsafe {
                (self.table().rbd_metadata_list)(
                    self.image().handle,
                    start.as_ptr(),
                    PAGE,
                    keys,
                    key_bytes,
                    values,
                    value_bytes,
                )
            }
        })
    }

    /// Sets the value of a key of the image's metadata.
    ///
    /// # Errors
    ///
    /// An error of the cluster.
    pub fn set_metadata(&self, key: &str, value: &str) -> io::Result<()> {
        let (key, value) = (name(key)?, name(value)?);
        // SAFETY: the image is open, and the texts live beyond the call.
        check(unsafe { (self.table().rbd_metadata_set)(self.image().handle, key.as_ptr(), value.as_ptr()) })
    }

    /// Removes a key of the image's metadata, unless it is not there.
    ///
    /// # Errors
    ///
    /// An error of the cluster.
    pub fn remove_metadata(&self, key: &str) -> io::Result<()> {
        let key = name(key)?;
        // SAFETY: the image is open, and the text lives beyond the call.
        removed(unsafe { (self.table().rbd_metadata_remove)(self.image().handle, key.as_ptr()) })
    }
}

/// The room for a page of keys and values.
struct Page {
    keys: Vec<u8>,
    key_bytes: usize,
    values: Vec<u8>,
    value_bytes: usize,
}

impl Page {
    fn new(key_bytes: usize, value_bytes: usize) -> Self {
        Self { keys: vec![0; key_bytes], key_bytes, values: vec![0; value_bytes], value_bytes }
    }

    /// Places for the keys and their bytes, and for the values and theirs.
    fn parts(&mut self) -> (*mut c_char, *mut usize, *mut c_char, *mut usize) {
        let Self { keys, key_bytes, values, value_bytes } = self;
        (keys.as_mut_ptr().cast(), key_bytes, values.as_mut_ptr().cast(), value_bytes)
    }

    fn pairs(&self) -> Vec<(String, String)> {
        let (keys, values) = (self.keys.get(..self.key_bytes), self.values.get(..self.value_bytes));
        texts(keys.unwrap_or_default()).into_iter().zip(texts(values.unwrap_or_default())).collect()
    }
}

/// The value that `ask` puts into the room that it gets, a zero at its end.
fn value_of(key: &str, mut ask: impl FnMut(&CStr, *mut c_char, &mut usize) -> c_int) -> io::Result<Option<String>> {
    let key = name(key)?;
    match lists::grow(0_u8, |room, len| ask(&key, room.as_mut_ptr().cast(), len)) {
        Ok(value) => Ok(texts(&value).into_iter().next()),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error),
    }
}

/// Keys that begin so, and their values, from the pages that `ask` fills. Each begins behind the key that it gets.
fn pairs(prefix: &str, mut ask: impl FnMut(&CStr, &mut Page) -> c_int) -> io::Result<BTreeMap<String, String>> {
    let (mut found, mut start) = (BTreeMap::new(), prefix.to_owned());
    loop {
        let page = page_behind(&start, &mut ask)?;
        let Some((last, _)) = page.last() else { return Ok(found) };
        if found.len() > MAX_LIST || *last <= start {
            return Err(io::Error::from_raw_os_error(libc::ERANGE));
        }
        start.clone_from(last);
        let is_last = !last.starts_with(prefix);
        found.extend(page.into_iter().filter(|(key, _)| key.starts_with(prefix)));
        if is_last {
            return Ok(found);
        }
    }
}

fn page_behind(start: &str, ask: &mut impl FnMut(&CStr, &mut Page) -> c_int) -> io::Result<Vec<(String, String)>> {
    let start = name(start)?;
    let mut page = Page::new(4096, 4096);
    loop {
        let had = page.keys.len().min(page.values.len());
        let code = ask(&start, &mut page);
        let wants = page.key_bytes.max(page.value_bytes);
        if code == -libc::ERANGE && wants > had && wants <= MAX_PAGE_BYTES {
            page = Page::new(wants, wants);
            continue;
        }
        check(code)?;
        return Ok(page.pairs());
    }
}

/// The result of a removal, for which what is not there is removed.
fn removed(code: c_int) -> io::Result<()> {
    if code == -libc::ENOENT { Ok(()) } else { check(code) }
}
