//! The steps of one walk.

use std::fs::File;
use std::time::{Duration, Instant};

use lunette_testkit::{Outcome, ScriptedInitiator, Sense};

use super::ground::Ground;
use super::model::{Model, PAGE, filled};
use crate::hostile::dice::Dice;
use crate::process::wait_until;

/// Steps of a walk.
const STEPS: usize = 12;

/// The most pages that one command reads.
const READ_PAGES: usize = 64;

/// Pages of the disk at the start, and at most.
const START_PAGES: usize = 512;
const MOST_PAGES: usize = 2048;

/// The longest time that a server takes to give up what it has tried.
const LIMIT: Duration = Duration::from_secs(20);

/// Blocks of the disk in a page.
const BLOCKS: usize = PAGE as usize / 512;

const UNIT_ATTENTION: u8 = 6;
const OUT_OF_RANGE: Sense = (5, 0x21, 0);
const NOT_READY: Sense = (2, 4, 3);
const DATA_PROTECT: u8 = 7;
const MEDIUM_ERROR: u8 = 3;

struct Walk {
    dice: Dice,
    shows: bool,
    ground: Ground,
    initiator: ScriptedInitiator,
    model: Model,
    /// The next number to write, so that no two pages hold the same.
    next_number: u64,
    /// Commands may fail with other errors than those of lengths.
    may_fail: bool,
}

