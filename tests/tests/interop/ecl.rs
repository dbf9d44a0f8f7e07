//! The Effective Cross Layer between real processes: disks over datagrams, beside iSCSI over TCP, and over a network
//! that loses packets.

use std::fs;
use std::net::{SocketAddr, UdpSocket};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::Duration;

use lunette_initiator::{Disk, Request, wait};
use lunette_tests::{Server, lunette, random_file, run};

const BLOCK_LEN: usize = 512;
const ROUNDS: u64 = 300;
const RESERVATION_CONFLICT: &str = "RESERVATION CONFLICT";

/// A server of one disk. Its second URL is that for datagrams.
fn serve(arguments: &[&str]) -> Server {
    Server::start_at("127.0.0.1:0", &[&["--ecl", "127.0.0.1:0"], arguments].concat(), 2)
}

/// Runs `lunette` to its end.
fn ran(arguments: &[&str]) -> lunette_tests::Ran {
    run(lunette().get_program(), arguments)
}

#[test]
fn an_image_is_copied_in_and_out_and_the_tools_take_the_url() {
    let folder = tempfile::tempdir().unwrap();
    let [image, back] = ["image", "back"].map(|name| folder.path().join(name));
    random_file(&image, 3, 16);
    let server = serve(&["mem:16M"]);
    let url = server.url(1);
    assert!(url.starts_with("ecl://"), "{url}");
    ran(&["cp", image.to_str().unwrap(), url]).succeeded();
    ran(&["cp", url, back.to_str().unwrap()]).succeeded();
    assert!(fs::read(&image).unwrap() == fs::read(&back).unwrap());
    // The same disk by TCP.
    fs::remove_file(&back).unwrap();
    ran(&["cp", server.url(0), back.to_str().unwrap()]).succeeded();
    assert!(fs::read(&image).unwrap() == fs::read(&back).unwrap());
    assert!(ran(&["info", url]).succeeded().contains("16777216 bytes"));
    let portal = url.rsplitn(3, '/').last().unwrap();
    let listed = ran(&["ls", portal]).succeeded().to_owned();
    let address = portal.strip_prefix("ecl://").unwrap();
    assert!(listed.contains("LUN 0") && listed.contains(address), "{listed}");
    assert!(
        !ran(&["ls", &server.portal_url()]).succeeded().contains(address),
        "initiators over TCP are not told of it"
    );
    server.stop();
}

/// A block that holds a count.
fn block(count: u64) -> Vec<u8> {
    (0..BLOCK_LEN as u64 / 8).flat_map(|place| (count ^ place << 56).to_be_bytes()).collect()
}

/// Increments the count in block 7 this many times, against all others.
fn increment(url: &str) {
    let disk = wait(Disk::connect(url)).unwrap();
    let mut done = 0;
    while done < ROUNDS {
        let bytes = wait(disk.read(7, 1)).unwrap();
        let count = u64::from_be_bytes(bytes[..8].try_into().unwrap());
        assert!(bytes[..] == block(count), "a torn block");
        done += u64::from(wait(disk.compare_and_write(7, &block(count), &block(count + 1))).is_ok());
    }
}

#[test]
fn increments_over_both_transports_are_all_accounted_for() {
    let server = serve(&["mem:16M"]);
    let witness = wait(Disk::connect(server.url(0))).unwrap();
    wait(witness.write(7, &block(0), false)).unwrap();
    thread::scope(|scope| {
        let fighters = [0, 0, 1, 1].map(|n| {
            let url = server.url(n);
            scope.spawn(move || increment(url))
        });
        for fighter in fighters {
            fighter.join().unwrap();
        }
    });
    assert!(wait(witness.read(7, 1)).unwrap()[..] == block(4 * ROUNDS));
    server.stop();
}

/// Service actions of PERSISTENT RESERVE OUT (SPC-4 6.16.2).
const REGISTER_AND_IGNORE: u8 = 6;
const RESERVE: u8 = 1;
const CLEAR: u8 = 3;

