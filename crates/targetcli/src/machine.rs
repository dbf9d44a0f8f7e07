//! The machine: the API of the server, and the files of this program. Everything else here is without I/O.

mod files;
mod server;

use std::collections::BTreeSet;
use std::env;
use std::ffi::OsString;
use std::fs;
use std::os::unix::fs::FileTypeExt;
use std::path::{Path, PathBuf};

use lunette_api::objects::Document;
use lunette_files::Content;
use serde_json::Value;
use uuid::Uuid;

use crate::failure::Failure;
use crate::limits::{MAX_ATTEMPTS, MAX_SAVED_BYTES, MAX_SECRET_BYTES, MAX_STATE_BYTES};
use crate::model::Model;
use crate::saved::{self, MARK};
use crate::shell::{Found, World};
use crate::state::State;
use crate::translate::{self, Secrets, Surroundings};
use files::NewSecrets;
use server::{Sent, Served, Server};

const STATE: Content = Content { name: "the state of targetcli", max_bytes: MAX_STATE_BYTES };
const SAVED: Content = Content { name: "a saved configuration", max_bytes: MAX_SAVED_BYTES };
const SECRET: Content = Content { name: "a secret", max_bytes: MAX_SECRET_BYTES };

/// Where rtslib saves: as Debian has it, and as others do.
const SAVED_FILES: [&str; 2] = ["/etc/rtslib-fb-target/saveconfig.json", "/etc/target/saveconfig.json"];

/// The files of this program, by the variables of the environment that name others.
const STATE_FILE: (&str, &str) = ("LUNETTE_TARGETCLI_STATE", "/var/lib/lunette/targetcli.json");
const SECRETS: (&str, &str) = ("LUNETTE_TARGETCLI_SECRETS", "/etc/lunette/secrets");
const SAVED_FILE: &str = "LUNETTE_TARGETCLI_SAVECONFIG";

/// The server with the files that belong to it.
pub(crate) struct Machine {
    server: Server,
    state: PathBuf,
    secrets: PathBuf,
    /// Where the tree is saved, if the environment says it.
    saved: Option<PathBuf>,
}

impl Machine {
    /// The machine that the environment tells of.
    pub(crate) fn new() -> Result<Self, Failure> {
        let path = |(name, default): (&str, &str)| PathBuf::from(variable(name).unwrap_or_else(|| default.into()));
        Ok(Self {
            server: Server::new(&variable)?,
            state: path(STATE_FILE),
            secrets: path(SECRETS),
            saved: variable(SAVED_FILE).map(PathBuf::from),
        })
    }

    /// Does something with the tree, and makes its changes true: all of them, or none. Another program waits meanwhile.
    pub(crate) fn change<T>(
        &self,
        mut what: impl FnMut(&mut Model, &dyn World) -> Result<T, Failure>,
    ) -> Result<T, Failure> {
        let _lock = files::lock(&self.state).map_err(file_failure(&self.state))?;
        for _ in 0..MAX_ATTEMPTS {
            let served = self.server.read()?;
            let state = self.read_state()?;
            let here = Here { machine: self, served: &served };
            let before = translate::read(&served.objects, &state, &here);
            let mut after = before.clone();
            let done = what(&mut after, self)?;
            if after == before || self.make(&served, &before, &after, &state)? == Sent::Done {
                return Ok(done);
            }
        }
        Err(Failure::new("another client changes the same objects again and again; try it later"))
    }

    fn make(&self, served: &Served, before: &Model, after: &Model, state: &State) -> Result<Sent, Failure> {
        let mut secrets = NewSecrets::new(&self.secrets);
        let (changes, wanted) = translate::write(before, after, &mut secrets);
        if !changes.is_empty() {
            secrets.write().map_err(file_failure(&self.secrets))?;
            let sent = self.server.send(served, &changes);
            match sent {
                Ok(Sent::Done) => {}
                Ok(Sent::Changed) | Err(_) => {
                    secrets.remove();
                    return sent;
                }
                // An object may name the new secrets by now.
                Ok(Sent::Unknown) => {
                    return Err(Failure::new(
                        "the server has not answered, and may have made the change; look, and repeat it",
                    ));
                }
            }
            let used: BTreeSet<String> =
                changes.iter().filter_map(|change| change.document.as_ref()).flat_map(secret_files).collect();
            let old =
                changes.iter().filter_map(|change| served.objects.targets.get(&change.name)).flat_map(secret_files);
            files::remove_own(&self.secrets, old.filter(|file| !used.contains(file)));
        }
        if wanted != *state {
            let text = serde_json::to_string_pretty(&wanted).map_err(|error| Failure::new(error.to_string()))?;
            lunette_files::replace(&self.state, text.as_bytes()).map_err(file_failure(&self.state))?;
        }
        self.save_by_default(after)?;
        Ok(Sent::Done)
    }

    fn read_state(&self) -> Result<State, Failure> {
        match lunette_files::read_text(&self.state, STATE) {
            Ok(text) => serde_json::from_str(&text)
                .map_err(|error| Failure::new(format!("{}: {error}; move it away", self.state.display()))),
            Err(error) if error.is_missing() => Ok(State::default()),
            Err(error) => Err(Failure::new(error.to_string())),
        }
    }

