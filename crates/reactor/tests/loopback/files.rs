//! Requests on files. Epoll gives them all back.

use std::collections::HashSet;
use std::fs::File;
use std::io::{self, PipeReader, PipeWriter, Write};
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::Instant;

use lunette_buffer::{Buffer, Pool};
use lunette_reactor::{Context, FileCall, FileRequest, IoBackend, Reactor};
use rustix::io::Errno;

use super::{Event, State, Toy, reactor};

const LEN: usize = 4096;

/// A reactor with a ring, if this is its turn and the system allows it.
fn with_ring() -> Option<Reactor> {
    let mut reactor = reactor();
    (reactor.backend() == IoBackend::Uring).then_some(reactor)
}

/// The results of `calls`, each begun when the one before has ended.
fn run_all(calls: Vec<(&Arc<File>, FileCall)>) -> Option<Vec<(FileRequest, io::Result<usize>)>> {
    let mut reactor = with_ring()?;
    let mut left = calls.into_iter().map(|(file, call)| FileRequest { file: Arc::clone(file), call });
    let mut done = Vec::new();
    let on = |_: &mut State, cx: &mut Context<'_>, event: Event<'_>| {
        if let Event::FileDone(tag, request, result) = event {
            assert_eq!(tag, done.len() as u64);
            done.push((request, result));
        }
        match left.next() {
            Some(request) => cx.submit_file(done.len() as u64, request).unwrap(),
            None => cx.stop(),
        }
    };
    reactor.waker().wake();
    reactor.run(&mut Toy { state: State::default(), on: Box::new(on) }).unwrap();
    Some(done)
}

fn buffer(len: usize, fill: u8) -> Buffer {
    let mut buffer = Pool::new(1 << 20).take(len).unwrap();
    buffer.fill(fill);
    buffer
}

fn read(offset: u64, len: usize) -> FileCall {
    FileCall::Read { offset, into: buffer(len, 0xff) }
}

fn bytes(request: &FileRequest) -> &[u8] {
    let (FileCall::Read { into: buffer, .. } | FileCall::Write { from: buffer, .. }) = &request.call else {
        return &[];
    };
    buffer
}

fn pipe() -> (Arc<File>, PipeWriter) {
    let (reader, writer): (PipeReader, PipeWriter) = io::pipe().unwrap();
    (Arc::new(File::from(OwnedFd::from(reader))), writer)
}

#[test]
fn without_a_ring_it_is_given_back() {
    let mut reactor = Reactor::with(IoBackend::Epoll).unwrap();
    let file = Arc::new(tempfile::tempfile().unwrap());
    let request = reactor.context().submit_file(1, FileRequest { file, call: read(0, LEN) }).unwrap_err();
    assert_eq!(bytes(&request).len(), LEN);
}

#[test]
fn what_was_written_is_synced_read_and_zeroed() {
    let file = Arc::new(tempfile::tempfile().unwrap());
    let long = 16 * LEN;
    let Some(done) = run_all(vec![
        (&file, FileCall::Write { offset: 0, from: buffer(long, 7) }),
        (&file, FileCall::Write { offset: LEN as u64, from: buffer(LEN, 8) }),
        (&file, FileCall::Sync),
        (&file, read(0, long)),
        (&file, FileCall::Zero { offset: LEN as u64, len: LEN as u64, punch: true }),
        (&file, read(0, 3 * LEN)),
    ]) else {
        return;
    };
    let moved: Vec<usize> = done.iter().map(|(_, result)| *result.as_ref().unwrap()).collect();
    assert_eq!(moved, [long, LEN, 0, long, 0, 3 * LEN]);
    let whole = [vec![7; LEN], vec![8; LEN], vec![7; long - 2 * LEN]].concat();
    assert!(bytes(&done[3].0) == whole);
    assert!(bytes(&done[5].0) == [vec![7; LEN], vec![0; LEN], vec![7; LEN]].concat());
}

#[test]
fn short_reads_and_failures_are_told_and_the_buffer_comes_back() {
    let mut named = tempfile::NamedTempFile::new().unwrap();
    named.write_all(&[7; LEN]).unwrap();
    let read_only = Arc::new(File::open(named.path()).unwrap());
    let (pipe, mut writer) = pipe();
    writer.write_all(b"few").unwrap();
    let Some(done) = run_all(vec![
        (&read_only, read(1, LEN)),
        (&read_only, read(LEN as u64, LEN)),
        (&read_only, FileCall::Write { offset: 0, from: buffer(LEN, 8) }),
        (&pipe, read(0, LEN)),
        (&pipe, FileCall::Sync),
    ]) else {
        return;
    };
    let told: Vec<_> = done.iter().map(|(_, result)| result.as_ref().map_err(Errno::from_io_error)).collect();
    let (bad, invalid) = (Some(Errno::BADF), Some(Errno::INVAL));
    assert_eq!(told, [Ok(&(LEN - 1)), Ok(&0), Err(bad), Ok(&3), Err(invalid)]);
    assert_eq!((bytes(&done[2].0), &bytes(&done[3].0)[..3]), (&[8; LEN][..], &b"few"[..]));
}

#[test]
fn many_at_once_end_once_each() {
    let Some(mut reactor) = with_ring() else { return };
    let file = Arc::new(tempfile::tempfile().unwrap());
    file.set_len(1 << 20).unwrap();
    // More than the ring takes at once.
    let count = 1000;
    for tag in 0..count {
        let call = read(tag * 512, LEN);
        reactor.context().submit_file(tag, FileRequest { file: Arc::clone(&file), call }).unwrap();
    }
    let mut ended = HashSet::new();
    let on = |_: &mut State, cx: &mut Context<'_>, event: Event<'_>| {
        let Event::FileDone(tag, _, result) = event else { return };
        assert_eq!(result.unwrap(), LEN);
        assert!(ended.insert(tag), "{tag} ended twice");
        if ended.len() as u64 == count {
            cx.stop();
        }
    };
    reactor.run(&mut Toy { state: State::default(), on: Box::new(on) }).unwrap();
    assert_eq!(Arc::strong_count(&file), 1, "nothing is under way any more");
}

#[test]
fn what_never_ends_keeps_its_buffer_and_not_the_reactor() {
    let Some(mut reactor) = with_ring() else { return };
    let (pipe, mut writer) = pipe();
    let pool = Pool::new(1 << 20);
    let call = FileCall::Read { offset: 0, into: pool.take(LEN).unwrap() };
    reactor.context().submit_file(0, FileRequest { file: pipe, call }).unwrap();
    let on = |_: &mut State, cx: &mut Context<'_>, event: Event<'_>| match event {
        Event::FileDone(..) => panic!("an empty pipe was read from"),
        _ => cx.stop(),
    };
    // The first batch hands it in, the second comes behind that.
    let mut toy = Toy { state: State { timeout: Some(Instant::now()), ..State::default() }, on: Box::new(on) };
    reactor.run(&mut toy).unwrap();
    drop(reactor);
    // The system may still fill it.
    let _ = writer.write_all(b"late");
    assert_eq!(pool.used_bytes(), LEN);
}
