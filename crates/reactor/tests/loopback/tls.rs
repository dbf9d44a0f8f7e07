//! TLS below the handler. The peers are rustls over blocking sockets.

use std::fs::File;
use std::io::{Read, Write};
use std::net::TcpListener;
use std::path::PathBuf;
use std::sync::{Arc, mpsc};

use lunette_buffer::FileSlice;
use lunette_tls::{Clients, ISCSI, Identity, Servers, stream_client, stream_server};
use rcgen::{CertificateParams, ExtendedKeyUsagePurpose, KeyPair};
use rustls::{ClientConfig, ClientConnection, ServerConfig, ServerConnection, StreamOwned};
use tempfile::TempDir;

use super::*;

/// A certificate of `localhost` with its key, for either side. It is its own authority.
struct Files(TempDir);

impl Files {
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let key = KeyPair::generate().unwrap();
        let mut parameters = CertificateParams::new(vec!["localhost".to_owned()]).unwrap();
        parameters.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth, ExtendedKeyUsagePurpose::ClientAuth];
        std::fs::write(folder.path().join("cert.pem"), parameters.self_signed(&key).unwrap().pem()).unwrap();
        let private = folder.path().join("key.pem");
        std::fs::write(&private, key.serialize_pem()).unwrap();
        std::fs::set_permissions(&private, std::os::unix::fs::PermissionsExt::from_mode(0o600)).unwrap();
        Self(folder)
    }

    fn paths(&self) -> [PathBuf; 3] {
        ["cert.pem", "key.pem", "no-crl.pem"].map(|name| self.0.path().join(name))
    }

    fn server(&self) -> Arc<ServerConfig> {
        let [certificates, key, revoked] = &self.paths();
        let clients = Clients { authorities: certificates, revoked };
        Arc::new(stream_server(Identity { certificates, key }, Some(clients), ISCSI).unwrap())
    }

    fn source(&self) -> TlsSource {
        let config = self.server();
        Arc::new(move || Arc::clone(&config))
    }

    fn client(&self, proves_itself: bool) -> Arc<ClientConfig> {
        let [certificates, key, _] = &self.paths();
        let own = proves_itself.then_some(Identity { certificates, key });
        Arc::new(stream_client(Servers::SignedBy(certificates), own, ISCSI).unwrap())
    }
}

type Peer = StreamOwned<ClientConnection, TcpStream>;

fn connect_tls(files: &Files, address: SocketAddr) -> Peer {
    let session = ClientConnection::new(files.client(false), "localhost".try_into().unwrap()).unwrap();
    StreamOwned::new(session, connect(address))
}

#[test]
fn content_goes_both_ways_and_where_the_handler_wants_it() {
    let files = Files::new();
    let (len, direct_from) = (1 << 20, 1000);
    let (mut received, mut directly) = (Vec::new(), 0);
    let on = |state: &mut State, cx: &mut Context<'_>, event: Event<'_>| {
        let id = match event {
            Event::Accepted(id) => return assert!(cx.peer_certificate(id).is_none()),
            Event::Received(id, bytes) => {
                if let Some(place) = state.direct.get_mut(&id) {
                    // A record that fills the place to its end has no room for its type there.
                    place[state.direct_filled..][..bytes.len()].copy_from_slice(bytes);
                    state.direct_filled += bytes.len();
                } else {
                    received.extend_from_slice(bytes);
                    let wants_place = received.len() >= direct_from && received.len() < len;
                    state.direct.extend(wants_place.then(|| (id, vec![0; len - received.len()])));
                }
                id
            }
            Event::Direct(id) => {
                directly += 1;
                id
            }
            Event::Closed(_, why) => {
                assert!(matches!(why, Closed::PeerClosed), "{why:?}");
                return cx.stop();
            }
            _ => return,
        };
        if state.direct.get(&id).is_some_and(|place| place.len() == state.direct_filled) {
            let place = state.direct.remove(&id).unwrap();
            assert!(directly > 40, "{directly} records were opened in their place");
            received.extend(place);
            state.direct_filled = 0;
        }
        if received.len() == len {
            state.send(cx, id, &std::mem::take(&mut received));
        }
    };
    run_with(Some(files.source()), on, |address, _| {
        let mut stream = connect_tls(&files, address);
        stream.write_all(&pattern(len)).unwrap();
        let mut back = vec![0; len];
        stream.read_exact(&mut back).unwrap();
        assert!(back == pattern(len));
        stream.conn.send_close_notify();
        stream.flush().unwrap();
    });
}