    /// Saves the tree where the folders of LIO are.
    fn save_by_default(&self, model: &Model) -> Result<(), Failure> {
        let all = self
            .saved
            .iter()
            .cloned()
            .chain(SAVED_FILES.map(PathBuf::from).into_iter().filter(|_| self.saved.is_none()));
        for file in all.filter(|file| file.parent().is_some_and(Path::is_dir)) {
            save(&file, model)?;
        }
        Ok(())
    }

    /// Whether the tree is saved after each change.
    pub(crate) fn is_saved(&self) -> bool {
        Path::new(&self.saved_file()).parent().is_some_and(Path::is_dir)
    }
}

impl World for Machine {
    fn look_at(&self, path: &str) -> Found {
        let Ok(metadata) = fs::metadata(path) else { return Found::Nothing };
        if metadata.file_type().is_block_device() {
            Found::BlockDevice(is_read_only(&metadata))
        } else if metadata.is_file() {
            Found::File(metadata.len())
        } else {
            Found::Other
        }
    }

    fn new_serial(&self) -> String {
        Uuid::new_v4().to_string()
    }

    fn sessions(&self) -> Result<Vec<Value>, Failure> {
        self.server.sessions()
    }

    fn read_saved(&self, file: &str) -> Result<Option<String>, Failure> {
        match lunette_files::read_text(file.as_ref(), SAVED) {
            Ok(text) => Ok(Some(text)),
            Err(error) if error.is_missing() => Ok(None),
            Err(error) => Err(Failure::new(error.to_string())),
        }
    }

    fn save(&self, file: Option<&str>, model: &Model) -> Result<String, Failure> {
        let file = file.map_or_else(|| self.saved_file(), str::to_owned);
        save(file.as_ref(), model)?;
        Ok(file)
    }

    fn saved_file(&self) -> String {
        if let Some(file) = &self.saved {
            return file.display().to_string();
        }
        let there = SAVED_FILES.into_iter().find(|file| Path::new(file).parent().is_some_and(Path::is_dir));
        there.unwrap_or(SAVED_FILES[0]).into()
    }
}

/// The server at one time, with the machine around it.
struct Here<'a> {
    machine: &'a Machine,
    served: &'a Served,
}

impl Surroundings for Here<'_> {
    fn secret(&self, file: &str) -> Option<String> {
        // A credential of systemd is the server's alone.
        let bytes = lunette_files::read_secret(file.as_ref(), SECRET).ok()?;
        let text = String::from_utf8(bytes.to_vec()).ok()?;
        Some(text.trim_end_matches(['\n', '\r']).to_owned())
    }

    fn is_block_device(&self, path: &str) -> bool {
        matches!(self.machine.look_at(path), Found::BlockDevice(_))
    }

    fn size(&self, target: &str, lun: u16) -> Option<u64> {
        self.served.sizes.get(&(target.to_owned(), lun)).copied()
    }
}

impl Secrets for NewSecrets {
    fn file_for(&mut self, secret: &str) -> String {
        self.add(secret)
    }
}

/// Whether the kernel refuses writes to a block device.
fn is_read_only(device: &fs::Metadata) -> bool {
    use std::os::unix::fs::MetadataExt;
    let (major, minor) = (rustix::fs::major(device.rdev()), rustix::fs::minor(device.rdev()));
    fs::read_to_string(format!("/sys/dev/block/{major}:{minor}/ro")).is_ok_and(|text| text.trim() == "1")
}

/// Saves the tree in a file. One that LIO has written is kept beside it.
fn save(file: &Path, model: &Model) -> Result<(), Failure> {
    let failed = |error| file_failure(file)(error);
    let folder = file.parent().filter(|folder| !folder.as_os_str().is_empty());
    folder.map_or(Ok(()), fs::create_dir_all).map_err(failed)?;
    let text = serde_json::to_string_pretty(&saved::write(model)).map_err(|error| Failure::new(error.to_string()))?;
    if let Ok(old) = lunette_files::read_text(file, SAVED) {
        if old == text {
            return Ok(());
        }
        let is_ours = serde_json::from_str::<Value>(&old).is_ok_and(|old| old.get(MARK).is_some());
        let kept = file.with_extension("json.of-lio");
        if !is_ours && !old.trim().is_empty() && !kept.exists() {
            lunette_files::replace(&kept, old.as_bytes()).map_err(failed)?;
        }
    }
    lunette_files::replace(file, text.as_bytes()).map_err(failed)
}

/// The files of secrets that a target names.
fn secret_files(document: &Document) -> Vec<String> {
    let mut found = Vec::new();
    let mut left: Vec<&Value> = document.values().collect();
    while let Some(value) = left.pop() {
        match value {
            Value::Object(table) => {
                found.extend(table.get("secret_file").and_then(Value::as_str).map(str::to_owned));
                left.extend(table.values());
            }
            Value::Array(list) => left.extend(list),
            _ => {}
        }
    }
    found
}

fn file_failure(path: &Path) -> impl Fn(std::io::Error) -> Failure {
    move |error| Failure::new(format!("{}: {error}{}", path.display(), lunette_files::remedy(&error)))
}

/// A variable of the environment that is set and not empty.
fn variable(name: &str) -> Option<OsString> {
    env::var_os(name).filter(|value| !value.is_empty())
}
