use std::io::Read;
use std::net::{TcpListener, TcpStream};
use std::os::fd::BorrowedFd;
use std::os::unix::net::UnixStream;

use lunette_buffer::{Pool, Run, SharedBuffer};

use super::*;
use crate::Gather;
use crate::backend::{MAX_SENDS, Outgoing, Sent};
use crate::files::FileCall;
use crate::sys::Moved;

#[test]
fn tokens_survive_packing() {
    let key = Key { index: Token::INDEX, generation: u32::MAX };
    let polls = [Poll::In, Poll::Out, Poll::Failure].map(|what| Token::Poll(what, key));
    let others = [
        Token::Ignored,
        Token::Waker,
        Token::Accept(key),
        Token::Receive(key),
        Token::Send(9),
        Token::File(key),
        Token::Loan(key),
    ];
    for token in polls.into_iter().chain(others) {
        assert_eq!(Token::unpack(token.pack()), token);
    }
}

/// Sends `list` on `socket`, lent by a connection; and what comes of it.
fn lend(ring: &mut Ring, socket: BorrowedFd<'_>, list: &Gather<'_>) -> Sent {
    let mut sends = [const { None }; MAX_SENDS];
    sends[3] = Some(Outgoing { socket, list, lender: Some(LENDER) });
    let mut results = ring.send(&sends).unwrap();
    assert_eq!(results.iter().filter(|result| result.is_some()).count(), 1);
    results[3].take().unwrap()
}

const LENDER: Key = Key { index: 5, generation: 7 };

/// A header without an owner, and data that has one.
fn header_and_data(data: &SharedBuffer) -> Gather<'_> {
    let mut list = Gather::new();
    list.push(&[1; 48]);
    list.push_shared(data, 0);
    list
}

fn data(pool: &Pool) -> SharedBuffer {
    let mut data = pool.take(100_000).unwrap();
    data.fill(2);
    data.share()
}

#[test]
fn what_was_lent_is_kept_until_the_notification() {
    let (buffers, pool) = (Buffers::new(), Pool::new(1 << 20));
    let Ok(mut ring) = Ring::new(Waker::new().unwrap(), &buffers, Arc::default(), QueueLens::USUAL, 150_000) else {
        return;
    };
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let near = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    let mut far = listener.accept().unwrap().0;
    let data = data(&pool);
    let Sent::Lent(sent) = lend(&mut ring, near.as_fd(), &header_and_data(&data)) else { panic!("not lent") };
    // No more than that may be lent now.
    let Sent::Copied(Moved::Bytes(copied)) = lend(&mut ring, near.as_fd(), &header_and_data(&data)) else {
        panic!("not copied")
    };
    drop(data);
    assert_ne!(pool.used_bytes(), 0);
    let mut bytes = vec![0; sent];
    far.read_exact(&mut bytes).unwrap();
    assert!(bytes[..48] == [1; 48] && bytes[48..].iter().all(|byte| *byte == 2));
    let mut events = Vec::new();
    while events.is_empty() {
        // What was copied lies behind it, and is not waited for.
        ring.wait(None, &mut events).unwrap();
    }
    // Within a host the system copies, or it would have to keep the bytes for as long as the peer does not read.
    assert!(
        matches!(events[..], [Event::Returned { connection: LENDER, bytes, copied: true }] if bytes == sent),
        "{events:?}"
    );
    assert_eq!(pool.used_bytes(), 0);
    far.read_exact(&mut vec![0; copied]).unwrap();
}

