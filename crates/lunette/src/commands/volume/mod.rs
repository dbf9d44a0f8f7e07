//! `lunette volume`: a client of the pools of a running server.

mod names;
mod print;

use clap::{Args, Subcommand};
use lunette_api::client::{Condition, path};
use lunette_api::volumes::{Labels, NewVolume, SnapshotOrder, VolumeChange};
use serde::Serialize;
use serde_json::Value;

use super::ctl::{Server, To};
use crate::failure::Failure;
use crate::size::Size;
use names::{InPool, Label, SnapshotPath, VolumePath};

const AFTER_HELP: &str = "\
A volume is named POOL/VOLUME, and a snapshot of it POOL/VOLUME@SNAPSHOT.

A golden image and two clones of it:
  lunette volume create tank/golden --size 20G
  lunette volume snapshot v1 tank/golden
  lunette volume clone tank/golden@v1 tank/web-1
  lunette volume clone tank/golden@v1 tank/web-2

To serve a volume, name it in place of a file:
  lunette ctl add targets/iqn.2026-11.org.example:web/luns/0 disk=volume:tank/web-1

Exit codes: 0 done, 1 the server cannot be reached, or has failed, 2 bad usage, 3 the server refuses the request. With --wait,
1 also when the job has failed or was cancelled.";

/// Show and change the volumes of a running server's pools
///
/// The server's configuration names the pools, in tables `[[pool]]`. It is found as by `lunette ctl`.
#[derive(Args)]
#[command(after_help = AFTER_HELP)]
pub(crate) struct Arguments {
    #[command(flatten)]
    to: To,
    /// Print JSON
    #[arg(long, global = true)]
    json: bool,
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// List the pools, with their space
    Pools,
    /// List all volumes, those of POOL, or the snapshots of POOL/VOLUME
    Ls {
        #[arg(value_name = "POOL[/VOLUME]")]
        of: Option<InPool>,
    },
    /// Show a volume, with the space that it occupies
    Show {
        #[arg(value_name = "POOL/VOLUME")]
        volume: VolumePath,
    },
    /// Create a volume of zeroes
    Create {
        #[arg(value_name = "POOL/VOLUME")]
        volume: VolumePath,
        /// The length
        #[arg(long)]
        size: Size,
        /// Take all of its space at once
        #[arg(long)]
        full: bool,
        #[command(flatten)]
        new: New,
    },
    /// Create a volume with the content of another, or of a snapshot, of the same pool
    Clone {
        #[arg(value_name = "POOL/VOLUME[@SNAPSHOT]")]
        origin: SnapshotPath,
        #[arg(value_name = "POOL/VOLUME")]
        volume: VolumePath,
        /// Make it longer than its origin
        #[arg(long)]
        size: Option<Size>,
        #[command(flatten)]
        new: New,
    },
    /// Give a volume another length
    Resize {
        #[arg(value_name = "POOL/VOLUME")]
        volume: VolumePath,
        #[arg(value_name = "SIZE")]
        size: Size,
        /// Make it shorter, too, and lose what is beyond
        #[arg(long)]
        force: bool,
    },
    /// Give a volume another name
    Rename {
        #[arg(value_name = "POOL/VOLUME")]
        volume: VolumePath,
        #[arg(value_name = "VOLUME")]
        name: String,
    },
    /// Give a volume these labels instead of those that it has
    Label {
        #[arg(value_name = "POOL/VOLUME")]
        volume: VolumePath,
        #[arg(value_name = "KEY=VALUE")]
        labels: Vec<Label>,
    },
    /// Remove a volume without snapshots, or a snapshot
    Rm {
        #[arg(value_name = "POOL/VOLUME[@SNAPSHOT]")]
        path: SnapshotPath,
    },
    /// Take a snapshot of one or several volumes at one instant
    Snapshot {
        #[arg(value_name = "SNAPSHOT")]
        name: String,
        #[arg(value_name = "POOL/VOLUME", required = true)]
        volumes: Vec<VolumePath>,
        /// A word for it; may be repeated
        #[arg(long = "label", value_name = "KEY=VALUE")]
        labels: Vec<Label>,
    },
    /// Give a volume the content of its snapshot; its content of before becomes a snapshot, too
    Rollback {
        #[arg(value_name = "POOL/VOLUME@SNAPSHOT")]
        snapshot: SnapshotPath,
        /// Wait for the end
        #[arg(long)]
        wait: bool,
    },
    /// Give a clone blocks of its own, so that it depends on no other volume
    Flatten {
        #[arg(value_name = "POOL/VOLUME")]
        volume: VolumePath,
        /// Wait for the end
        #[arg(long)]
        wait: bool,
    },
}