/// A step, and how often it comes.
type Step = (&'static str, usize, fn(&mut Walk));

const ALL: [Step; 16] = [
    ("read and write", 8, Walk::load),
    ("flush", 4, Walk::flush),
    ("grow", 2, Walk::grow),
    ("cut", 2, Walk::cut),
    ("cut to nothing", 1, Walk::empty),
    ("odd length", 1, Walk::odd),
    ("replace", 2, Walk::replace),
    ("fill", 1, Walk::fill),
    ("free", 1, Walk::free),
    ("reload", 1, Walk::reload),
    ("refused change", 1, Walk::refused),
    ("restart", 1, Walk::restart),
    ("kill", 2, Walk::kill),
    ("mount again", 1, Walk::mount_again),
    ("remount read-only and back", 1, Walk::remount),
    ("failure of the file system", 1, Walk::fail),
];

/// Makes the walk of a seed.
pub(super) fn walk(seed: u64, shows: bool) {
    let mut dice = Dice::new(seed);
    let ground = Ground::new(START_PAGES, dice.one_in(3));
    let initiator = ground.attach();
    let model = Model::of([0; START_PAGES]);
    let mut walk = Walk { dice, shows, ground, initiator, model, next_number: 1, may_fail: false };
    walk.load();
    for _ in 0..STEPS {
        let (name, _, step) = ALL[walk.dice.weighted(&ALL.map(|(_, weight, _)| weight))];
        walk.take(name, step);
        walk.load();
    }
    walk.free();
    walk.take("restart", Walk::restart);
    walk.take("verify", Walk::verify);
    walk.leave();
    walk.ground.stop();
}

impl Walk {
    fn take(&mut self, name: &str, step: fn(&mut Self)) {
        let (before, pages) = (Instant::now(), self.model.len());
        step(self);
        if self.shows {
            println!("{name}: {pages} pages, {} ms", before.elapsed().as_millis());
        }
    }

    fn number(&mut self) -> u64 {
        self.next_number += 1;
        self.next_number
    }

    /// Executes a command until it has no unit attention to tell.
    fn command(&mut self, command: impl Fn(&mut ScriptedInitiator) -> Outcome) -> Outcome {
        loop {
            let outcome = command(&mut self.initiator);
            if outcome.status != 2 || outcome.sense().0 != UNIT_ATTENTION {
                return outcome;
            }
        }
    }

    fn read(&mut self, page: usize, pages: usize) -> Outcome {
        self.command(|initiator| initiator.read(0, lba(page), (pages * BLOCKS) as u16))
    }

    fn check(&mut self, page: usize, pages: usize) {
        let outcome = self.read(page, pages);
        assert_eq!(outcome.status, 0, "page {page} of {} cannot be read: {:02x?}", self.model.len(), outcome.sense);
        for (number, bytes) in outcome.data.chunks(PAGE as usize).enumerate() {
            self.model.read(page + number, bytes);
        }
    }

    fn write(&mut self, page: usize) {
        let number = self.number();
        let outcome = self.command(|initiator| initiator.write(0, lba(page), filled(number)));
        assert!(outcome.status == 0 || self.is_expected(&outcome), "{outcome:02x?}");
        self.model.write(page, number, outcome.status == 0);
    }

    fn is_expected(&self, outcome: &Outcome) -> bool {
        self.may_fail && [DATA_PROTECT, MEDIUM_ERROR].contains(&outcome.sense().0)
    }

    fn load(&mut self) {
        for _ in 0..self.dice.below(30) {
            let page = self.dice.below(self.model.len());
            if self.dice.one_in(2) { self.write(page) } else { self.check(page, 1) }
        }
    }

    fn verify(&mut self) {
        for page in (0..self.model.len()).step_by(READ_PAGES) {
            self.check(page, READ_PAGES.min(self.model.len() - page));
        }
        let beyond = self.read(self.model.len(), 1);
        assert_eq!(ended(&beyond), Some(OUT_OF_RANGE));
    }

    fn flush(&mut self) {
        let outcome = self.command(|initiator| initiator.synchronize_cache(0));
        if outcome.status == 0 {
            self.model.flush();
        } else {
            assert!(self.is_expected(&outcome), "{outcome:02x?}");
        }
    }

    fn set_len(&self, bytes: u64) {
        let file = File::options().write(true).open(self.ground.disk()).expect("the file is there");
        file.set_len(bytes).expect("a length that it may have");
        // A file system that fails would give it its old length again.
        file.sync_all().expect("a file system that works");
    }

    fn grow(&mut self) {
        let len = (self.model.len() + 1 + self.dice.below(200)).min(MOST_PAGES);
        self.set_len(len as u64 * PAGE);
        let log = self.ground.reload();
        if log.contains("cannot be made longer") {
            // A fully provisioned disk finds no space.
            assert!(self.may_fail, "{log}");
            self.set_len(self.model.len() as u64 * PAGE);
            // A trouble that stands is not logged again, and the next one has the same text.
            self.ground.reload();
        } else {
            self.model.resize(len);
        }
    }

    fn cut(&mut self) {
        let len = 1 + self.dice.below(self.model.len());
        if len == self.model.len() {
            return;
        }
        let is_noticed = self.ground.server().log().matches("has become shorter").count() + 1;
        self.set_len(len as u64 * PAGE);
        let beyond = len + self.dice.below(self.model.len() - len);
        let outcome = self.read(beyond, 1);
        assert_eq!(ended(&outcome), Some(OUT_OF_RANGE), "no zeroes beyond the end");
        self.ground.server().await_log("has become shorter", is_noticed);
        self.model.resize(len);
        let outcome = self.command(|initiator| initiator.write(0, lba(beyond), filled(1)));
        assert_eq!(ended(&outcome), Some(OUT_OF_RANGE));
        assert_eq!(std::fs::metadata(self.ground.disk()).expect("it is there").len(), len as u64 * PAGE);
    }

    /// A length without a block, and the one before again.
    fn empty(&mut self) {
        let len = self.model.len();
        self.set_len(0);
        self.await_ready(Some(NOT_READY));
        self.set_len(len as u64 * PAGE);
        self.await_ready(None);
        self.model = Model::of(vec![0; len]);
        self.verify();
    }

    /// Waits until the disk ends TEST UNIT READY like this.
    fn await_ready(&mut self, sense: Option<Sense>) {
        let mut is_so = || (ended(&self.command(|initiator| initiator.test_unit_ready(0))) == sense).then_some(());
        assert!(wait_until(LIMIT, &mut is_so).is_some(), "it does not become {sense:02x?}");
    }

    /// A length that is no whole block, and its correction.
    fn odd(&mut self) {
        let whole = self.model.len() as u64 * PAGE;
        let part = 1 + self.dice.below(511) as u64;
        self.set_len(whole + part);
        self.ground.reload();
        self.verify_end();
        self.restart();
        self.verify_end();
        self.set_len(whole);
    }

    fn verify_end(&mut self) {
        let outcome = self.read(self.model.len(), 1);
        assert_eq!(ended(&outcome), Some(OUT_OF_RANGE));
    }

    fn replace(&mut self) {
        let numbers: Vec<u64> = (0..=self.dice.below(600)).map(|_| self.number()).collect();
        if let Err(error) = self.ground.replace(&numbers) {
            assert!(self.may_fail, "{error}");
            return;
        }
        let log = self.ground.reload();
        if log.contains("cannot reserve its space") {
            // A fully provisioned disk finds no space, and comes when there is some.
            assert!(self.may_fail, "{log}");
            self.free();
            self.await_ready(None);
        }
        self.model = Model::of(numbers);
    }

    fn fill(&mut self) {
        self.ground.fill();
        self.may_fail = true;
    }

    fn free(&mut self) {
        self.ground.free();
        self.may_fail = false;
        // A flush that found no space is remembered until a reload.
        self.ground.reload();
    }

    fn reload(&mut self) {
        self.ground.reload();
    }

    fn refused(&mut self) {
        let free = self.ground.free_bytes();
        let new = self.ground.file("more").display().to_string();
        for create in ["1000M", "1000001"] {
            self.ground.reload_with(&format!(
                "{{ number = 1, disk = {new:?}, create = \"{create}\", provisioning = \"full\" }}"
            ));
        }
        self.ground.reload();
        // A disk that is not there is opened again at intervals, and one of these attempts may be under way.
        let is_clean = || (!self.ground.file("more").exists()).then_some(());
        assert!(wait_until(LIMIT, is_clean).is_some(), "a refused change leaves its file");
        assert!(self.ground.free_bytes() + (1 << 20) > free, "a refused change takes space");
    }

    fn restart(&mut self) {
        // While there is no space, a flush at the end may fail.
        if self.may_fail {
            self.free();
        }
        self.leave();
        self.ground.stop();
        self.come_back();
    }

    /// Ends the session: an orderly stop waits for initiators that stay.
    fn leave(&self) {
        self.initiator.cut();
    }

    fn kill(&mut self) {
        self.ground.kill();
        self.come_back();
    }

    fn come_back(&mut self) {
        self.ground.start();
        self.initiator = self.ground.attach();
    }

    fn mount_again(&mut self) {
        self.ground.kill();
        self.ground.unmount();
        self.ground.mount();
        self.come_back();
        self.verify();
    }

    /// A file system that cannot be written to at the start. It stays so as long as a program has a file open for
    /// writing.
    fn remount(&mut self) {
        self.ground.kill();
        self.ground.remount("ro");
        self.come_back();
        assert_eq!(ended(&self.command(|initiator| initiator.test_unit_ready(0))), Some(NOT_READY));
        self.ground.remount("rw");
        self.reload();
        self.await_ready(None);
        self.verify();
    }

    fn fail(&mut self) {
        self.ground.fail();
        self.may_fail = true;
        for _ in 0..4 {
            let page = self.dice.below(self.model.len());
            self.write(page);
            self.check(page, 1);
        }
        self.flush();
        self.ground.kill();
        self.ground.unmount();
        self.ground.repair();
        self.ground.mount();
        self.ground.free();
        self.may_fail = false;
        self.model.forget();
        self.come_back();
        self.verify();
    }
}

/// The sense data of a command that has failed.
fn ended(outcome: &Outcome) -> Option<Sense> {
    (outcome.status == 2).then(|| outcome.sense())
}

fn lba(page: usize) -> u32 {
    (page * BLOCKS) as u32
}
