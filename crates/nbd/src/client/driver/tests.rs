use std::io::{Read, Write};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;
use std::sync::mpsc::{Receiver, channel};
use std::thread;

use lunette_buffer::Pool;

use super::*;
use crate::client::handshake::Agreed;
use crate::wire::{REQUEST_LEN, can, simple_reply};

/// The negotiation of a server that a test plays: 1 MiB, without structured replies.
fn greet(stream: &mut UnixStream) {
    use crate::wire::{FLAG_FIXED_NEWSTYLE, OPTION_MAGIC, SERVER_MAGIC, info, option, option_reply, reply};
    let mut greeting = [SERVER_MAGIC, OPTION_MAGIC].map(u64::to_be_bytes).concat();
    greeting.extend(FLAG_FIXED_NEWSTYLE.to_be_bytes());
    stream.write_all(&greeting).unwrap();
    stream.read_exact(&mut [0; 4 + 16]).unwrap();
    stream.write_all(&option_reply(option::STRUCTURED_REPLY, reply::ERR_UNSUP, 0)).unwrap();
    stream.read_exact(&mut [0; 16 + 4 + 4]).unwrap();
    stream.write_all(&option_reply(option::GO, reply::INFO, 12)).unwrap();
    let facts = [&info::EXPORT.to_be_bytes()[..], &(1_u64 << 20).to_be_bytes(), &FLAGS.to_be_bytes()];
    stream.write_all(&facts.concat()).unwrap();
    stream.write_all(&option_reply(option::GO, reply::ACK, 0)).unwrap();
}

const FLAGS: u16 = can::HAS_FLAGS | can::FLUSH;

/// The next request, without its payload.
fn request(stream: &mut UnixStream) -> Request {
    let mut head = [0; REQUEST_LEN];
    stream.read_exact(&mut head).unwrap();
    let request = Request::parse(&head).unwrap();
    if request.command == command::WRITE {
        stream.read_exact(&mut vec![0; request.len as usize]).unwrap();
    }
    request
}

fn answer(stream: &mut UnixStream, request: Request) {
    stream.write_all(&simple_reply(request.cookie, None)).unwrap();
}

struct Client {
    inbox: Arc<Inbox<Job>>,
    durability: Arc<Durability>,
    thread: thread::JoinHandle<()>,
}

impl Client {
    /// Starts the thread of a connection that is made already.
    fn start(path: &Path, listener: &UnixListener, patience: Duration) -> (Self, UnixStream) {
        let url: NbdUrl = format!("nbd+unix:///?socket={}", path.display()).parse().unwrap();
        let served = listener.try_clone().unwrap();
        let server = thread::spawn(move || {
            let mut stream = served.accept().unwrap().0;
            greet(&mut stream);
            stream
        });
        let (connection, agreed) = connect::open(&url, None).unwrap();
        assert_eq!(agreed, Agreed { len_bytes: 1 << 20, flags: FLAGS, block_sizes: None, structured: false });
        let facts = Facts::new(&agreed, false).unwrap();
        let (inbox, durability) = (Arc::new(Inbox::new().unwrap()), Arc::new(Durability::new(true)));
        let mut driver = Driver::new(url, None, facts, Arc::clone(&inbox), Arc::clone(&durability));
        driver.patience = patience;
        let thread = thread::spawn(move || driver.run(connection));
        (Self { inbox, durability, thread }, server.join().unwrap())
    }

    fn submit(&self, op: Op) -> Receiver<Outcome> {
        let (tx, rx) = channel();
        let flush = self.durability.begin(&op).unwrap();
        let done = Completion::call(move |outcome| tx.send(outcome).unwrap());
        self.inbox.push(Waiting::new(op, Owner { done, flush }));
        rx
    }

    fn write(&self) -> Receiver<Outcome> {
        self.submit(Op::Write { offset: 0, from: Pool::new(4096).take(512).unwrap(), fua: false })
    }

    fn end(self) {
        self.inbox.close();
        self.thread.join().unwrap();
    }
}

fn place() -> (tempfile::TempDir, std::path::PathBuf, UnixListener) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("socket");
    let listener = UnixListener::bind(&path).unwrap();
    (folder, path, listener)
}