/// The options of a new volume.
#[derive(Args)]
struct New {
    /// The serial number by which initiators know it [default: one that is drawn]
    #[arg(long)]
    serial: Option<String>,
    /// A word for it; may be repeated
    #[arg(long = "label", value_name = "KEY=VALUE")]
    labels: Vec<Label>,
}

pub(crate) fn run(arguments: &Arguments) -> Result<(), Failure> {
    let server = arguments.to.server(arguments.json)?;
    match &arguments.command {
        Command::Pools => {
            let pools = server.get("/v1/pools")?.value;
            server.print(&pools, print::pools)
        }
        Command::Ls { of } => list(&server, of.as_ref()),
        Command::Show { volume } => {
            let shown = server.get(&volume.url(&[]))?.value;
            server.print(&shown, print::object)
        }
        Command::Create { volume, size, full, new } => {
            let wanted = NewVolume { size_bytes: Some(size.0), full: *full, ..new.wanted() };
            create(&server, volume, &wanted)
        }
        Command::Clone { origin, volume, size, new } => {
            if origin.pool() != volume.pool() {
                return Err(Failure::Usage(format!(
                    "{volume} is not in the pool of {origin}; a clone shares its blocks"
                )));
            }
            let size_bytes = size.as_ref().map(|size| size.0);
            let wanted = NewVolume { clone_of: Some(origin.in_pool()), size_bytes, ..new.wanted() };
            create(&server, volume, &wanted)
        }
        Command::Resize { volume, size, force } => {
            let change = VolumeChange { size_bytes: Some(size.0), force: *force, ..VolumeChange::default() };
            self::change(&server, volume, &change)
        }
        Command::Rename { volume, name } => {
            self::change(&server, volume, &VolumeChange { name: Some(name.clone()), ..VolumeChange::default() })
        }
        Command::Label { volume, labels } => {
            self::change(&server, volume, &VolumeChange { labels: Some(all(labels)), ..VolumeChange::default() })
        }
        Command::Rm { path } => {
            server.send("DELETE", &path.url(&[]), None, Condition::Always)?;
            server.print(&serde_json::json!({ "removed": path.to_string() }), |_| format!("{path} is removed\n"))
        }
        Command::Snapshot { name, volumes, labels } => {
            let volumes = volumes.iter().map(ToString::to_string).collect();
            let order = SnapshotOrder { volumes, name: name.clone(), labels: all(labels) };
            let taken = server.send("POST", &path(&["snapshots"]), Some(&json(&order)?), Condition::Always)?.value;
            server.print(&taken, print::taken)
        }
        Command::Rollback { snapshot, wait } => {
            if !snapshot.is_snapshot() {
                return Err(Failure::Usage(format!("{snapshot} names no snapshot; write POOL/VOLUME@SNAPSHOT")));
            }
            server.start(&snapshot.url(&["actions", "rollback"]), *wait)
        }
        Command::Flatten { volume, wait } => server.start(&volume.url(&["actions", "flatten"]), *wait),
    }
}

impl New {
    fn wanted(&self) -> NewVolume {
        NewVolume { serial: self.serial.clone(), labels: all(&self.labels), ..NewVolume::default() }
    }
}

fn all(labels: &[Label]) -> Labels {
    labels.iter().map(|Label(key, value)| (key.clone(), value.clone())).collect()
}

fn json(value: &impl Serialize) -> Result<Value, Failure> {
    serde_json::to_value(value).map_err(Failure::other)
}

fn list(server: &Server, of: Option<&InPool>) -> Result<(), Failure> {
    match of {
        None => {
            let volumes = server.get("/v1/volumes")?.value;
            server.print(&volumes, print::volumes)
        }
        Some(InPool::All(pool)) => {
            let volumes = server.get(&format!("/v1/volumes?pool={pool}"))?.value;
            server.print(&volumes, print::volumes)
        }
        Some(InPool::One(volume)) => {
            let snapshots = server.get(&volume.url(&["snapshots"]))?.value;
            server.print(&snapshots, print::snapshots)
        }
    }
}

fn create(server: &Server, volume: &VolumePath, wanted: &NewVolume) -> Result<(), Failure> {
    let created = server.send("POST", &volume.url(&[]), Some(&json(wanted)?), Condition::Always)?.value;
    server.print(&created, print::object)
}

fn change(server: &Server, volume: &VolumePath, change: &VolumeChange) -> Result<(), Failure> {
    let changed = server.send("PATCH", &volume.url(&[]), Some(&json(change)?), Condition::Always)?.value;
    server.print(&changed, print::object)
}