#[test]
fn plain_text_and_damage_reach_no_handler() {
    let files = Files::new();
    let on = |_: &mut State, cx: &mut Context<'_>, event: Event<'_>| match event {
        Event::Received(_, bytes) => assert_eq!(bytes, b"sealed"),
        Event::Closed(_, Closed::Error(error)) => assert!(error.to_string().starts_with("TLS: "), "{error}"),
        Event::Closed(_, why) => panic!("{why:?}"),
        Event::Woken => cx.stop(),
        _ => {}
    };
    run_with(Some(files.source()), on, |address, waker| {
        // The header of a login request.
        let mut plain = connect(address);
        plain.write_all(&[0x43; 48]).unwrap();
        let mut answer = Vec::new();
        let _ = plain.read_to_end(&mut answer);
        assert!(answer.len() <= 7, "an alert at most: {answer:?}");
        let mut damaged = connect_tls(&files, address);
        damaged.write_all(b"sealed").unwrap();
        damaged.sock.write_all(&[23, 3, 3, 0, 40]).unwrap();
        damaged.sock.write_all(&[0; 40]).unwrap();
        let _ = damaged.sock.read_to_end(&mut answer);
        waker.wake();
    });
}

#[test]
fn an_end_is_said_and_a_cut_is_an_end() {
    let files = Files::new();
    let mut ends = 0;
    let on = |state: &mut State, cx: &mut Context<'_>, event: Event<'_>| match event {
        Event::Received(id, b"end") => {
            state.send(cx, id, b"bye");
            cx.close_after_send(id);
        }
        Event::Received(id, _) => state.send(cx, id, b"ok"),
        Event::Closed(_, why) => {
            assert!(matches!(why, Closed::AllSent | Closed::PeerClosed), "{why:?}");
            ends += 1;
            if ends == 2 {
                cx.stop();
            }
        }
        _ => {}
    };
    run_with(Some(files.source()), on, |address, _| {
        let mut stream = connect_tls(&files, address);
        stream.write_all(b"end").unwrap();
        let mut answer = Vec::new();
        // Without the word that it is the end, rustls would fail here.
        stream.read_to_end(&mut answer).unwrap();
        assert_eq!(answer, b"bye");
        let mut stream = connect_tls(&files, address);
        stream.write_all(b"go on").unwrap();
        stream.read_exact(&mut [0; 2]).unwrap();
        drop(stream);
    });
}

#[test]
fn a_record_that_is_cut_is_no_end() {
    let files = Files::new();
    let on = |_: &mut State, cx: &mut Context<'_>, event: Event<'_>| match event {
        Event::Received(_, bytes) => assert_eq!(bytes, b"whole"),
        Event::Closed(_, Closed::Error(error)) => {
            assert_eq!(error.kind(), std::io::ErrorKind::UnexpectedEof);
            cx.stop();
        }
        Event::Closed(_, why) => panic!("{why:?}"),
        _ => {}
    };
    run_with(Some(files.source()), on, |address, _| {
        let mut stream = connect_tls(&files, address);
        stream.write_all(b"whole").unwrap();
        stream.conn.writer().write_all(b"cut").unwrap();
        let mut sealed = Vec::new();
        stream.conn.write_tls(&mut sealed).unwrap();
        stream.sock.write_all(&sealed[..9]).unwrap();
        stream.sock.shutdown(std::net::Shutdown::Write).unwrap();
        let _ = stream.sock.read_to_end(&mut Vec::new());
    });
}

