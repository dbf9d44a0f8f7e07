//! targetcli and cinder-rtstool for a running Lunette: the commands by which people drive LIO, over the API.
//!
//! Layer 2: over api, files; under lunette.
//!
//! A command is a function of a tree of values (`model`). The tree is a view of the objects of the API, and a changed
//! tree is a change of them (`translate`). So there is one truth. What LIO has and Lunette has not stands in a small
//! file (`state`): storage objects without a LUN, and attributes without a meaning. `machine` is the only module
//! that reads, writes or sends anything.

#![forbid(unsafe_code)]

mod attributes;
mod commands;
mod failure;
pub mod limits;
mod line;
mod listing;
mod machine;
mod model;
mod node;
mod portal;
mod rtstool;
mod saved;
mod shell;
mod state;
mod targetcli;
mod translate;

use std::ffi::OsStr;
use std::path::Path;

/// A program of LIO as which this process can be started.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Program {
    /// `targetcli`.
    Targetcli,
    /// `cinder-rtstool`.
    CinderRtstool,
}

impl Program {
    /// The program that the first argument of a process names; `None` for any other name.
    pub fn of(argument: Option<&OsStr>) -> Option<Self> {
        match Path::new(argument?).file_name()?.to_str()? {
            "targetcli" => Some(Self::Targetcli),
            "cinder-rtstool" => Some(Self::CinderRtstool),
            _ => None,
        }
    }

    /// Runs the program with the arguments of the process. Returns its exit code.
    pub fn run(self) -> i32 {
        let arguments: Vec<String> =
            std::env::args_os().skip(1).map(|argument| argument.to_string_lossy().into_owned()).collect();
        match self {
            Self::Targetcli => targetcli::main(&arguments),
            Self::CinderRtstool => rtstool::main(&arguments),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_is_known_by_the_name_of_its_file() {
        for (name, expected) in [
            ("targetcli", Some(Program::Targetcli)),
            ("/usr/bin/targetcli", Some(Program::Targetcli)),
            ("/opt/x/cinder-rtstool", Some(Program::CinderRtstool)),
            ("/usr/bin/lunette", None),
            ("/usr/bin/targetcli/", Some(Program::Targetcli)),
            ("", None),
        ] {
            assert_eq!(Program::of(Some(OsStr::new(name))), expected, "{name}");
        }
        assert_eq!(Program::of(None), None);
    }
}
