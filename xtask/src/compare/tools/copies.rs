//! `lunette cp` beside `qemu-img convert`, between a target and a file in memory.
//!
//! The target, whose disk is in memory, too, and the two tools run on both CPUs. Both tools flush at their end.

use std::ffi::OsString;
use std::fs;
use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::Result;

use super::{Contest, Side, Turn};
use crate::compare::child::Child;
use crate::compare::contestant::{Lunette, Stage, lunette};
use crate::compare::disks::DiskFile;

/// The length of the disk in bytes: long enough for clock ticks to tell the CPU time of a copy.
const LEN: u64 = 1 << 30;

/// The longest time that a copy may take.
const COPY_LIMIT: Duration = Duration::from_mins(2);

/// Our speed should be at least this, beside that of `qemu-img`.
const SOLID: f64 = 1.3;

#[derive(Clone, Copy)]
enum Direction {
    ToFile,
    ToTarget,
}

/// The copy, and its rival.
struct Course {
    name: &'static str,
    direction: Direction,
    /// Another process takes as much CPU time as it gets.
    busy: bool,
}

const COURSES: [Course; 4] = [
    Course { name: "copy from a target to a file", direction: Direction::ToFile, busy: false },
    Course { name: "copy from a target to a file, busy machine", direction: Direction::ToFile, busy: true },
    Course { name: "copy from a file to a target", direction: Direction::ToTarget, busy: false },
    Course { name: "copy from a file to a target, busy machine", direction: Direction::ToTarget, busy: true },
];

pub(super) fn measure(stage: &Stage, rounds: u32) -> Result<Vec<Contest>> {
    let places = Places::prepare(stage)?;
    let mut contests = COURSES.map(|course| Contest {
        load: course.name,
        ours: Side::new("lunette cp"),
        theirs: Side::new("qemu-img"),
        solid: SOLID,
    });
    for round in 1..=rounds {
        eprintln!("copies, round {round} of {rounds}");
        for (course, contest) in COURSES.iter().zip(&mut contests) {
            let _other = course.busy.then(|| busy_process(stage)).transpose()?;
            contest.ours.turns.push(places.copy(stage, &lunette(), places.ours(course.direction))?);
            contest.theirs.turns.push(places.copy(stage, Path::new("qemu-img"), places.theirs(course.direction))?);
        }
    }
    Ok(contests.into())
}

/// A process that never waits.
fn busy_process(stage: &Stage) -> Result<Child> {
    stage.start("busy", stage.both_cpus(), Path::new("sh"), ["-c", "while :; do :; done"].map(Into::into).into())
}

/// Where the copies come from and go to.
struct Places {
    source: DiskFile,
    target: Lunette,
}

impl Places {
    fn prepare(stage: &Stage) -> Result<Self> {
        let source = DiskFile::of_len("copies", LEN)?;
        let target = Lunette::start_anywhere(stage, "serve-copies", LEN)?;
        target.fill(stage, source.path())?;
        Ok(Self { source, target })
    }

    /// The file that is made by copies, and removed after each.
    fn made(&self) -> OsString {
        self.source.path().with_extension("made").into()
    }

    /// Source and destination.
    fn ends(&self, direction: Direction) -> [OsString; 2] {
        let url = OsString::from(&self.target.url);
        match direction {
            Direction::ToFile => [url, self.made()],
            Direction::ToTarget => [self.source.path().into(), url],
        }
    }

    fn ours(&self, direction: Direction) -> Vec<OsString> {
        [&["cp".into()][..], &self.ends(direction)].concat()
    }

    /// Without `-t writeback`, `qemu-img` does not flush.
    fn theirs(&self, direction: Direction) -> Vec<OsString> {
        let exists: &[OsString] = match direction {
            Direction::ToFile => &[],
            Direction::ToTarget => &["-n".into()],
        };
        let options = ["convert", "-f", "raw", "-O", "raw", "-t", "writeback"].map(OsString::from);
        [&options, exists, &self.ends(direction)].concat()
    }

    fn copy(&self, stage: &Stage, program: &Path, arguments: Vec<OsString>) -> Result<Turn> {
        let started = Instant::now();
        let ended = stage.start("copy", stage.both_cpus(), program, arguments)?.finish(COPY_LIMIT);
        let speed = 1.0 / started.elapsed().as_secs_f64();
        // Not every copy makes it.
        let _ = fs::remove_file(self.made());
        Ok(Turn { speed, cpu_us: ended?.cpu.as_secs_f64() * 1e6 })
    }
}