#[test]
fn what_comes_while_it_is_paused_comes_when_it_is_resumed() {
    let files = Files::new();
    let (mut received, mut paused) = (Vec::new(), None);
    let on = |state: &mut State, cx: &mut Context<'_>, event: Event<'_>| match event {
        Event::Received(id, bytes) => {
            assert!(paused.is_none());
            received.extend_from_slice(bytes);
            if received.len() == 100_000 {
                return cx.stop();
            }
            // Further records lie in the reactor's buffer, and some on the way.
            paused = Some(id);
            cx.pause(id);
            state.timeout = Some(cx.now());
        }
        Event::Timeout => {
            state.timeout = None;
            cx.resume(paused.take().expect("it was paused"));
        }
        Event::Closed(_, why) => panic!("{why:?}"),
        _ => {}
    };
    run_with(Some(files.source()), on, |address, _| {
        let mut stream = connect_tls(&files, address);
        stream.write_all(&pattern(100_000)).unwrap();
        // The server's end comes when it has all.
        let _ = stream.sock.read_to_end(&mut Vec::new());
    });
    assert!(received == pattern(100_000));
}

#[test]
fn a_connection_changes_reactors_in_the_midst_of_a_record() {
    let files = Files::new();
    let (tx, rx) = mpsc::channel();
    let (go_on, has_moved) = mpsc::channel();
    let first = |_: &mut State, cx: &mut Context<'_>, event: Event<'_>| match event {
        Event::Received(id, bytes) => {
            assert_eq!(bytes, b"first");
            cx.release(id);
        }
        Event::Released(_, stream) => {
            tx.send(stream).unwrap();
            cx.stop();
        }
        Event::Closed(_, why) => panic!("{why:?}"),
        _ => {}
    };
    run_with(Some(files.source()), first, move |address, _| {
        thread::scope(|scope| {
            let peer = scope.spawn(move || {
                let mut stream = connect_tls(&files, address);
                stream.write_all(b"first").unwrap();
                // Records that the session has sealed and the socket has not sent.
                stream.conn.writer().write_all(b"second").unwrap();
                let mut sealed = Vec::new();
                stream.conn.write_tls(&mut sealed).unwrap();
                stream.sock.write_all(&sealed[..9]).unwrap();
                has_moved.recv().unwrap();
                stream.sock.write_all(&sealed[9..]).unwrap();
                let mut answer = [0; 5];
                stream.read_exact(&mut answer).unwrap();
                assert_eq!(&answer, b"moved");
            });
            let mut reactor = reactor();
            let id = reactor.adopt(rx.recv().unwrap()).unwrap();
            go_on.send(()).unwrap();
            let on = |state: &mut State, cx: &mut Context<'_>, event: Event<'_>| match event {
                Event::Received(_, bytes) => {
                    assert_eq!(bytes, b"second");
                    state.send(cx, id, b"moved");
                }
                Event::Closed(..) => cx.stop(),
                _ => {}
            };
            reactor.run(&mut Toy { state: State::default(), on: Box::new(on) }).unwrap();
            peer.join().unwrap();
        });
    });
}

