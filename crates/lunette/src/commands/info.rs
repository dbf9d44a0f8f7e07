//! `lunette info`: everything about one remote disk.

pub(crate) mod negotiated;
pub(crate) mod paths;

use clap::Args;
use lunette_initiator::{Disk, Error, wait};
use lunette_scsi::{OpCode, ServiceAction, requests};
use serde::Serialize;

use crate::commands::quanta::HeaderReport;
use crate::disks::iscsi::remote::Remote;
use crate::failure::Failure;
use crate::output;
use crate::size::shown;
use negotiated::Negotiated;
use paths::PathReport;

const AFTER_HELP: &str = "\
Exit codes: 0 done, 1 other failure, 2 bad usage, 3 bad secret or keys, 5 the target cannot be reached, refuses, or it is no
disk that is ready, 6 a request failed.";

/// Show identity, capacity, limits and session of a remote disk.
#[derive(Args)]
#[command(after_help = AFTER_HELP)]
pub(crate) struct Arguments {
    #[command(flatten)]
    remote: Remote,
    /// Print one JSON object
    #[arg(long)]
    json: bool,
}

pub(crate) fn run(arguments: &Arguments) -> Result<(), Failure> {
    let initiator = arguments.remote.start()?;
    let (disk, volume) = arguments.remote.open_encrypted(&initiator, false)?;
    let commands = wait(commands(&disk)).ok();
    let mut info = Info::new(&disk, commands.unwrap_or_default());
    info.volume = volume.map(|volume| HeaderReport::new(&volume.header()));
    if arguments.json { output::json(&info) } else { info.lines().into_iter().try_for_each(output::line) }
}

/// The names of the supported commands, none when the disk does not report them.
async fn commands(disk: &Disk) -> Result<Vec<String>, Error> {
    const LEN: u32 = 64 * 1024;
    let mut request = lunette_initiator::Request::new(disk.lun(), requests::report_supported_opcodes(LEN));
    request.data_in = Some(disk.session().buffer(LEN as usize)?);
    let data = disk.execute(request).await.into_data()?;
    let list = data.and_then(|data| lunette_scsi::answers::supported_opcodes(&data)).unwrap_or_default();
    Ok(list.into_iter().map(command_name).collect())
}

fn command_name((opcode, action): (OpCode, Option<ServiceAction>)) -> String {
    let name = opcode.name().map_or_else(|| format!("{:#04x}", opcode.0), Into::into);
    match action {
        Some(action) => format!("{name}/{:#04x}", action.0),
        None => name,
    }
}

/// The column of names.
const NAME_CHARACTERS: usize = 24;

#[derive(Serialize)]
struct Info {
    vendor: String,
    product: String,
    revision: String,
    serial_number: Option<String>,
    name: Option<String>,
    target_alias: Option<String>,
    bytes: u64,
    block_bytes: u32,
    physical_block_bytes: u64,
    read_only: bool,
    removable: bool,
    volatile_cache: bool,
    thin: bool,
    unmap: bool,
    unmapped_reads_zero: bool,
    max_transfer_blocks: u32,
    max_unmap_blocks: u32,
    max_write_same_blocks: u64,
    max_compare_and_write_blocks: u8,
    session: Negotiated,
    /// The paths, when the URL asks for several.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    paths: Vec<PathReport>,
    commands: Vec<String>,
    /// The encrypted volume on the disk, when the URL names its keys.
    #[serde(skip_serializing_if = "Option::is_none")]
    volume: Option<HeaderReport>,
}

