//! `lunette import`: the configuration of another target as one of ours.

mod ctl;
mod draft;
mod files;
mod general;
mod lio;
mod objects;
mod report;
mod scst;
mod stanzas;
mod tgt;
mod tree;

use std::path::{Path, PathBuf};

use clap::{Args, ValueEnum};
use serde::Serialize;

use crate::config;
use crate::failure::Failure;
use crate::output;
use files::{Folder, NewFile};
use general::Reader;
use report::Imported;

const AFTER_HELP: &str = "\
The configuration is printed on standard output. What has no equivalent stands in its comments and on standard error: read that before you
serve. One thing that cannot be taken over is left out, and the rest is printed. No initiator is let in that was kept out.
Disks keep their paths and serial numbers; initiators that identify a disk by other descriptors (VPD page 83h) find new ones.

Files that targets.conf includes are read, too. With --conf-d each target and portal becomes an object of the API, which lunette ctl and the
console can change; what is left for the main file is printed.

Exit codes: 0 success, also when something was left out, 1 other failure, 2 bad usage, 3 the file cannot be read or understood.";

/// Words of `targets.conf` outside of blocks, as Debian's own file has one.
const TGT_WORDS: [&str; 4] = ["include", "default-driver", "incomingdiscoveryuser", "outgoingdiscoveryuser"];

/// The first character of files that some editors write.
const BYTE_ORDER_MARK: char = '\u{feff}';

/// Where secrets are expected when they are not written.
const DEFAULT_SECRETS: &str = "/etc/lunette/secrets";

/// Turn the configuration of LIO, tgt, SCST or FreeBSD's ctld into one for lunette serve.
#[derive(Args)]
#[command(after_help = AFTER_HELP)]
pub(crate) struct Arguments {
    /// saveconfig.json, targets.conf, scst.conf or ctl.conf
    file: PathBuf,
    /// Which program the file is for [default: by its content]
    #[arg(long, value_name = "PROGRAM")]
    from: Option<Program>,
    /// Write the secrets of CHAP to files in DIR, which is made when it is missing; without it, none is written
    #[arg(long, value_name = "DIR")]
    secrets: Option<PathBuf>,
    /// Write each target and portal to a file of its own in DIR, such as /etc/lunette/conf.d; files that are there stay
    /// as they are
    #[arg(long, value_name = "DIR")]
    conf_d: Option<PathBuf>,
    /// Print one JSON object: the configuration, what was left out, and the files of secrets
    #[arg(long)]
    json: bool,
}

/// A program whose configuration is understood.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Program {
    /// The kernel's target: saveconfig.json of targetcli
    Lio,
    /// targets.conf of tgt-admin
    Tgt,
    /// scst.conf of scstadmin
    Scst,
    /// ctl.conf of FreeBSD's ctld
    Ctl,
}

impl Program {
    /// The program that the text is for, as far as it shows.
    fn of(text: &str) -> Option<Self> {
        let first_words = || text.lines().filter_map(|line| line.split_whitespace().next());
        if text.trim_start().starts_with('{') {
            Some(Self::Lio)
        } else if first_words().any(|word| matches!(word, "TARGET_DRIVER" | "HANDLER")) {
            Some(Self::Scst)
        } else if first_words().any(|word| word.starts_with('<') || TGT_WORDS.contains(&&*word.to_ascii_lowercase())) {
            Some(Self::Tgt)
        } else if first_words().any(|word| matches!(word, "target" | "portal-group" | "auth-group" | "lun")) {
            Some(Self::Ctl)
        } else {
            None
        }
    }

    /// Imports a text of a file in `folder`, from which files that it includes are found.
    fn import(self, text: &str, folder: &Path, secrets: &Path) -> Result<Imported, String> {
        let mut imported = Imported::new(secrets);
        match self {
            Self::Lio => lio::import(text, imported),
            Self::Tgt => {
                let mut reader = Reader::new(folder);
                let statements = reader.statements(text, None)?;
                for (place, what) in reader.problems {
                    imported.note(place, what);
                }
                Ok(tgt::import(&statements, imported))
            }
            Self::Scst => scst::import(text, imported),
            Self::Ctl => ctl::import(text, imported),
        }
    }
}

/// The output of `--json`.
#[derive(Serialize)]
struct Printed<'a> {
    configuration: &'a str,
    left_out: Vec<String>,
    secret_files: Vec<&'a Path>,
    secrets_written: bool,
}

pub(crate) fn run(arguments: &Arguments) -> Result<(), Failure> {
    let failed = |what: &dyn std::fmt::Display| Failure::configuration(format!("{}: {what}", arguments.file.display()));
    let text = config::read_bounded(&arguments.file)?;
    let text = text.strip_prefix(BYTE_ORDER_MARK).unwrap_or(&text);
    let program = arguments.from.or_else(|| Program::of(text));
    let program = program.ok_or_else(|| failed(&"it is not clear which program this is for; say so with --from"))?;
    let folder = arguments.secrets.as_deref().unwrap_or(Path::new(DEFAULT_SECRETS));
    let beside = arguments.file.parent().unwrap_or(Path::new(""));
    let mut imported = program.import(text, beside, folder).map_err(|why| failed(&why))?;
    let mut configuration = imported.finish().map_err(|why| failed(&why))?;
    let mut folders = Vec::new();
    if arguments.secrets.is_some() {
        let secret = |(path, secret): (&Path, &str)| NewFile { path: path.into(), content: secret.into(), mode: 0o600 };
        let files = imported.secrets().map(secret).collect();
        folders.push(Folder { path: folder, mode: 0o700, option: "--secrets", files });
    }
    if let Some(folder) = &arguments.conf_d {
        let (rest, files) = objects::files(folder, &configuration)?;
        folders.push(Folder { path: folder, mode: 0o755, option: "--conf-d", files });
        configuration = rest;
    }
    files::write(&folders)?;
    if arguments.conf_d.is_some() {
        let objects = folders.last().into_iter().flat_map(|folder| &folder.files);
        objects.for_each(|file| output::note(format_args!("written: {}", file.path.display())));
    }
    let comments: Vec<String> = imported.notes().map(|note| format!("# left out: {note}\n")).collect();
    let configuration = comments.concat() + &configuration;
    let secrets_written = arguments.secrets.is_some();
    if arguments.json {
        return output::json(&Printed {
            configuration: &configuration,
            left_out: imported.notes().map(ToString::to_string).collect(),
            secret_files: imported.secrets().map(|(path, _)| path).collect(),
            secrets_written,
        });
    }
    for note in imported.notes() {
        output::note(format_args!("left out: {note}"));
    }
    for (path, _) in imported.secrets().filter(|_| !secrets_written) {
        output::note(format_args!("not written (see --secrets): {}", path.display()));
    }
    output::line(configuration.trim_end())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_program_shows_in_the_text() {
        for (text, program) in [
            (" {\"targets\": []}", Some(Program::Lio)),
            ("# a comment\n<target iqn.a>\n</target>", Some(Program::Tgt)),
            ("# Debian's own\ninclude /etc/tgt/conf.d/*.conf\n", Some(Program::Tgt)),
            ("HANDLER vdisk_fileio {\n}", Some(Program::Scst)),
            ("portal-group pg0 {\n}", Some(Program::Ctl)),
            ("something else", None),
        ] {
            assert_eq!(Program::of(text), program, "{text}");
        }
    }
}