/// PERSISTENT RESERVE OUT with a service action, type "write exclusive" (SPC-4 6.16).
fn reserve_out(disk: &Disk, action: u8, key: u64, action_key: u64) -> Result<(), String> {
    let mut data = [0; 24];
    data[..8].copy_from_slice(&key.to_be_bytes());
    data[8..16].copy_from_slice(&action_key.to_be_bytes());
    let mut buffer = disk.session().buffer(data.len()).unwrap();
    buffer.copy_from_slice(&data);
    let mut cdb = [0; 16];
    (cdb[0], cdb[1], cdb[2], cdb[8]) = (0x5f, action, 0x01, data.len() as u8);
    let request = Request::new(disk.lun(), cdb).with_data_out(buffer.share());
    wait(disk.session().execute(request))
        .result
        .map_err(|error| error.to_string())?
        .ok()
        .map_err(|error| error.to_string())?;
    Ok(())
}

#[test]
fn a_reservation_taken_over_one_transport_holds_on_the_other() {
    let server = serve(&["mem:16M"]);
    for (holder, other) in [(0, 1), (1, 0)] {
        let [holder, other] = [holder, other].map(|n| wait(Disk::connect(server.url(n))).unwrap());
        reserve_out(&holder, REGISTER_AND_IGNORE, 0, 11).unwrap();
        reserve_out(&holder, RESERVE, 11, 0).unwrap();
        wait(holder.write(1, &block(5), false)).unwrap();
        let refused = wait(other.write(1, &block(6), false)).unwrap_err().to_string();
        assert!(refused.to_uppercase().contains(RESERVATION_CONFLICT), "{refused}");
        assert!(wait(other.read(1, 1)).unwrap()[..] == block(5));
        reserve_out(&holder, CLEAR, 11, 0).unwrap();
        wait(other.write(1, &block(6), false)).unwrap();
    }
    server.stop();
}

#[test]
fn chap_binds_the_keys_and_a_wrong_secret_does_not_get_in() {
    let folder = tempfile::tempdir().unwrap();
    let [user, target] = [("user", "secret-of-user"), ("target", "secret-of-target")].map(|(name, secret)| {
        let path = folder.path().join(name);
        fs::write(&path, secret).unwrap();
        path.display().to_string()
    });
    let server = serve(&["mem:16M", "--chap", &format!("u:{user}"), "--mutual-chap", &format!("t:{target}")]);
    let url = |password: &str, more: &str| server.url(1).replacen("ecl://", &format!("ecl://u%{password}@"), 1) + more;
    let mutual = format!("?target_user=t&chap_target_secret_file={target}");
    for more in ["", &mutual] {
        ran(&["info", &url("secret-of-user", more)]).succeeded();
    }
    let refused = ran(&["info", &url("another-secret-0", "")]);
    assert!(refused.failed().contains("authentication"), "{refused}");
    server.stop();
}

/// Carries datagrams between one client and a server. It loses one in `lose`, repeats one in `repeat`, and lets one in
/// `late` be overtaken.
struct Relay {
    address: SocketAddr,
    ends: Arc<AtomicBool>,
    lost: Arc<AtomicU64>,
}

