//! Commands that are atomic on their blocks.

use std::ops::ControlFlow;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use lunette_device::{Command, Input, Nexus, Response, Step, Task};
use lunette_scsi::{AdditionalSense, FieldPointer, SenseKey, Status, TaskAttribute};
use lunette_store::{Completion, OpKind, Outcome, execute};
use proptest::prelude::*;

use crate::fixture::{Fixture, Medium, Seen, THIN, cdb, code, name, sense};

fn compare_and_write(lba: u8, blocks: u8) -> [u8; 16] {
    cdb(&[0x89, 0, 0, 0, 0, 0, 0, 0, 0, lba, 0, 0, 0, blocks])
}

#[test]
fn equal_blocks_are_replaced_and_others_reported() {
    let fixture = Fixture::new(THIN);
    let data = [[0; 1024], [7; 1024]].concat();
    let response = fixture.run(&compare_and_write(3, 2), &data);
    assert_eq!((response.status, response.data_out_transfer_len), (Status::GOOD, 2048));
    assert_eq!(fixture.bytes(2 * 512, 2048), [vec![0; 512], vec![7; 1024], vec![0; 512]].concat());
    fixture.seen();
    let mut wrong = [[7; 1024], [8; 1024]].concat();
    wrong[700] = 6;
    let sense = fixture.refused(&compare_and_write(3, 2), &wrong);
    assert_eq!(code(sense), (SenseKey::MISCOMPARE, AdditionalSense::MISCOMPARE_DURING_VERIFY));
    assert_eq!(sense.information, Some(700));
    assert_eq!(fixture.seen(), [Seen { kind: OpKind::Read, offset: 3 * 512, len: 1024, fua: false }]);
}

#[test]
fn the_most_blocks_are_as_many_as_reported_and_none_is_no_error() {
    for block_size in [512, 4096] {
        let fixture = Fixture::new(Medium { len_bytes: 2 << 20, block_size, ..THIN });
        let most = fixture.read(&[0x12, 1, 0xb0, 0, 64])[5];
        assert_eq!(most, 255);
        let half = usize::from(most) * block_size as usize;
        let response = fixture.run(&compare_and_write(0, most), &[vec![0; half], vec![3; half]].concat());
        assert_eq!(response.status, Status::GOOD);
        assert!(fixture.bytes(0, half).iter().all(|byte| *byte == 3));
        assert_eq!(fixture.run(&compare_and_write(0, 0), &[]).status, Status::GOOD);
    }
}

#[test]
fn the_data_out_is_two_times_the_blocks() {
    let fixture = Fixture::new(THIN);
    for len in [0, 512, 1536, 2048] {
        let sense = fixture.refused(&compare_and_write(0, 1), &vec![0; len]);
        let expected = (AdditionalSense::INVALID_FIELD_IN_CDB, Some(FieldPointer::cdb(13)));
        assert_eq!((sense.code, sense.field), expected, "{len} bytes");
    }
    let sense = fixture.refused(&compare_and_write(0, 0), &[0; 2 * 512]);
    assert_eq!(sense.field, Some(FieldPointer::cdb(13)), "256 blocks do not fit into the byte");
    assert_eq!(fixture.seen(), []);
}

#[test]
fn fua_concerns_the_write() {
    let fixture = Fixture::new(THIN);
    let mut cdb = compare_and_write(0, 1);
    cdb[1] = 0x08;
    fixture.run(&cdb, &[0; 1024]);
    let seen = |kind, fua| Seen { kind, offset: 0, len: 512, fua };
    assert_eq!(fixture.seen(), [seen(OpKind::Read, false), seen(OpKind::Write, true)]);
}

/// A command that is driven step by step, so that other commands can run in between.
pub(crate) struct SteppedTask {
    task: Task,
    next: Next,
    data_out: Vec<u8>,
}

enum Next {
    Step(Step),
    /// Set when the claim of the task is granted.
    Waits(Arc<AtomicBool>),
}

