//! A `lunette serve` with a configuration file that tests change.

use std::fs;
use std::path::{Path, PathBuf};

use tempfile::TempDir;

use crate::server::{Server, lunette};

/// A folder with a configuration, and files that it names.
pub struct Configured(TempDir);

impl Configured {
    /// A folder without a configuration.
    #[expect(clippy::new_without_default, reason = "it makes a folder")]
    pub fn new() -> Self {
        Self(tempfile::tempdir().expect("a folder"))
    }

    /// The folder.
    pub fn path(&self) -> &Path {
        self.0.path()
    }

    /// The path of a file `name`, as the configuration writes it.
    pub fn file(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    /// Writes the configuration, in which `@` stands for the folder.
    pub fn write(&self, text: &str) {
        fs::write(self.file("config"), text.replace('@', self.0.path().to_str().expect("a path of UTF-8")))
            .expect("a file in the folder");
    }

    /// Serves `luns` logical units of this configuration, beside which there is a file `secret`.
    pub fn serve(text: &str, luns: usize) -> (Self, Server) {
        let place = Self::new();
        fs::write(place.file("secret"), "first-secret").expect("a file in the folder");
        let server = place.start(text, luns);
        (place, server)
    }

    /// Serves `luns` logical units of this configuration, and of what is in the folder.
    pub fn start(&self, text: &str, luns: usize) -> Server {
        self.write(text);
        Server::spawn(lunette().args(["serve", "--config"]).arg(self.file("config")), luns)
    }

    /// Has the server read another text. Returns the log.
    pub fn change(&self, server: &Server, text: &str) -> String {
        self.write(text);
        let log = server.hang_up(&["changes applied", "nothing has changed", "configuration refused"]);
        assert!(!log.contains("configuration refused"), "{log}");
        log
    }

    /// Has the server read a text that it must refuse. Returns the log.
    pub fn refuse(&self, server: &Server, text: &str) -> String {
        self.write(text);
        let log = server.hang_up(&["changes applied", "nothing has changed", "configuration refused"]);
        assert!(log.contains("configuration refused, nothing is changed"), "{text}\n{log}");
        log
    }
}