impl Relay {
    fn start(server: SocketAddr, [lose, repeat, late]: [u64; 3]) -> Self {
        let [front, back] = [(); 2].map(|()| Arc::new(UdpSocket::bind("127.0.0.1:0").unwrap()));
        back.connect(server).unwrap();
        let address = front.local_addr().unwrap();
        let (ends, lost) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicU64::new(0)));
        let client = Arc::new(std::sync::Mutex::new(None));
        for is_upward in [true, false] {
            let (front, back, ends, lost, client) =
                (Arc::clone(&front), Arc::clone(&back), Arc::clone(&ends), Arc::clone(&lost), Arc::clone(&client));
            thread::spawn(move || {
                let socket = if is_upward { &front } else { &back };
                socket.set_read_timeout(Some(Duration::from_millis(100))).unwrap();
                let mut bytes = vec![0; 65_536];
                let mut held: Option<Vec<u8>> = None;
                let mut count = 0_u64;
                while !ends.load(Ordering::Relaxed) {
                    let Ok((len, from)) = socket.recv_from(&mut bytes) else { continue };
                    if is_upward {
                        *client.lock().unwrap() = Some(from);
                    }
                    let send = |bytes: &[u8]| match *client.lock().unwrap() {
                        _ if is_upward => drop(back.send(bytes)),
                        Some(client) => drop(front.send_to(bytes, client)),
                        None => {}
                    };
                    count += 1;
                    if count.is_multiple_of(lose) {
                        lost.fetch_add(1, Ordering::Relaxed);
                        continue;
                    }
                    if count.is_multiple_of(late) {
                        held = Some(bytes[..len].to_vec());
                        continue;
                    }
                    send(&bytes[..len]);
                    if count.is_multiple_of(repeat) {
                        send(&bytes[..len]);
                    }
                    if let Some(held) = held.take() {
                        send(&held);
                    }
                }
            });
        }
        Self { address, ends, lost }
    }
}

impl Drop for Relay {
    fn drop(&mut self) {
        self.ends.store(true, Ordering::Relaxed);
    }
}

#[test]
fn every_byte_is_right_over_a_network_that_loses_repeats_and_reorders() {
    let server = serve(&["mem:16M"]);
    let rest = server.url(1).strip_prefix("ecl://").unwrap();
    let (address, path) = rest.split_once('/').unwrap();
    let relay = Relay::start(address.parse().unwrap(), [101, 37, 53]);
    let url = format!("ecl://{}/{path}", relay.address);
    for size in ["4K", "256K"] {
        let bench = ["bench", &url, "--rw", "verify", "--bs", size, "--depth", "8", "--time", "3"];
        let said = ran(&bench).succeeded().to_owned();
        assert!(said.contains("all right"), "{said}");
    }
    assert!(relay.lost.load(Ordering::Relaxed) > 10, "the network has lost packets");
    server.stop();
}

#[test]
fn two_ends_that_want_different_things_encrypted_agree_on_the_stronger() {
    for (of_server, of_client) in [("headers", "all"), ("all", "headers")] {
        let server = serve(&["--ecl-protect", of_server, "mem:16M"]);
        let url = format!("{}?protect={of_client}", server.url(1));
        let said = ran(&["bench", &url, "--rw", "verify", "--bs", "64K", "--depth", "4", "--time", "1"]);
        assert!(said.succeeded().contains("all right"), "{said}");
        server.stop();
    }
}

/// The answer of a server to a packet of an association that it does not know.
fn reset_of(server: &Server, socket: &UdpSocket) -> Vec<u8> {
    let rest = server.url(1).strip_prefix("ecl://").unwrap();
    socket.connect(rest.split('/').next().unwrap()).unwrap();
    // Version 1, type Stream, association 7, nothing acknowledged.
    let mut packet = [0; 128];
    (packet[0], packet[7]) = (0x14, 7);
    packet[16..24].fill(0xff);
    socket.send(&packet).unwrap();
    let mut reset = vec![0; 256];
    let len = socket.recv(&mut reset).unwrap();
    reset.truncate(len);
    assert_eq!(reset[0], 0x1a, "a Reset");
    reset
}

#[test]
fn a_server_with_a_state_file_can_tell_the_clients_of_the_one_before_that_it_is_another() {
    let folder = tempfile::tempdir().unwrap();
    let state = folder.path().join("state");
    let with_state = || serve(&["--state", state.to_str().unwrap(), "mem:1M"]);
    let without = || serve(&["mem:1M"]);
    // The answer is for its address alone.
    let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
    socket.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
    let [first, second, third] = [with_state(), without(), without()].map(|server| {
        let reset = reset_of(&server, &socket);
        let log = server.log();
        server.kill();
        (reset, log)
    });
    let again = with_state();
    assert_eq!(reset_of(&again, &socket), first.0);
    again.stop();
    assert!(!first.1.contains("there is no state file") && second.1.contains("there is no state file"));
    assert!(second.0 != first.0 && second.0 != third.0 && third.0 != first.0);
}
