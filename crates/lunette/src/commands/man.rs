//! `lunette man`: the manual pages, from the definitions of the arguments.

use std::path::PathBuf;

use clap::{Args, CommandFactory};
use lunette_files::remedy;

use crate::Cli;
use crate::failure::Failure;

/// Write the manual pages into a folder: one for the command, and one for each subcommand
#[derive(Args)]
#[command(hide = true)]
pub(crate) struct Arguments {
    /// The folder, which must exist
    #[arg(value_name = "DIR")]
    folder: PathBuf,
}

pub(crate) fn run(arguments: &Arguments) -> Result<(), Failure> {
    clap_mangen::generate_to(Cli::command(), &arguments.folder)
        .map_err(|error| Failure::other(format!("{}: {error}{}", arguments.folder.display(), remedy(&error))))
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn each_subcommand_has_a_page_and_hidden_ones_have_none() {
        let folder = tempfile::tempdir().unwrap();
        run(&Arguments { folder: folder.path().into() }).unwrap();
        let exists = |page: &str| folder.path().join(page).is_file();
        assert!(exists("lunette.1"));
        for subcommand in Cli::command().get_subcommands() {
            let page = format!("lunette-{}.1", subcommand.get_name());
            assert_eq!(exists(&page), !subcommand.is_hide_set(), "{page}");
        }
        let page = fs::read_to_string(folder.path().join("lunette-ctl-apply.1")).unwrap();
        assert!(page.contains(r"\-\-prune"), "{page}");
    }
}