#[test]
fn requests_without_an_answer_are_sent_again() {
    let (_folder, path, listener) = place();
    let (client, mut server) = Client::start(&path, &listener, RECONNECT_TIMEOUT);
    let (first, second) = (client.write(), client.submit(Op::Flush));
    let lost = [request(&mut server), request(&mut server)];
    drop(server);
    let mut server = listener.accept().unwrap().0;
    greet(&mut server);
    for lost in lost {
        let again = request(&mut server);
        assert_eq!((again.command, again.offset, again.len), (lost.command, lost.offset, lost.len));
        assert_ne!(again.cookie, lost.cookie);
        answer(&mut server, again);
    }
    assert!(first.recv().unwrap().result.is_ok());
    assert!(second.recv().unwrap().result.is_ok(), "it covers no write that was lost");
    client.end();
    assert_eq!(request(&mut server).command, command::DISC);
}

#[test]
fn a_flush_does_not_hide_that_a_write_may_be_lost() {
    let (_folder, path, listener) = place();
    let (client, mut server) = Client::start(&path, &listener, RECONNECT_TIMEOUT);
    let write = client.write();
    let sent = request(&mut server);
    answer(&mut server, sent);
    assert!(write.recv().unwrap().result.is_ok());
    let flush = client.submit(Op::Flush);
    drop(server);
    let mut server = listener.accept().unwrap().0;
    greet(&mut server);
    let sent = request(&mut server);
    answer(&mut server, sent);
    let error = flush.recv().unwrap().result.unwrap_err();
    assert!(matches!(&error, StoreError::FlushFailed(why) if why.to_string().contains("lost")), "{error}");
    client.end();
}

#[test]
fn a_request_is_not_sent_for_ever() {
    use crate::client::limits::MAX_TRIES;
    let (_folder, path, listener) = place();
    let (client, mut server) = Client::start(&path, &listener, RECONNECT_TIMEOUT);
    let write = client.write();
    for attempt in 1..=MAX_TRIES {
        request(&mut server);
        // A reply that is none.
        server.write_all(&[7; 16]).unwrap();
        let mut next = listener.accept().unwrap().0;
        greet(&mut next);
        server = next;
        assert!(attempt == MAX_TRIES || write.try_recv().is_err());
    }
    let error = write.recv().unwrap().result.unwrap_err().to_string();
    assert!(error.contains("broke the protocol"), "{error}");
    let other = client.write();
    let sent = request(&mut server);
    answer(&mut server, sent);
    assert!(other.recv().unwrap().result.is_ok(), "others go on");
    client.end();
}

#[test]
fn waiting_for_a_server_ends_and_begins_again_with_the_server() {
    let (_folder, path, listener) = place();
    let (client, server) = Client::start(&path, &listener, Duration::ZERO);
    drop((server, listener));
    let error = client.write().recv().unwrap().result.unwrap_err();
    assert!(matches!(&error, StoreError::Io(why) if why.kind() == io::ErrorKind::NotConnected), "{error}");
    std::fs::remove_file(&path).unwrap();
    let listener = UnixListener::bind(&path).unwrap();
    let mut server = listener.accept().unwrap().0;
    greet(&mut server);
    // A request of before the new connection may still fail.
    let write = client.write();
    let sent = request(&mut server);
    answer(&mut server, sent);
    assert!(write.recv().unwrap().result.is_ok());
    client.end();
}

#[test]
fn a_store_that_is_dropped_lets_go_of_a_server_that_is_gone() {
    let (_folder, path, listener) = place();
    let (client, server) = Client::start(&path, &listener, RECONNECT_TIMEOUT);
    drop((server, listener));
    let write = client.write();
    client.end();
    assert!(write.recv().unwrap().result.is_err());
}

#[test]
fn a_server_that_answers_nothing_does_not_hold_up_the_end_of_a_disk() {
    use lunette_store::{InlineIo, Store};

    use crate::client::NbdStore;
    let (_folder, path, listener) = place();
    let serving = thread::spawn(move || {
        let mut stream = listener.accept().unwrap().0;
        greet(&mut stream);
        stream
    });
    let url: NbdUrl = format!("nbd+unix:///?socket={}", path.display()).parse().unwrap();
    let disk = NbdStore::open(&url, false).unwrap();
    let mut silent = serving.join().unwrap();
    let (tx, rx) = channel();
    disk.submit(Op::Flush, &InlineIo, Completion::call(move |outcome| tx.send(outcome).unwrap()));
    drop(disk);
    assert!(rx.try_recv().is_err(), "the flush has no answer");
    let sent = request(&mut silent);
    answer(&mut silent, sent);
    assert!(rx.recv().unwrap().result.is_ok());
    assert_eq!(request(&mut silent).command, command::DISC);
}
