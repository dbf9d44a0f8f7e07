//! Disks behind a URL: the arguments that all commands on them share, and how they are opened.

use std::sync::Arc;

use clap::Args;
use lunette_initiator::limits::{DEFAULT_BUFFER_BYTES, MAX_CONNECTIONS};
use lunette_initiator::{
    Disk, Error, Initiator, Options, PathStatus, Portal, RemoteStore, Session, Url, activate, wait,
};
use lunette_session::keys::Choices;
use lunette_volume::Volume;

use super::failure::{failure_at, remote_failure};
use crate::disks::encrypted::keys::Keys;
use crate::event_loop::EventLoop;
use crate::failure::Failure;
use crate::output;

const URL_HELP: &str = "iscsi://[USER@]HOST[:PORT][/TARGET[/LUN]][?PARAMETER=VALUE&...]";

/// The choice of CRC32C alone.
const CRC32C: Choices = Choices(0b10);

/// A remote disk, target or portal.
#[derive(Args)]
pub(crate) struct Remote {
    #[arg(value_name = "URL", value_parser = Url::parse, help = URL_HELP)]
    url: Url,
    /// Insist on CRC32C over headers
    #[arg(long)]
    header_digest: bool,
    /// Insist on CRC32C over data
    #[arg(long)]
    data_digest: bool,
    /// Connections of a session, as far as the target takes part (default: 1, or what the URL says)
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=MAX_CONNECTIONS as i64))]
    connections: Option<u32>,
    #[command(flatten)]
    event_loop: EventLoop,
}

impl Remote {
    pub(crate) fn portal(&self) -> Portal {
        self.url.portal()
    }

    /// The target of the URL, when it names one.
    pub(crate) fn target(&self) -> Option<&str> {
        self.url.target.as_deref()
    }

    pub(crate) fn options(&self) -> Result<Options, Failure> {
        let mut options = options(&self.url)?;
        if self.header_digest {
            options.offer.header_digest = CRC32C;
        }
        if self.data_digest {
            options.offer.data_digest = CRC32C;
        }
        if let Some(connections) = self.connections {
            options.offer.max_connections = connections;
        }
        Ok(options)
    }

    /// The failure of a request to the target of the URL.
    pub(crate) fn failure(&self, error: Error) -> Failure {
        failure_at(&self.url, error)
    }

    /// Starts the event loop that the command runs on.
    pub(crate) fn start(&self) -> Result<Initiator, Failure> {
        Initiator::with(DEFAULT_BUFFER_BYTES, self.event_loop.config()).map_err(remote_failure)
    }

    /// Logs in to the target.
    pub(crate) fn connect(&self, initiator: &Initiator) -> Result<Session, Failure> {
        wait(self.url.connect(initiator, self.options()?)).map_err(|error| self.failure(error))
    }

    /// Makes a path of the disk active.
    pub(crate) fn activate(&self, initiator: &Initiator, portal: &Portal) -> Result<Vec<PathStatus>, Failure> {
        wait(activate(initiator, &self.url, portal, self.options()?)).map_err(|error| self.failure(error))
    }

    /// Opens the disk as it is, and when the URL names keys the volume on it. A packed volume that is opened for
    /// writing is taken from the client that had it open, so commands that only read leave `writes` false.
    pub(crate) fn open_encrypted(
        &self,
        initiator: &Initiator,
        writes: bool,
    ) -> Result<(Disk, Option<Arc<Volume>>), Failure> {
        let mut url = self.url.clone();
        // Without keys there is no need to log in.
        let keys = url.keys.take().map(|keys| Keys::fetch(&keys)).transpose()?;
        let disk = open(&url, self.options()?, initiator)?;
        let open = |keys: Keys| {
            let read_only = !writes || disk.facts().read_only;
            keys.open(&url, Arc::new(RemoteStore::new(disk.clone())), read_only)
        };
        let volume = keys.map(open).transpose()?;
        Ok((disk, volume))
    }
}

/// Opens the disk that a URL names; LUN 0 by default.
pub(crate) fn open(url: &Url, options: Options, initiator: &Initiator) -> Result<Disk, Failure> {
    wait(Disk::of_url(initiator, url, options)).map_err(|error| failure_at(url, error))
}

/// The options that the URL gives for the session.
pub(crate) fn options(url: &Url) -> Result<Options, Failure> {
    if url.shows_secrets() {
        output::note(format_args!(
            "lunette: warning: other users of this machine can read the password in the URL; put it into \
             LUNETTE_CHAP_PASSWORD, or into a file and write chap_secret_file=FILE"
        ));
    }
    url.options().map_err(Failure::configuration)
}
