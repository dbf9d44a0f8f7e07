use std::io::Read;
use std::net::{TcpListener, TcpStream};
use std::os::unix::net::UnixStream;

use lunette_buffer::{FileSlice, Pool};

use super::*;
use crate::Gather;
use crate::backend::{MAX_SENDS, Outgoing};
use crate::files::FileCall;
use crate::sys::Moved;

#[test]
fn tokens_survive_packing() {
    let key = Key { index: Token::INDEX, generation: u32::MAX };
    let polls = [Poll::In, Poll::Out, Poll::Failure].map(|what| Token::Poll(what, key));
    let others =
        [Token::Ignored, Token::Waker, Token::Accept(key), Token::Receive(key), Token::Send(9), Token::File(key)];
    for token in polls.into_iter().chain(others) {
        assert_eq!(Token::unpack(token.pack()), token);
    }
}

#[test]
fn a_socket_that_fails_beside_others_does_not_keep_them_from_being_sent() {
    let buffers = Buffers::new();
    let Ok(mut ring) = Ring::new(Waker::new().unwrap(), &buffers, Arc::default(), QueueLens::USUAL) else { return };
    let (near, mut far) = UnixStream::pair().unwrap();
    let mut list = Gather::new();
    list.push(&[1; 48]);
    let file = Arc::new(tempfile::tempfile().unwrap());
    // A descriptor that names something, and can do nothing.
    let inert = rustix::fs::open("/", rustix::fs::OFlags::PATH, rustix::fs::Mode::empty()).unwrap();
    let mut in_file = Gather::new();
    in_file.push_file(&FileSlice::new(file, 0, 1));
    let mut sends = [const { None }; MAX_SENDS];
    sends[0] = Some(Outgoing { socket: near.as_fd(), list: &list });
    sends[1] = Some(Outgoing { socket: inert.as_fd(), list: &in_file });
    // What was queued for the first names memory of this call, so the call must not end before it is sent.
    let results = ring.send(&sends).unwrap();
    assert!(matches!(results[1], Some(Moved::Failed(_))), "{results:?}");
    let Some(Moved::Bytes(sent)) = results[0] else { panic!("{results:?}") };
    far.read_exact(&mut vec![0; sent]).unwrap();
    assert!(ring.uring.submission().is_empty());
}

#[test]
fn completions_that_do_not_fit_are_told_later() {
    let buffers = Buffers::new();
    let lens = QueueLens { submissions: 8, completions: 8 };
    // The system may forbid rings.
    let Ok(mut ring) = Ring::new(Waker::new().unwrap(), &buffers, Arc::default(), lens) else { return };
    let (pool, file) = (Pool::new(1 << 20), Arc::new(tempfile::tempfile().unwrap()));
    let read = || FileCall::Read { offset: 0, into: pool.take(4096).unwrap() };
    ring.wait(Some(Duration::ZERO), &mut Vec::new()).unwrap();
    // More than fit into both queues. Completions stay where they are meanwhile; `enter` would take them.
    for tag in 0..40 {
        let request = FileRequest { file: Arc::clone(&file), call: read() };
        ring.submit_file(tag, request).unwrap();
        ring.uring.submitter().submit().unwrap();
    }
    assert!(ring.uring.submission().cq_overflow());
    let mut events = Vec::new();
    while events.len() < 40 {
        ring.wait(None, &mut events).unwrap();
    }
    let tags = events.iter().map(|event| match event {
        Event::FileDone { tag, result: Ok(0), .. } => *tag,
        other => panic!("{other:?}"),
    });
    assert!(tags.eq(0..40));
}

#[test]
fn a_connection_that_nobody_was_told_of_is_closed() {
    let buffers = Buffers::new();
    // The system may forbid rings.
    let Ok(mut ring) = Ring::new(Waker::new().unwrap(), &buffers, Arc::default(), QueueLens::USUAL) else { return };
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    ring.arm_listener(Key { index: 0, generation: 0 }, &listener).unwrap();
    let mut peer = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    peer.set_read_timeout(Some(Duration::from_mins(1))).unwrap();
    while !ring.has_completions() {
        ring.enter(1, None).unwrap();
    }
    drop(ring);
    assert_eq!(peer.read(&mut [0]).unwrap(), 0);
}
