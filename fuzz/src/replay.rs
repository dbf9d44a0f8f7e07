//! Runs every fuzz target over its corpus and over pseudo-random inputs: the same inputs on every machine.

use std::fs;
use std::panic::{self, AssertUnwindSafe};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context, Result};
use clap::Parser;
use lunette_fuzz::input::Random;
use lunette_fuzz::{TARGETS, Target};

/// Runs fuzz targets without a fuzzer.
#[derive(Parser)]
struct Arguments {
    /// Pseudo-random inputs for each target, after its corpus.
    #[arg(long, value_name = "N", default_value_t = 0)]
    random: u64,
    /// Run this target alone.
    #[arg(long)]
    target: Option<String>,
    /// Run this input alone, with the target that `--target` names.
    #[arg(long, value_name = "FILE", requires = "target")]
    file: Option<PathBuf>,
    /// Write the corpora to start from and do nothing else.
    #[arg(long)]
    seed_corpus: bool,
}

fn main() -> Result<ExitCode> {
    let arguments = Arguments::parse();
    let chosen = |target: &&Target| arguments.target.as_ref().is_none_or(|name| name == target.name);
    let mut failed = 0;
    let mut passed = 0;
    for target in TARGETS.iter().filter(chosen) {
        if arguments.seed_corpus {
            write_seeds(target)?;
            continue;
        }
        let outcome = match &arguments.file {
            Some(file) => replay_file(target, file)?,
            None => replay(target, arguments.random)?,
        };
        match outcome {
            Ok(inputs) => {
                println!("{:22} {inputs} inputs", target.name);
                passed += 1;
            }
            Err(input) => {
                println!("{:22} FAILED; the input is in {}", target.name, input.display());
                failed += 1;
            }
        }
    }
    if !arguments.seed_corpus {
        println!("{passed} passed, {failed} failed");
    }
    Ok(if failed == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// The number of inputs that passed, or the file with the one that did not.
type Outcome = std::result::Result<u64, PathBuf>;

fn replay(target: &Target, random_inputs: u64) -> Result<Outcome> {
    let mut inputs = 0;
    for file in files(&corpus(target))? {
        if let Err(file) = replay_file(target, &file)? {
            return Ok(Err(file));
        }
        inputs += 1;
    }
    for seed in 0..random_inputs {
        let mut random = Random::new(seed);
        // One in eight is bytes without any structure.
        let input = if seed % 8 == 7 { random.some_bytes(512) } else { (target.random)(&mut random) };
        if !passes(target, &input) {
            let file = folder("artifacts").join(target.name).join(format!("random-{seed}"));
            save(&file, &input)?;
            return Ok(Err(file));
        }
        inputs += 1;
    }
    Ok(Ok(inputs))
}

fn replay_file(target: &Target, file: &Path) -> Result<Outcome> {
    let input = fs::read(file).with_context(|| format!("cannot read {}", file.display()))?;
    Ok(if passes(target, &input) { Ok(1) } else { Err(file.to_path_buf()) })
}

fn passes(target: &Target, input: &[u8]) -> bool {
    panic::catch_unwind(AssertUnwindSafe(|| (target.run)(input))).is_ok()
}

fn write_seeds(target: &Target) -> Result<()> {
    for (name, bytes) in (target.seeds)() {
        save(&corpus(target).join(name), &bytes)?;
    }
    Ok(())
}

fn save(file: &Path, bytes: &[u8]) -> Result<()> {
    let folder = file.parent().expect("files lie in a folder");
    fs::create_dir_all(folder).with_context(|| format!("cannot create {}", folder.display()))?;
    fs::write(file, bytes).with_context(|| format!("cannot write {}", file.display()))
}

/// The files of a folder, in a fixed order.
fn files(folder: &Path) -> Result<Vec<PathBuf>> {
    let entries = fs::read_dir(folder).with_context(|| format!("cannot read {}", folder.display()))?;
    let mut files = entries.map(|entry| Ok(entry?.path())).collect::<Result<Vec<_>>>()?;
    files.sort();
    Ok(files)
}

fn corpus(target: &Target) -> PathBuf {
    folder("corpus").join(target.name)
}

fn folder(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join(name)
}