#[test]
fn a_client_proves_itself_and_waits_for_its_server() {
    let files = Files::new();
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    thread::scope(|scope| {
        let server = scope.spawn(|| {
            let session = ServerConnection::new(files.server()).unwrap();
            let mut stream = StreamOwned::new(session, listener.accept().unwrap().0);
            let mut said = [0; 5];
            stream.read_exact(&mut said).unwrap();
            assert_eq!(&said, b"hello");
            assert_eq!(stream.conn.peer_certificates().map(<[_]>::len), Some(1));
            stream.write_all(b"welcome").unwrap();
        });
        let mut reactor = reactor();
        let stream = Stream::client(connect(address), &files.client(true), "localhost".try_into().unwrap()).unwrap();
        let id = reactor.adopt(stream).unwrap();
        let mut state = State::default();
        state.send(&mut reactor.context(), id, b"hello");
        let mut is_welcome = false;
        let on = |_: &mut State, cx: &mut Context<'_>, event: Event<'_>| match event {
            Event::Received(id, bytes) => {
                assert_eq!(bytes, b"welcome");
                assert!(cx.peer_certificate(id).is_some());
                is_welcome = true;
                cx.stop();
            }
            Event::Closed(_, why) => assert!(is_welcome, "{why:?}"),
            _ => {}
        };
        reactor.run(&mut Toy { state, on: Box::new(on) }).unwrap();
        server.join().unwrap();
    });
}

#[test]
fn a_server_of_another_authority_ends_the_connection() {
    let (files, others) = (Files::new(), Files::new());
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    thread::scope(|scope| {
        scope.spawn(|| {
            let session = ServerConnection::new(others.server()).unwrap();
            let mut stream = StreamOwned::new(session, listener.accept().unwrap().0);
            let error = stream.read(&mut [0]).unwrap_err();
            assert!(error.to_string().contains("alert"), "it is told: {error}");
        });
        let mut reactor = reactor();
        let stream = Stream::client(connect(address), &files.client(false), "localhost".try_into().unwrap()).unwrap();
        reactor.adopt(stream).unwrap();
        let on = |_: &mut State, cx: &mut Context<'_>, event: Event<'_>| match event {
            Event::Closed(_, Closed::Error(error)) => {
                assert!(error.to_string().contains("certificate"), "{error}");
                cx.stop();
            }
            Event::Closed(_, why) => panic!("{why:?}"),
            _ => {}
        };
        reactor.run(&mut Toy { state: State::default(), on: Box::new(on) }).unwrap();
    });
}

#[test]
fn a_file_is_sealed_like_other_bytes() {
    struct Sender(FileSlice, Option<ConnectionId>, usize);
    impl Handler for Sender {
        fn accepted(&mut self, cx: &mut Context<'_>, _: ListenerId, id: ConnectionId, _: SocketAddr, _: SocketAddr) {
            self.1 = Some(id);
            cx.send(id);
        }
        fn received(&mut self, _: &mut Context<'_>, _: ConnectionId, bytes: &[u8]) -> usize {
            bytes.len()
        }
        fn gather<'a>(&'a self, _: ConnectionId, list: &mut Gather<'a>) {
            if self.2 == 0 {
                list.push(b"header");
            }
            list.push_file(&self.0.slice(self.2.saturating_sub(6)..self.0.len()));
        }
        fn sent(&mut self, cx: &mut Context<'_>, id: ConnectionId, len: usize) {
            self.2 += len;
            if self.2 == self.0.len() + 6 {
                cx.close_after_send(id);
            }
        }
        fn closed(&mut self, cx: &mut Context<'_>, _: ConnectionId, _: Closed) {
            cx.stop();
        }
    }
    let files = Files::new();
    let path = files.0.path().join("disk");
    std::fs::write(&path, pattern(700_000)).unwrap();
    let slice = FileSlice::new(Arc::new(File::open(&path).unwrap()), 5, 600_000);
    let mut reactor = reactor();
    let (listener, address) = reactor.listen("127.0.0.1:0".parse().unwrap()).unwrap();
    reactor.context().set_listener_tls(listener, Some(files.source()));
    thread::scope(|scope| {
        let peer = scope.spawn(|| {
            let mut all = Vec::new();
            connect_tls(&files, address).read_to_end(&mut all).unwrap();
            all
        });
        reactor.run(&mut Sender(slice, None, 0)).unwrap();
        let all = peer.join().unwrap();
        assert!(all[..6] == *b"header" && all[6..] == pattern(700_000)[5..600_005]);
    });
}
