//! The steps of one walk.

use std::collections::BTreeMap;
use std::fs;
use std::process::Child;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::thread;
use std::time::{Duration, Instant};

use super::ground::{Ground, POOL};
use super::model::{VOLUME_BYTES, check};
use super::writer::{Numbers, Writer};
use crate::hostile::dice::Dice;
use crate::initiator::attach;

/// Kills of a walk.
const ROUNDS: usize = 5;

/// The longest time from the beginning of an action to the kill.
const MOST_MICROSECONDS: usize = 60_000;

/// The volumes that the writer writes to, in this order.
const WRITTEN: [&str; 2] = ["a", "b"];

/// The volume that is rolled back, and its snapshot.
const ROLLED: &str = "rolled";
const BASE: &str = "base";

struct Walk {
    dice: Dice,
    shows: bool,
    ground: Ground,
    numbers: Arc<Numbers>,
    /// The snapshots of both written volumes, with their contents.
    snapshots: BTreeMap<String, [Vec<u8>; 2]>,
    /// The volumes that have the content of a snapshot of the first volume: clones, and those that were received.
    copies: BTreeMap<String, Vec<u8>>,
    next_name: usize,
}

/// Something that is done with volumes while the server is killed.
enum Action {
    /// Takes a snapshot of both volumes; the numbers that were acknowledged before.
    Snapshot { name: String, before: [u64; 2] },
    /// Makes a clone of a snapshot.
    Clone { name: String, of: String },
    /// Sends a snapshot to a new volume.
    Send { name: String, of: String },
    /// Rolls a volume back. It has one of these contents afterwards.
    RollBack { before: Vec<u8>, after: Vec<u8> },
    /// Removes a snapshot of the first volume.
    RemoveSnapshot(String),
    /// Removes a copy.
    RemoveCopy(String),
}

/// Makes the walk of a seed.
pub(super) fn walk(seed: u64, shows: bool) {
    let mut ground = Ground::new();
    for volume in WRITTEN.into_iter().chain([ROLLED]) {
        ground.volume(&format!("create {POOL}/{volume} --size {VOLUME_BYTES}"));
    }
    ground.volume(&format!("snapshot {BASE} {POOL}/{ROLLED}"));
    ground.stop();
    let lun = |(number, volume): (usize, &str)| format!("{{ number = {number}, disk = \"volume:{POOL}/{volume}\" }}");
    ground.write_target(&WRITTEN.into_iter().enumerate().map(lun).collect::<Vec<_>>().join(", "));
    ground.start(WRITTEN.len());
    let mut walk = Walk {
        dice: Dice::new(seed),
        shows,
        ground,
        numbers: Arc::default(),
        snapshots: BTreeMap::new(),
        copies: BTreeMap::new(),
        next_name: 0,
    };
    let mut last = 0;
    for _ in 0..ROUNDS {
        last = walk.round(last);
    }
    walk.ground.stop();
}

impl Walk {
    /// Does something with volumes under load, and kills the server. Gives the number that both volumes have.
    fn round(&mut self, last: u64) -> u64 {
        let start = Instant::now();
        let mut initiator = attach(self.ground.server(), &[]);
        for lun in [0, 1] {
            while initiator.test_unit_ready(lun).status != 0 {}
        }
        let writer = Writer::start(initiator, Arc::clone(&self.numbers), last);
        let action = self.action();
        let child = self.begin(&action);
        let is_done = self.kill_in_its_midst(child);
        writer.wait();
        self.ground.start(WRITTEN.len());
        if self.shows {
            println!("{}: {} ms", action.text(), start.elapsed().as_millis());
        }
        self.check_action(&action, is_done);
        self.check_all()
    }

    /// Kills the server at some moment, also after the end of the action. Whether it has ended well.
    fn kill_in_its_midst(&mut self, child: Child) -> bool {
        let output = if self.dice.one_in(4) {
            let output = child.wait_with_output();
            self.ground.kill();
            output
        } else {
            thread::sleep(Duration::from_micros(self.dice.below(MOST_MICROSECONDS) as u64));
            self.ground.kill();
            child.wait_with_output()
        };
        output.expect("the command ends").status.success()
    }

    fn name(&mut self) -> String {
        self.next_name += 1;
        format!("n{}", self.next_name)
    }

    fn action(&mut self) -> Action {
        let (snapshots, copies) = (self.snapshots.len(), self.copies.len());
        // What needs something that is not there is not drawn.
        let if_any = |weight: usize, count: usize| if count == 0 { 0 } else { weight };
        let weights = [4, if_any(2, snapshots), if_any(2, snapshots), 2, if_any(1, snapshots), if_any(1, copies)];
        let of = |dice: &mut Dice, names: Vec<&String>| names[dice.below(names.len())].clone();
        match self.dice.weighted(&weights) {
            0 => {
                let before = [0, 1].map(|volume| self.numbers.acknowledged[volume].load(Ordering::SeqCst));
                Action::Snapshot { name: self.name(), before }
            }
            1 => Action::Clone { name: self.name(), of: of(&mut self.dice, self.snapshots.keys().collect()) },
            2 => Action::Send { name: self.name(), of: of(&mut self.dice, self.snapshots.keys().collect()) },
            3 => {
                let (now, base) = (self.ground.image(ROLLED, None), self.ground.image(ROLLED, Some(BASE)));
                let before = vec![self.dice.next() as u8; VOLUME_BYTES as usize];
                fs::write(now, &before).expect("an image that no one serves");
                Action::RollBack { before, after: fs::read(base).expect("an image") }
            }
            4 => Action::RemoveSnapshot(of(&mut self.dice, self.snapshots.keys().collect())),
            _ => Action::RemoveCopy(of(&mut self.dice, self.copies.keys().collect())),
        }
    }