impl Info {
    fn new(disk: &Disk, commands: Vec<String>) -> Self {
        let facts = disk.facts();
        Self {
            vendor: facts.inquiry.vendor.clone(),
            product: facts.inquiry.product.clone(),
            revision: facts.inquiry.revision.clone(),
            serial_number: facts.serial_number.clone(),
            name: facts.name.clone(),
            target_alias: disk.session().target_alias().map(Into::into),
            bytes: facts.len_bytes(),
            block_bytes: facts.block_len(),
            physical_block_bytes: facts.physical_block_len(),
            read_only: facts.read_only,
            removable: facts.inquiry.removable,
            volatile_cache: facts.volatile_cache,
            thin: facts.capacity.provisioned,
            unmap: facts.can_unmap(),
            unmapped_reads_zero: facts.provisioning.unmapped_zero,
            max_transfer_blocks: facts.limits.max_transfer,
            max_unmap_blocks: facts.limits.max_unmap_blocks,
            max_write_same_blocks: facts.limits.max_write_same,
            max_compare_and_write_blocks: facts.limits.max_compare_and_write,
            session: Negotiated::new(disk.session().parameters()),
            paths: disk.paths().iter().map(PathReport::new).collect(),
            commands,
            volume: None,
        }
    }

    fn lines(&self) -> Vec<String> {
        let text = |value: &Option<String>| value.clone().unwrap_or_else(|| "-".into());
        let mut rows = vec![
            ("vendor, product", format!("{} {} {}", self.vendor, self.product, self.revision)),
            ("serial number", text(&self.serial_number)),
            ("name", text(&self.name)),
            ("target alias", text(&self.target_alias)),
            ("size", format!("{}, blocks of {}", shown(self.bytes), self.block_bytes)),
            ("physical block", format!("{} bytes", self.physical_block_bytes)),
            ("read only", yes(self.read_only).into()),
            ("removable", yes(self.removable).into()),
            ("volatile cache", yes(self.volatile_cache).into()),
            ("thin", yes(self.thin).into()),
            ("unmap", yes(self.unmap).into()),
            ("unmapped reads zero", yes(self.unmapped_reads_zero).into()),
            ("max transfer", blocks(self.max_transfer_blocks.into())),
            ("max unmap", blocks(self.max_unmap_blocks.into())),
            ("max write same", blocks(self.max_write_same_blocks)),
            ("max compare and write", blocks(self.max_compare_and_write_blocks.into())),
        ];
        rows.extend(self.session.rows());
        rows.extend(self.paths.iter().map(|path| ("path", path.to_string())));
        rows.extend(wrapped("commands", &self.commands));
        let volume = self.volume.iter().flat_map(HeaderReport::rows);
        let volume = volume.map(|(name, value)| (if name == "volume" { "encrypted volume" } else { name }, value));
        rows.extend(volume);
        rows.into_iter().map(|(name, value)| format!("{name:<NAME_CHARACTERS$}{value}")).collect()
    }
}

/// The widest line of a list.
const LINE_CHARACTERS: usize = 100;

/// A list in rows, of which the first has the name.
fn wrapped(name: &'static str, items: &[String]) -> Vec<(&'static str, String)> {
    let mut rows: Vec<(&'static str, String)> = Vec::new();
    for item in items {
        match rows.last_mut() {
            Some((_, row)) if NAME_CHARACTERS + row.len() + ", ".len() + item.len() < LINE_CHARACTERS => {
                row.push_str(", ");
                row.push_str(item);
            }
            Some((_, row)) => {
                row.push(',');
                rows.push(("", item.clone()));
            }
            None => rows.push((name, item.clone())),
        }
    }
    rows
}

fn yes(value: bool) -> &'static str {
    if value { "yes" } else { "no" }
}

fn blocks(count: u64) -> String {
    if count == 0 { "not told".into() } else { format!("{count} blocks") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_list_stays_within_the_width_of_a_line_and_loses_nothing() {
        let items: Vec<String> = (0..60).map(|at| format!("COMMAND ({at})")).collect();
        let rows = wrapped("commands", &items);
        assert!(
            rows.len() > 5 && rows.iter().all(|(_, row)| NAME_CHARACTERS + row.len() <= LINE_CHARACTERS),
            "{rows:?}"
        );
        assert_eq!(rows.iter().map(|(name, _)| *name).collect::<String>(), "commands");
        assert_eq!(
            rows.iter().map(|(_, row)| row.trim_end_matches(',')).collect::<Vec<_>>().join(", "),
            items.join(", ")
        );
        assert!(wrapped("commands", &[]).is_empty());
    }
}
