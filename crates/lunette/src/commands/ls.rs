//! `lunette ls`: targets, portals and logical units.

use clap::Args;
use lunette_initiator::{Disk, Error, Initiator, Options, Portal, Session, TargetRecord, discover, wait};
use lunette_pdu::text::printable;
use lunette_scsi::Lun;
use serde::Serialize;

use crate::disks::iscsi::failure::remote_failure;
use crate::disks::iscsi::remote::Remote;
use crate::failure::Failure;
use crate::output;
use crate::size::shown;

const AFTER_HELP: &str = "\
With iscsi://HOST[:PORT] it lists all targets that the portal shows to this initiator; with a target in the URL, only that.

Exit codes: 0 all was listed, 1 some targets could not be asked, 2 bad usage, 3 bad secret, 5 the portal cannot be reached
or refuses, 6 a request failed.";

/// List targets, their portals and their disks.
#[derive(Args)]
#[command(after_help = AFTER_HELP)]
pub(crate) struct Arguments {
    #[command(flatten)]
    remote: Remote,
    /// Targets and portals only: log in to none
    #[arg(long)]
    no_luns: bool,
    /// Print one JSON array
    #[arg(long)]
    json: bool,
}

#[derive(Serialize)]
struct Target {
    name: String,
    portals: Vec<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    luns: Option<Vec<Unit>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    error: Option<String>,
}

#[derive(Serialize)]
struct Unit {
    lun: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    bytes: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    block_bytes: Option<u32>,
    kind: String,
}

pub(crate) fn run(arguments: &Arguments) -> Result<(), Failure> {
    let initiator = arguments.remote.start()?;
    let (portal, options) = (arguments.remote.portal(), arguments.remote.options()?);
    let records = match arguments.remote.target() {
        Some(name) => vec![TargetRecord::new(name)],
        None => wait(discover(&initiator, &portal, options.clone())).map_err(remote_failure)?,
    };
    let lister = Lister { initiator, portal, options, log_in: !arguments.no_luns };
    let mut targets = Vec::new();
    for record in records {
        targets.push(match lister.units_of(&record) {
            // The user asked for this target alone.
            Err(error) if arguments.remote.target().is_some() => return Err(arguments.remote.failure(error)),
            Err(error) => Target { error: Some(error.to_string()), ..lister.without_units(record) },
            Ok(luns) => Target { luns, ..lister.without_units(record) },
        });
    }
    print(&targets, arguments.json)?;
    let failed = targets.iter().filter(|target| target.error.is_some()).count();
    if failed > 0 {
        return Err(Failure::other(format_args!("{failed} of {} targets could not be asked", targets.len())));
    }
    Ok(())
}

struct Lister {
    initiator: Initiator,
    /// The portal that discovery used. Logins go there, because it is known to be reachable.
    portal: Portal,
    options: Options,
    log_in: bool,
}

impl Lister {
    fn without_units(&self, TargetRecord { name, addresses, .. }: TargetRecord) -> Target {
        let shown = |text: &String| printable(text).into_owned();
        let portals =
            if addresses.is_empty() { vec![self.portal.to_string()] } else { addresses.iter().map(shown).collect() };
        Target { name: shown(&name), portals, luns: None, error: None }
    }

    /// The logical units, when they are wanted.
    fn units_of(&self, record: &TargetRecord) -> Result<Option<Vec<Unit>>, Error> {
        self.log_in.then(|| wait(self.units(&record.name))).transpose()
    }

    async fn units(&self, name: &str) -> Result<Vec<Unit>, Error> {
        let session = Session::connect(&self.initiator, &self.portal, name, self.options.clone()).await?;
        let mut units = Vec::new();
        for lun in session.luns().await? {
            units.push(unit(&session, lun).await?);
        }
        session.close().await?;
        Ok(units)
    }
}

/// Describes a logical unit: a disk with its size, or the error. A target that does not answer is not asked for its
/// other units.
async fn unit(session: &Session, lun: Lun) -> Result<Unit, Error> {
    Ok(match Disk::open(session.clone(), lun).await {
        Ok(disk) => {
            let facts = disk.facts();
            let kind = match (facts.read_only, facts.inquiry.removable) {
                (true, _) => "disk, read only",
                (false, true) => "disk, removable",
                (false, false) => "disk",
            };
            let (bytes, block_bytes) = (Some(facts.len_bytes()), Some(facts.block_len()));
            Unit { lun: lun.to_string(), bytes, block_bytes, kind: kind.into() }
        }
        Err(error) if error.is_an_answer() => {
            // The peripheral device type stands beside it.
            let kind = if let Error::NotADisk { what, .. } = error { what } else { error.to_string() };
            Unit { lun: lun.to_string(), bytes: None, block_bytes: None, kind }
        }
        Err(error) => return Err(error),
    })
}

fn print(targets: &[Target], json: bool) -> Result<(), Failure> {
    if json {
        return output::json(&targets);
    }
    for target in targets {
        output::line(format_args!("{}  {}", target.name, target.portals.join(" ")))?;
        for unit in target.luns.iter().flatten() {
            match (unit.bytes, unit.block_bytes) {
                (Some(bytes), Some(block)) => {
                    output::line(format_args!(
                        "  LUN {}: {}, {} in blocks of {block}",
                        unit.lun,
                        unit.kind,
                        shown(bytes)
                    ))?;
                }
                _ => output::line(format_args!("  LUN {}: {}", unit.lun, unit.kind))?,
            }
        }
        if let Some(error) = &target.error {
            output::line(format_args!("  {error}"))?;
        }
    }
    Ok(())
}