#[test]
fn memory_of_a_store_is_not_written_to_until_the_notification() {
    let (buffers, pool) = (Buffers::new(), Pool::new(1 << 20));
    let Ok(mut ring) = Ring::new(Waker::new().unwrap(), &buffers, Arc::default(), QueueLens::USUAL, 150_000) else {
        return;
    };
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let near = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    let mut far = listener.accept().unwrap().0;
    let chunks = [vec![1_u8; 50_000], vec![2; 50_000]].map(Arc::new);
    let loan = {
        let mut buffer = pool.reserve(100_000).unwrap();
        let runs = chunks.each_ref().map(|chunk| Run { memory: chunk.clone(), range: 0..chunk.len() });
        buffer.allow_loan();
        buffer.lend(runs.into_iter()).unwrap()
    };
    let mut list = Gather::new();
    list.push_loan(&loan, 0);
    let Sent::Lent(sent) = lend(&mut ring, near.as_fd(), &list) else { panic!("not lent") };
    drop(list);
    drop(loan);
    // A store writes to a chunk in its place only when nobody else holds it.
    assert_eq!(chunks.each_ref().map(Arc::strong_count), [2, 2]);
    let mut bytes = vec![0; sent];
    far.read_exact(&mut bytes).unwrap();
    assert!(bytes.iter().eq(chunks.iter().flat_map(|chunk| chunk.iter()).take(sent)));
    let mut events = Vec::new();
    while events.is_empty() {
        ring.wait(None, &mut events).unwrap();
    }
    assert_eq!((chunks.each_ref().map(Arc::strong_count), pool.used_bytes()), ([1, 1], 0));
}

#[test]
fn what_a_socket_does_not_take_without_a_copy_is_refused() {
    let (buffers, pool) = (Buffers::new(), Pool::new(1 << 20));
    let Ok(mut ring) = Ring::new(Waker::new().unwrap(), &buffers, Arc::default(), QueueLens::USUAL, 1 << 20) else {
        return;
    };
    let (near, _far) = UnixStream::pair().unwrap();
    let data = data(&pool);
    assert!(matches!(lend(&mut ring, near.as_fd(), &header_and_data(&data)), Sent::Refused));
    drop(data);
    while pool.used_bytes() > 0 {
        let mut events = Vec::new();
        ring.wait(Some(Duration::from_millis(1)), &mut events).unwrap();
        assert!(events.is_empty(), "{events:?}");
    }
}

#[test]
fn a_socket_that_fails_beside_others_does_not_keep_them_from_being_sent() {
    let (buffers, pool) = (Buffers::new(), Pool::new(1 << 20));
    let Ok(mut ring) = Ring::new(Waker::new().unwrap(), &buffers, Arc::default(), QueueLens::USUAL, 0) else { return };
    let (near, mut far) = UnixStream::pair().unwrap();
    let data = data(&pool);
    let list = header_and_data(&data);
    let file = Arc::new(tempfile::tempfile().unwrap());
    // A descriptor that names something, and can do nothing.
    let inert = rustix::fs::open("/", rustix::fs::OFlags::PATH, rustix::fs::Mode::empty()).unwrap();
    let mut in_file = Gather::new();
    in_file.push_file(&lunette_buffer::FileSlice::new(file, 0, 1));
    let mut sends = [const { None }; MAX_SENDS];
    sends[0] = Some(Outgoing { socket: near.as_fd(), list: &list, lender: None });
    sends[1] = Some(Outgoing { socket: inert.as_fd(), list: &in_file, lender: None });
    // What was queued for the first names memory of this call, so the call must not end before it is sent.
    let results = ring.send(&sends).unwrap();
    assert!(matches!(results[1], Some(Sent::Copied(Moved::Failed(_)))), "{results:?}");
    let Some(Sent::Copied(Moved::Bytes(sent))) = results[0] else { panic!("{results:?}") };
    far.read_exact(&mut vec![0; sent]).unwrap();
    assert!(ring.uring.submission().is_empty());
}

#[test]
fn completions_that_do_not_fit_are_told_later() {
    let buffers = Buffers::new();
    let lens = QueueLens { submissions: 8, completions: 8 };
    // The system may forbid rings.
    let Ok(mut ring) = Ring::new(Waker::new().unwrap(), &buffers, Arc::default(), lens, 0) else { return };
    let (pool, file) = (Pool::new(1 << 20), Arc::new(tempfile::tempfile().unwrap()));
    let read = || FileCall::Read { offset: 0, into: pool.take(4096).unwrap() };
    ring.wait(Some(Duration::ZERO), &mut Vec::new()).unwrap();
    // More than fit into both queues. Nobody takes completions meanwhile, as `enter` would.
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
    let Ok(mut ring) = Ring::new(Waker::new().unwrap(), &buffers, Arc::default(), QueueLens::USUAL, 0) else { return };
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
