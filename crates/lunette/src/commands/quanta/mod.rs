//! `lunette quanta`: encrypted volumes, made and kept in order.

mod anchor;
mod blank;
mod format;
mod info;
mod progress;
mod recover;
mod rekey;
mod scrub;
mod verify;

use std::path::PathBuf;
use std::sync::Arc;

use clap::{Args, Subcommand};
use lunette_initiator::{KeyParameters, encryption};
use lunette_keys::source::KeySource;
use lunette_store::{OpenOptions, Store};
use lunette_volume::{Anchor, Found};

use crate::disks::encrypted::keys::{Keys, volume_failure};
use crate::disks::{DiskName, memory};
use crate::failure::Failure;
use crate::size::Size;

pub(crate) use info::HeaderReport;

const AFTER_HELP: &str = "\
DISK is a file, a block device, iscsi://HOST/TARGET/LUN, or an export of an NBD server. Keys are given by options, or behind
DISK as other commands take them: ?keys=file:KEYS&passphrase_file=FILE. docs/encryption.md tells what encryption protects from, and docs/quanta.md has the
format.

Exit codes: 0 done, 1 other failure, 2 bad usage, 3 keys that cannot be used, 5 the disk cannot be opened or has no volume, 6 a
request to the disk failed, 7 quanta are not whole.";

const KEYS_HELP: &str = "The volume's key file: file:PATH, or kmip://HOST[:PORT]/NAME for one in a key server";

/// Make encrypted volumes, and keep them in order.
#[derive(Args)]
#[command(after_help = AFTER_HELP)]
pub(crate) struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    Anchor(anchor::MakeAnchor),
    Format(format::Format),
    Info(info::Info),
    Verify(verify::Verify),
    Rekey(rekey::Rekey),
    Recover(recover::Recover),
    Scrub(scrub::Scrub),
}

pub(crate) fn run(arguments: &Arguments) -> Result<(), Failure> {
    match &arguments.command {
        Command::Anchor(arguments) => anchor::run(arguments),
        Command::Format(arguments) => format::run(arguments),
        Command::Info(arguments) => info::run(arguments),
        Command::Verify(arguments) => verify::run(arguments),
        Command::Rekey(arguments) => rekey::run(arguments),
        Command::Recover(arguments) => recover::run(arguments),
        Command::Scrub(arguments) => scrub::run(arguments),
    }
}

/// The disk with the volume, and where its keys are.
#[derive(Args)]
struct Keyed {
    /// A file, a block device, iscsi://HOST/TARGET/LUN, nbd://HOST/NAME, or nbd+unix:///NAME?socket=PATH
    #[arg(value_name = "DISK")]
    disk: DiskName,
    // No documentation comment: rustdoc takes the brackets for links.
    #[arg(long, value_name = "PLACE", help = KEYS_HELP)]
    keys: Option<String>,
    /// The file that holds the passphrase of the key file
    #[arg(long, value_name = "FILE", requires = "keys", conflicts_with = "passphrase_credential")]
    passphrase_file: Option<PathBuf>,
    /// The systemd credential that holds the passphrase of the key file
    #[arg(long, value_name = "NAME", requires = "keys")]
    passphrase_credential: Option<String>,
    /// The folder with ca-cert.pem, client-cert.pem and client-key.pem, for key servers
    #[arg(long, value_name = "DIR", requires = "keys")]
    tls: Option<PathBuf>,
    /// The file that says which version of each quantum was seen last: what is older is refused
    #[arg(long, value_name = "FILE", requires = "keys")]
    anchor: Option<PathBuf>,
}

impl Keyed {
    /// Where the keys are, when that is given.
    fn source(&self) -> Result<Option<KeySource>, Failure> {
        let source = self.parameters()?.as_ref().map(encryption::key_source).transpose();
        source.map_err(|error| Failure::Usage(error.to_string()))
    }

    fn parameters(&self) -> Result<Option<KeyParameters>, Failure> {
        let given = self.keys.clone().map(|keys| KeyParameters {
            keys,
            passphrase_file: self.passphrase_file.clone(),
            passphrase_credential: self.passphrase_credential.clone(),
            tls: self.tls.clone(),
            anchor: self.anchor.clone(),
        });
        match (given, &self.disk.keys) {
            (Some(_), Some(_)) => {
                Err(Failure::Usage("keys are given behind the disk and by --keys; leave out one of them".into()))
            }
            (given, behind) => Ok(given.or_else(|| behind.clone())),
        }
    }

    /// The file of the anchor, when one is given.
    fn anchor(&self) -> Result<Option<PathBuf>, Failure> {
        Ok(self.parameters()?.and_then(|parameters| parameters.anchor))
    }

    /// The anchor, to compare a volume with.
    fn open_anchor(&self, found: &Found) -> Result<Option<Anchor>, Failure> {
        let open =
            |path: PathBuf| Anchor::open(&path, found.header(), true).map_err(|error| self.failure(&error.into()));
        self.anchor()?.map(open).transpose()
    }

    /// Where the keys are.
    fn needed_source(&self) -> Result<KeySource, Failure> {
        let missing = || Failure::Usage("say where the volume's keys are: --keys file:PATH".into());
        self.source()?.ok_or_else(missing)
    }

    /// The keys.
    fn keys(&self) -> Result<Keys, Failure> {
        Keys::of(self.needed_source()?, self.anchor()?)
    }

    /// Opens the disk as it is. A missing file is created with this length.
    fn unit(&self, read_only: bool, create: Option<Size>) -> Result<Arc<dyn Store>, Failure> {
        if self.disk.place.named_len().is_some() {
            return Err(Failure::Usage(memory::ENDS_WITH_THE_COMMAND.into()));
        }
        let create = create.map(|Size(bytes)| bytes);
        let options = OpenOptions { create, read_only, any_length: true, ..OpenOptions::default() };
        Ok(self.disk.place.open(&options)?.store)
    }

    /// Finds the volume without keys.
    fn find(&self, unit: &Arc<dyn Store>) -> Result<Found, Failure> {
        lunette_volume::find(unit).map_err(|error| self.failure(&error))
    }

    fn failure(&self, error: &lunette_volume::VolumeError) -> Failure {
        volume_failure(&self.disk.place, error)
    }
}
