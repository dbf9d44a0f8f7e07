//! `cargo xtask package`: a Debian package with all that belongs to an installation.

mod architecture;
mod trial;

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};

use anyhow::{Context, Result, bail};

use crate::licences::{self, Workspace};
use crate::packages;
use crate::process::{self, cargo, root, target_dir};
use architecture::Architecture;

/// Where `Cargo.toml` of the command looks for what is made here, in the folder of the profile.
const STAGE: &str = "package";

/// The shells, and the names that their completions are installed under.
const COMPLETIONS: [(&str, &str); 3] = [("bash", "lunette"), ("zsh", "_lunette"), ("fish", "lunette.fish")];

/// A Debian package with all that belongs to an installation, made by cargo-deb.
#[derive(clap::Args)]
pub(crate) struct Arguments {
    /// Install, start, upgrade, remove and purge it in a clean Debian system, and try docs/operations.md there.
    /// Requires root.
    #[arg(long)]
    trial: bool,
    /// The architecture of Debian that the package is for. Another than this system's is cross-built.
    #[arg(long, value_enum, default_value_t, conflicts_with = "trial")]
    architecture: Architecture,
}

/// Builds the package, and tries it where that is asked for. A trial takes the command as the tests run it.
pub(crate) fn run(arguments: &Arguments) -> Result<ExitCode> {
    need_tool("cargo-deb", "deb")?;
    need_tool("cargo-cyclonedx", "cyclonedx")?;
    packages::provide_for_packaging()?;
    if arguments.trial {
        trial::run(&Build::new("dev", Architecture::default())?)?;
    } else {
        println!("{}", Build::new("release", arguments.architecture)?.package("1")?.display());
    }
    Ok(ExitCode::SUCCESS)
}

/// The command, built, and what is packaged with it.
struct Build {
    profile: &'static str,
    architecture: Architecture,
}

impl Build {
    fn new(profile: &'static str, architecture: Architecture) -> Result<Self> {
        licences::step()?;
        architecture.provide()?;
        let build = Self { profile, architecture };
        let mut command = cargo(["build", "--locked", "--profile", profile, "--workspace", "--bin", "lunette"]);
        process::run(architecture.cross(&mut command))?;
        build.stage()?;
        Ok(build)
    }

    fn folder(&self) -> PathBuf {
        self.architecture.folder(target_dir()).join(if self.profile == "dev" { "debug" } else { self.profile })
    }

    fn command(&self) -> PathBuf {
        self.folder().join("lunette")
    }

    /// Makes manual pages, completions, and the lists of what the command contains.
    fn stage(&self) -> Result<()> {
        let stage = self.folder().join(STAGE);
        if stage.exists() {
            fs::remove_dir_all(&stage)?;
        }
        let (man, completions) = (stage.join("man"), stage.join("completions"));
        fs::create_dir_all(&man)?;
        fs::create_dir_all(&completions)?;
        process::run(self.architecture.start(&self.command()).arg("man").arg(&man))?;
        configuration_page(&man)?;
        compress(&man)?;
        for (shell, name) in COMPLETIONS {
            let file = File::create(completions.join(name))?;
            process::run(self.architecture.start(&self.command()).args(["completions", shell]).stdout(file))?;
        }
        let workspace = Workspace::read()?;
        fs::write(stage.join("LICENSES.txt"), workspace.texts()?)?;
        bill_of_materials(&workspace, &stage.join("lunette.cdx.json"))
    }

    /// The package with this Debian revision, in a folder of its own, and without faults that lintian finds.
    fn package(&self, revision: &str) -> Result<PathBuf> {
        let folder = self.folder().join("debian").join(revision);
        if folder.exists() {
            fs::remove_dir_all(&folder)?;
        }
        fs::create_dir_all(&folder)?;
        let mut command = cargo(["deb", "--no-build", "--no-dbgsym", "--strip", "--package", "lunette"]);
        self.architecture.cross(&mut command);
        command.args(["--profile", self.profile, "--deb-revision", revision, "--output"]).arg(&folder);
        process::run(&mut command)?;
        let made = fs::read_dir(&folder)?
            .next()
            .with_context(|| format!("cargo-deb leaves nothing in {}", folder.display()))?;
        let package = made?.path();
        process::run(Command::new("lintian").args(["--fail-on", "error", "--tag-display-limit", "0"]).arg(&package))?;
        Ok(package)
    }
}

/// Makes the manual page of the configuration file from its reference.
fn configuration_page(man: &Path) -> Result<()> {
    let reference = fs::read_to_string(root().join("docs/configuration.md"))?;
    let source = man.join("lunette.toml.md");
    fs::write(
        &source,
        format!("# Name\n\nlunette.toml - configuration of the iSCSI target of lunette(1)\n\n{reference}"),
    )?;
    let mut command = Command::new("lowdown");
    command.args(["-s", "-Tman", "--nroff-nolinks", "-mtitle=lunette.toml", "-msection=5", "-o"]);
    process::run(command.arg(man.join("lunette.toml.5")).arg(&source))?;
    Ok(fs::remove_file(source)?)
}

/// Debian's pages are compressed; without a name and a time in them, the same pages give the same package.
fn compress(man: &Path) -> Result<()> {
    let pages = fs::read_dir(man)?.map(|page| Ok(page?.path())).collect::<Result<Vec<_>>>()?;
    process::run(Command::new("gzip").args(["--best", "--no-name"]).args(pages))
}

/// Has cargo-cyclonedx list what the command contains. It writes a list for each member of the workspace, beside its
/// manifest.
fn bill_of_materials(workspace: &Workspace, file: &Path) -> Result<()> {
    const NAME: &str = "lunette-sbom";
    let arguments = ["cyclonedx", "--format", "json", "--no-build-deps", "--override-filename", NAME, "--quiet"];
    process::run(&mut cargo(arguments))?;
    let written = format!("{NAME}.json");
    fs::copy(root().join("crates/lunette").join(&written), file)
        .context("cargo-cyclonedx has left no list of the command")?;
    for member in workspace.members() {
        let _ = fs::remove_file(member.join(&written));
    }
    Ok(())
}

fn need_tool(tool: &str, subcommand: &str) -> Result<()> {
    let mut command = cargo([subcommand, "--version"]);
    if command.stdout(Stdio::null()).stderr(Stdio::null()).status().is_ok_and(|status| status.success()) {
        return Ok(());
    }
    bail!("a package needs {tool}; install it: cargo install {tool} --locked");
}