    fn begin(&self, action: &Action) -> Child {
        let [a, b] = WRITTEN;
        let line = match action {
            Action::Snapshot { name, .. } => format!("$V snapshot {name} {POOL}/{a} {POOL}/{b}"),
            Action::Clone { name, of } => format!("$V clone {POOL}/{a}@{of} {POOL}/{name}"),
            Action::Send { name, of } => format!("$V send {POOL}/{a}@{of} | $V receive {POOL}/{name}"),
            Action::RollBack { .. } => format!("$V rollback {POOL}/{ROLLED}@{BASE} --wait"),
            Action::RemoveSnapshot(name) => format!("$V rm {POOL}/{a}@{name}"),
            Action::RemoveCopy(name) => format!("$V rm {POOL}/{name}"),
        };
        self.ground.begin(&[&line])
    }

    /// Checks what has become of the action, and takes it over.
    fn check_action(&mut self, action: &Action, is_done: bool) {
        match action {
            Action::Snapshot { name, before } => {
                let there = [0, 1].map(|volume| self.content(WRITTEN[volume], Some(name)));
                match there {
                    [Some(a), Some(b)] => {
                        let heads = [&a, &b].map(|content| check(content).expect("a snapshot of one instant"));
                        let most = self.numbers.begun.load(Ordering::SeqCst);
                        assert!(heads[0] >= before[0] && heads[1] >= before[1], "{heads:?} after {before:?}");
                        assert!(heads[0] - heads[1] <= 1 && heads[0] <= most, "{heads:?} up to {most}");
                        self.snapshots.insert(name.clone(), [a, b]);
                    }
                    [None, None] => assert!(!is_done, "the snapshot {name} was taken"),
                    _ => panic!("one volume alone has the snapshot {name}"),
                }
            }
            Action::Clone { name, of } | Action::Send { name, of } => match self.content(name, None) {
                Some(content) if !self.is_unfinished(name) => {
                    assert!(content == self.snapshots[of][0], "{name} is not like {of}");
                    self.copies.insert(name.clone(), content);
                }
                Some(content) => {
                    // Its end may be all that it lacks.
                    if self.content(name, Some(of)).is_some() {
                        assert!(content == self.snapshots[of][0], "{name} is not like {of}");
                        self.ground.volume(&format!("rm {POOL}/{name}@{of}"));
                    }
                    self.ground.volume(&format!("rm {POOL}/{name}"));
                }
                None => assert!(!is_done, "the volume {name} was made"),
            },
            Action::RollBack { before, after } => {
                let now = self.content(ROLLED, None).expect("the volume that is rolled back");
                assert!(now == *after || !is_done && now == *before, "the roll back is torn or has not happened");
            }
            Action::RemoveSnapshot(name) => {
                if self.content(WRITTEN[0], Some(name)).is_none() {
                    self.snapshots.remove(name);
                } else {
                    assert!(!is_done, "the snapshot {name} was removed");
                }
            }
            Action::RemoveCopy(name) => {
                if self.content(name, None).is_none() {
                    self.copies.remove(name);
                } else {
                    assert!(!is_done, "the volume {name} was removed");
                }
            }
        }
    }

    /// Checks all that there is. Gives the number that both volumes have.
    fn check_all(&self) -> u64 {
        assert_eq!(self.ground.leftovers(), [""; 0]);
        let heads = [0, 1].map(|volume| {
            let content = self.content(WRITTEN[volume], None).expect("the volume of the writer");
            let head = check(&content).expect("a volume that one writer has written");
            let acknowledged = self.numbers.acknowledged[volume].load(Ordering::SeqCst);
            assert!(head >= acknowledged, "{head} is there, and {acknowledged} was acknowledged");
            head
        });
        for (name, contents) in &self.snapshots {
            for (volume, content) in WRITTEN.into_iter().zip(contents) {
                assert!(self.content(volume, Some(name)).as_ref() == Some(content), "{volume}@{name} has changed");
            }
        }
        for (name, content) in &self.copies {
            assert!(self.content(name, None).as_ref() == Some(content), "{name} has changed");
        }
        heads[0].min(heads[1])
    }

    /// The content of a volume or snapshot that the server knows.
    fn content(&self, volume: &str, snapshot: Option<&str>) -> Option<Vec<u8>> {
        let (list, name) = match snapshot {
            Some(snapshot) => (format!("ls {POOL}/{volume}"), snapshot),
            None => (format!("ls {POOL}"), volume),
        };
        let known = self.ground.volume(&list);
        let is_there = known.as_array().expect("a list").iter().any(|one| one["name"] == name);
        let image = self.ground.image(volume, snapshot);
        assert_eq!(image.exists(), is_there, "{}", image.display());
        is_there.then(|| fs::read(image).expect("an image"))
    }

    fn is_unfinished(&self, volume: &str) -> bool {
        self.ground.volume(&format!("show {POOL}/{volume}"))["filling"] == true
    }
}

impl Action {
    fn text(&self) -> String {
        match self {
            Self::Snapshot { name, .. } => format!("snapshot {name}"),
            Self::Clone { name, of } => format!("clone {name} of {of}"),
            Self::Send { name, of } => format!("send {of} to {name}"),
            Self::RollBack { .. } => "roll back".into(),
            Self::RemoveSnapshot(name) => format!("remove snapshot {name}"),
            Self::RemoveCopy(name) => format!("remove {name}"),
        }
    }
}
