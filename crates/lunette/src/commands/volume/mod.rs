//! `lunette volume`: a client of the pools of a running server.

mod moving;
mod names;
mod print;
mod take_over;

use clap::{Args, Subcommand};
use lunette_api::client::{Condition, path};
use lunette_api::volumes::{Labels, NewVolume, SnapshotOrder, VolumeChange};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;

use super::cp::End;
use super::ctl::{Server, To};
use crate::failure::Failure;
use crate::size::Size;
use moving::{check_is_here, copy, create as create_from, receive, send};
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

A copy on another machine, and what was changed since then:
  lunette volume send tank/db@monday | ssh backup lunette volume receive safe/db
  lunette volume send tank/db@tuesday --since monday | ssh backup lunette volume receive safe/db

Exit codes: 0 done, 1 the server cannot be reached, or has failed, 2 bad usage, 3 the server refuses the request, 5 blocks cannot be
opened, 6 a read or write failed, or a stream is cut or damaged. With --wait, 1 also when the job has failed or was cancelled.";

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
    /// Create a volume, of zeroes or with the content of a disk or a stream
    Create {
        #[arg(value_name = "POOL/VOLUME")]
        volume: VolumePath,
        /// The length [default: that of the content]
        #[arg(long, required_unless_present_any = ["from", "take_over"])]
        size: Option<Size>,
        /// Copy what it is to have from a file, a block device, iscsi://HOST/TARGET/LUN, or - for standard input
        #[arg(long, value_name = "SRC")]
        from: Option<End>,
        /// Serve this disk at once, and copy it in the background: a file, a device, or a URL as of a LUN
        #[arg(long, value_name = "DISK", conflicts_with_all = ["from", "full"])]
        take_over: Option<String>,
        /// Wait until all of that disk is copied
        #[arg(long, requires = "take_over", conflicts_with_all = ["from", "full"])]
        wait: bool,
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
    /// Send a snapshot, or what it changed since another one, to standard output
    Send(send::Arguments),
    /// Receive what `send` sends from standard input: as a new volume, or as the changes of one
    Receive(receive::Arguments),
    /// Copy a snapshot, or what it changed since another one, to a file or disk
    Copy(Box<copy::Arguments>),
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
        Command::Create { volume, size, full, from, take_over, wait, new } => {
            let wanted = NewVolume { size_bytes: size.as_ref().map(|size| size.0), full: *full, ..new.wanted() };
            match (from, take_over) {
                (None, None) => create(&server, volume, &wanted),
                (_, Some(source)) => take_over::run(&server, volume, source, wanted, *wait),
                (Some(from), None) => {
                    check_is_here(&arguments.to)?;
                    create_from::run(&server, volume, from, wanted)
                }
            }
        }
        Command::Send(send) => {
            check_is_here(&arguments.to)?;
            send::run(&server, send, arguments.json)
        }
        Command::Receive(receive) => {
            check_is_here(&arguments.to)?;
            receive::run(&server, receive)
        }
        Command::Copy(copy) => {
            check_is_here(&arguments.to)?;
            copy::run(&server, copy)
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
            snapshot.check_is_snapshot()?;
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

/// An answer of the server as what it is.
fn value<T: DeserializeOwned>(answer: Value) -> Result<T, Failure> {
    serde_json::from_value(answer).map_err(|error| Failure::other(format!("the server gives another answer: {error}")))
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