impl SteppedTask {
    pub(crate) fn new(fixture: &Fixture, nexus: &Nexus, cdb: [u8; 16], data_out: Vec<u8>) -> Self {
        let command = Command {
            lun: [0; 8],
            cdb: cdb.into(),
            attribute: TaskAttribute::Simple,
            data_out_len: data_out.len() as u32,
            data_in_len: u32::MAX,
        };
        let mut task = fixture.device.start(nexus, command);
        let next = Next::Step(task.step(Input::Start));
        Self { task, next, data_out }
    }

    /// Executes one step of the task. A task that waits stays at its step.
    pub(crate) fn go_on(mut self, fixture: &Fixture) -> ControlFlow<Response, Self> {
        let input = match self.next {
            Next::Waits(ref told) if !told.load(Ordering::Relaxed) => return ControlFlow::Continue(self),
            Next::Waits(_) => Input::Waited,
            Next::Step(Step::Done(response)) => return ControlFlow::Break(response),
            Next::Step(Step::Buffer { len }) => Input::Buffer(fixture.buffer(len)),
            Next::Step(Step::DataOut { len }) => {
                let mut buffer = fixture.buffer(len);
                buffer.copy_from_slice(&self.data_out[..len]);
                Input::DataOut(buffer)
            }
            Next::Step(Step::Store { store, op }) => Input::Store(execute(&*store, op)),
            Next::Step(Step::File { .. }) => Input::File(false),
            Next::Step(Step::Work(work)) => Input::Store(Outcome::new(work(), None)),
            Next::Step(Step::Background(task)) => {
                fixture.begin_background(task);
                Input::Begun
            }
            Next::Step(Step::Pause { .. }) => panic!("a command lets time pass"),
            Next::Step(Step::Abort { .. }) => Input::Aborted { lost: Vec::new() },
            Next::Step(Step::Wait { on }) => {
                let told = Arc::new(AtomicBool::new(false));
                let flag = Arc::clone(&told);
                on.wait(Completion::call(move |_| flag.store(true, Ordering::Relaxed)));
                self.next = Next::Waits(told);
                return ControlFlow::Continue(self);
            }
        };
        self.next = Next::Step(self.task.step(input));
        ControlFlow::Continue(self)
    }

    pub(crate) fn finish(mut self, fixture: &Fixture) -> Response {
        for _ in 0..100 {
            match self.go_on(fixture) {
                ControlFlow::Break(response) => return response,
                ControlFlow::Continue(rest) => self = rest,
            }
        }
        panic!("the task waits for a condition");
    }

    /// Drives the task until it waits only for a claim or a store.
    pub(crate) fn until_it_has_its_buffers(mut self, fixture: &Fixture) -> Self {
        while matches!(self.next, Next::Step(Step::Buffer { .. } | Step::DataOut { .. })) {
            self = self.go_on(fixture).continue_value().unwrap();
        }
        self
    }

    /// Drives the task until it saves something or waits.
    pub(crate) fn until_it_saves(mut self, fixture: &Fixture) -> Self {
        while !self.waits() && !matches!(self.next, Next::Step(Step::Work(_))) {
            self = self.go_on(fixture).continue_value().unwrap();
        }
        self
    }

    /// Aborts the task. Blocking work that it has begun runs to its end.
    pub(crate) fn abort(self) {
        drop(self.task);
        if let Next::Step(Step::Work(work)) = self.next {
            // The command is gone that would take the result.
            let _ = work();
        }
    }

    pub(crate) fn waits(&self) -> bool {
        matches!(self.next, Next::Step(Step::Wait { .. }) | Next::Waits(_))
    }
}

fn increment(old: u64) -> Vec<u8> {
    let mut data = vec![0; 1024];
    data[..8].copy_from_slice(&old.to_be_bytes());
    data[512..520].copy_from_slice(&(old + 1).to_be_bytes());
    data
}

fn counter(fixture: &Fixture) -> u64 {
    u64::from_be_bytes(fixture.bytes(0, 8).try_into().unwrap())
}

