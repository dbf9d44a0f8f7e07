//! The orderly end, in every state.

use std::io;
use std::sync::mpsc::channel;
use std::sync::{Arc, Mutex};

use lunette_store::filters::{Fault, PowerLoss, Rule};
use lunette_store::{
    Capabilities, Completion, FileIo, FileOp, FileOpKind, Geometry, MemoryStore, Op, OpKind, Outcome, Store, StoreError,
};

use crate::common::{Initiator, Port, Target, blocks, memory, start_held_write};

#[test]
fn idle() {
    Target::over(vec![memory()]).stop().unwrap();
}

#[test]
fn initiators_are_asked_to_log_out() {
    let target = Target::over(vec![memory()]);
    let mut initiator = Initiator::attach(&target, Port::A);
    target.begin_stop();
    initiator.wait_for_logout_request();
    initiator.send_logout();
    initiator.wait_for_end();
    target.end().unwrap();
}

#[test]
fn an_initiator_that_closes_right_behind_its_logout_holds_up_nothing() {
    let target = Target::over(vec![memory()]);
    let mut initiator = Initiator::attach(&target, Port::A);
    target.begin_stop();
    initiator.wait_for_logout_request();
    initiator.send_logout();
    initiator.close_sending_side();
    target.end().unwrap();
}

#[test]
fn a_login_in_progress_ends() {
    let target = Target::over(vec![memory()]);
    let _silent = Initiator::connect(target.address);
    let mut half = Initiator::connect(target.address);
    half.send_bytes(&[0x43, 0x87, 0, 0]);
    target.wait_until("the connections", |now| now.connections == 2);
    target.stop().unwrap();
}

#[test]
fn a_login_that_waits_for_a_store_ends() {
    let (target, delay) = Target::over_delay();
    let mut lost = Initiator::attach(&target, Port::A);
    start_held_write(&mut lost, &delay);
    drop(lost);
    target.wait_until("the loss", |now| now.connections == 0);
    let mut again = Initiator::connect(target.address);
    again.send_login(Port::A, &[]);
    target.wait_until("the login", |now| now.sessions == 1);
    target.begin_stop();
    again.wait_for_end();
    delay.release();
    target.end().unwrap();
}

#[test]
fn an_initiator_that_stays_behind_its_logout_holds_up_nothing() {
    let target = Target::over(vec![memory()]);
    let mut initiator = Initiator::attach(&target, Port::A);
    target.begin_stop();
    initiator.wait_for_logout_request();
    initiator.send_logout();
    target.end().unwrap();
    drop(initiator);
}

#[test]
fn commands_that_run_end_first() {
    let (target, delay) = Target::over_delay();
    let mut initiator = Initiator::attach(&target, Port::A);
    let write = start_held_write(&mut initiator, &delay);
    target.begin_stop();
    initiator.wait_for_logout_request();
    delay.release();
    initiator.finish(write).good();
    initiator.send_logout();
    target.end().unwrap();
}

#[test]
fn what_was_written_is_flushed() {
    let disk = Arc::new(PowerLoss::new(1 << 20).unwrap());
    let target = Target::over(vec![disk.clone()]);
    let mut initiator = Initiator::attach(&target, Port::A);
    initiator.write(0, 0, blocks(8, 1)).good();
    initiator.send_logout();
    target.stop().unwrap();
    assert_eq!(disk.unflushed(), 0);
}

#[test]
fn what_was_written_before_an_initiator_set_software_write_protection_is_flushed() {
    let disk = Arc::new(PowerLoss::new(1 << 20).unwrap());
    let target = Target::over(vec![disk.clone()]);
    let mut initiator = Initiator::attach(&target, Port::A);
    initiator.write(0, 0, blocks(8, 1)).good();
    // MODE SENSE(6) and MODE SELECT(6) of the control mode page, with SWP set.
    let mut list = initiator.command(0, &[0x1a, 8, 0x0a, 0, 64, 0], Vec::new(), 64).good();
    list[..4].fill(0);
    list[4] &= 0x3f;
    list[4 + 4] |= 0x08;
    initiator.command(0, &[0x15, 0x10, 0, 0, list.len() as u8, 0], list, 0).good();
    assert_eq!(initiator.write(0, 0, blocks(8, 2)).sense().0, 7);
    initiator.send_logout();
    target.stop().unwrap();
    assert_eq!(disk.unflushed(), 0);
}

#[test]
fn a_flush_that_fails_is_reported() {
    let fault = Arc::new(Fault::new(memory()));
    fault.add(Rule { kind: Some(OpKind::Flush), ..Rule::always(|| StoreError::Io(io::Error::other("broken"))) });
    let error = Target::over(vec![memory(), fault, memory()]).stop().unwrap_err();
    assert!(error.to_string().contains("broken"), "{error}");
}

#[test]
fn a_peer_that_never_reads_is_left_behind() {
    let target = Target::over(vec![memory()]);
    let mut sleeper = Initiator::attach(&target, Port::A);
    for _ in 0..100 {
        sleeper.start_read(0, 0, 2048);
    }
    target.wait_until("the answers", |now| now.buffer_bytes > 8 << 20);
    target.stop().unwrap();
}

#[test]
fn a_store_that_never_answers_is_told_of() {
    let (target, delay) = Target::over_delay();
    let mut initiator = Initiator::attach(&target, Port::A);
    start_held_write(&mut initiator, &delay);
    assert_eq!(target.stop().unwrap_err().kind(), io::ErrorKind::TimedOut);
}

/// A store whose reads never come back from the thread that does them.
struct Hanging {
    inner: MemoryStore,
    for_ever: Mutex<Vec<std::sync::mpsc::Sender<()>>>,
    file: Arc<std::fs::File>,
}

impl Store for Hanging {
    fn geometry(&self) -> Geometry {
        self.inner.geometry()
    }

    fn capabilities(&self) -> Capabilities {
        self.inner.capabilities()
    }

    fn submit(&self, op: Op, io: &dyn FileIo, done: Completion) {
        if op.kind() != OpKind::Read {
            return self.inner.submit(op, io, done);
        }
        let (tx, rx) = channel();
        self.for_ever.lock().unwrap().push(tx);
        let hang = move |_: Outcome| {
            // Ends when the test has.
            let _ = rx.recv();
            done.complete(Outcome::of(op, Ok(())));
        };
        // A thread does this one whatever the event loop runs on.
        let kind = FileOpKind::Allocation { offset: 0, len: 1, found: Arc::default() };
        let op = FileOp { file: Arc::clone(&self.file), kind };
        io.submit(op, Completion::call(hang));
    }
}

#[test]
fn a_thread_that_hangs_in_the_system_does_not_hold_up_the_end() {
    let inner = MemoryStore::new(1 << 20).unwrap();
    let file = Arc::new(std::fs::File::open("/dev/null").unwrap());
    let hanging = Arc::new(Hanging { inner, for_ever: Mutex::default(), file });
    let target = Target::over(vec![hanging.clone()]);
    let mut initiator = Initiator::attach(&target, Port::A);
    initiator.start_read(0, 0, 8);
    target.wait_until("the read", |now| now.tasks == 1);
    assert_eq!(target.stop().unwrap_err().kind(), io::ErrorKind::TimedOut);
    hanging.for_ever.lock().unwrap().clear();
}
