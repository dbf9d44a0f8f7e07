//! The files of a folder as they were last read or written, to notice that someone else has changed them since.

use std::collections::BTreeMap;

use crate::objects::{FileChange, etag};

/// The texts of the files of a folder, by their digests.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Seen(BTreeMap<String, Text>);

#[derive(Debug, Clone, PartialEq)]
enum Text {
    Is(String),
    /// A change has failed, and it is not known whether the file has the text of before or after it.
    Unknown,
}

impl Seen {
    /// The file has this text.
    pub(super) fn note(&mut self, file: &str, text: &str) {
        self.0.insert(file.to_owned(), Text::Is(etag(&text)));
    }

    /// The folder has followed these changes.
    pub fn follow(&mut self, changes: &[FileChange]) {
        for FileChange { file, content } in changes {
            match content {
                Some(content) => self.note(file, content),
                None => drop(self.0.remove(file)),
            }
        }
    }

    /// The folder may have followed these changes or not.
    pub fn forget(&mut self, changes: &[FileChange]) {
        self.0.extend(changes.iter().map(|change| (change.file.clone(), Text::Unknown)));
    }

    /// Refuses a file that is not as it was seen; its text is `now`.
    pub(super) fn check(&self, file: &str, now: Option<&str>) -> Result<(), String> {
        let what = match (self.0.get(file), now) {
            (Some(Text::Unknown), _) | (None, None) => return Ok(()),
            (Some(Text::Is(known)), Some(text)) if *known == etag(&text) => return Ok(()),
            (Some(Text::Is(_)), Some(_)) => "was changed",
            (Some(Text::Is(_)), None) => "was removed",
            (None, Some(_)) => "was added",
        };
        Err(format!(
            "conf.d/{file} {what} by hand since it was read, so nothing is changed; send SIGHUP to serve the file as it is, then repeat the change"
        ))
    }
}