proptest! {
    /// Steps of several initiators in any order: of increments from the same value, exactly one succeeds.
    #[test]
    fn no_increment_is_lost_in_any_order_of_steps(schedule in proptest::collection::vec(0..3usize, 0..200)) {
        let fixture = Fixture::new(THIN);
        let nexuses = ["b", "c", "d"].map(|host| fixture.device.attach(name(&format!("iqn.2026-11.host:{host}"))));
        for nexus in &nexuses {
            fixture.run_on(nexus, [0; 8], [0; 16], &[]);
        }
        let start = |nexus| SteppedTask::new(&fixture, nexus, compare_and_write(0, 1), increment(counter(&fixture)));
        let mut slow = [const { None }; 3];
        let mut succeeded = 0;
        for who in schedule {
            let command = slow[who].take().unwrap_or_else(|| start(&nexuses[who]));
            match command.go_on(&fixture) {
                ControlFlow::Break(response) if response.status == Status::GOOD => succeeded += 1,
                ControlFlow::Break(response) => prop_assert_eq!(sense(&response).key, SenseKey::MISCOMPARE),
                ControlFlow::Continue(command) => slow[who] = Some(command),
            }
        }
        while slow.iter().any(Option::is_some) {
            for place in &mut slow {
                match place.take().map(|command| command.go_on(&fixture)) {
                    Some(ControlFlow::Break(response)) => succeeded += u64::from(response.status == Status::GOOD),
                    Some(ControlFlow::Continue(command)) => *place = Some(command),
                    None => {}
                }
            }
        }
        prop_assert_eq!(counter(&fixture), succeeded);
    }
}

#[test]
fn two_initiators_on_two_threads_lose_no_increment() {
    const EACH: u64 = 300;
    let fixture = Fixture::new(THIN);
    thread::scope(|scope| {
        for host in ["iqn.2026-11.host:b", "iqn.2026-11.host:c"] {
            let fixture = &fixture;
            scope.spawn(move || {
                let nexus = fixture.device.attach(name(host));
                fixture.run_on(&nexus, [0; 8], [0; 16], &[]);
                let mut done = 0;
                while done < EACH {
                    let response =
                        fixture.run_on(&nexus, [0; 8], compare_and_write(0, 1), &increment(counter(fixture)));
                    done += u64::from(response.status == Status::GOOD);
                }
            });
        }
    });
    assert_eq!(counter(&fixture), 2 * EACH);
}

#[test]
fn only_overlapping_commands_wait_and_an_aborted_one_lets_the_next_in() {
    let fixture = Fixture::new(THIN);
    let start = |cdb: &[u8], data: Vec<u8>| {
        SteppedTask::new(&fixture, &fixture.nexus, crate::fixture::cdb(cdb), data).until_it_has_its_buffers(&fixture)
    };
    let first = start(&compare_and_write(8, 1), increment(0));
    let write = start(&[0x2a, 0, 0, 0, 0, 4, 0, 0, 8, 0], vec![1; 8 * 512]);
    let read = start(&[0x28, 0, 0, 0, 0, 11, 0, 0, 2, 0], Vec::new());
    let elsewhere = start(&[0x28, 0, 0, 0, 0, 0, 0, 0, 4, 0], Vec::new());
    assert_eq!([&first, &write, &read, &elsewhere].map(SteppedTask::waits), [false, true, false, false]);
    let second = start(&compare_and_write(11, 1), increment(0));
    assert!(second.waits(), "for the write that waits");
    let write = write.go_on(&fixture).continue_value().unwrap();
    drop(write);
    let second = second.go_on(&fixture).continue_value().unwrap();
    assert!(second.waits(), "for the read");
    assert_eq!(read.finish(&fixture).status, Status::GOOD);
    assert_eq!(second.finish(&fixture).status, Status::GOOD);
    drop(first);
    assert_eq!(start(&compare_and_write(8, 1), increment(0)).finish(&fixture).status, Status::GOOD);
    assert_eq!(elsewhere.finish(&fixture).status, Status::GOOD);
}

#[test]
fn reads_and_writes_overlap_each_other() {
    let fixture = Fixture::new(THIN);
    let commands = [&[0x28, 0, 0, 0, 0, 0, 0, 0, 2, 0], &[0x2a, 0, 0, 0, 0, 0, 0, 0, 2, 0]];
    let slow = [0, 1, 0, 1].map(|at| {
        let command: &[u8; 10] = commands[at];
        SteppedTask::new(&fixture, &fixture.nexus, cdb(command), vec![0; 1024]).until_it_has_its_buffers(&fixture)
    });
    assert!(!slow.iter().any(SteppedTask::waits));
}
