//! Round trips, measured with ICMP: the system at the other end answers by itself, so no process is timed there.

use std::io;
use std::net::{Ipv4Addr, SocketAddrV4};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use rustix::net::sockopt::{Timeout, set_socket_timeout};
use rustix::net::{AddressFamily, RecvFlags, SendFlags, SocketType, ipproto, recv, sendto, socket};

/// The IP packet: headers of IP and ICMP, and no data.
pub(crate) const PACKET_BYTES: u32 = 28;
const ECHO_REPLY: u8 = 0;
const ECHO: u8 = 8;
/// The time that the exchanges of a check fill, within these bounds.
const TIME: Duration = Duration::from_secs(1);
const FEWEST: u32 = 3;
const MOST: u32 = 50;
/// The time that an answer may take longer than it should.
const PATIENCE: Duration = Duration::from_secs(2);

/// Measures round trips one after another, from the calling thread's network namespace.
pub(crate) fn round_trips(peer: Ipv4Addr, asked: Duration) -> Result<Vec<Duration>> {
    let socket =
        socket(AddressFamily::INET, SocketType::RAW, Some(ipproto::ICMP)).context("cannot open a raw socket")?;
    set_socket_timeout(&socket, Timeout::Recv, Some(asked + PATIENCE))?;
    let count = (TIME.as_nanos() / asked.as_nanos().max(1)).clamp(FEWEST.into(), MOST.into()) as u16;
    let mut times = Vec::new();
    // The first one finds caches cold and is not counted.
    for number in 0..=count {
        let sent = Instant::now();
        sendto(&socket, &echo(number), SendFlags::empty(), &SocketAddrV4::new(peer, 0))?;
        await_answer(&socket, number)?;
        if number > 0 {
            times.push(sent.elapsed());
        }
    }
    Ok(times)
}

fn await_answer(socket: impl std::os::fd::AsFd, number: u16) -> Result<()> {
    let mut packet = [0; PACKET_BYTES as usize];
    loop {
        match recv(&socket, &mut packet[..], RecvFlags::empty()) {
            Ok((len, _)) if len == packet.len() && packet[20] == ECHO_REPLY && packet[26..] == number.to_be_bytes() => {
                return Ok(());
            }
            Ok(_) => {}
            Err(error) if io::Error::from(error).kind() == io::ErrorKind::WouldBlock => {
                bail!("no answer from the other end in {PATIENCE:?} more than it should take")
            }
            Err(error) => return Err(error).context("cannot receive"),
        }
    }
}

/// An echo request without data.
fn echo(number: u16) -> [u8; 8] {
    let [high, low] = number.to_be_bytes();
    let sum = !(u16::from_be_bytes([ECHO, 0]) + number);
    let [sum_high, sum_low] = sum.to_be_bytes();
    [ECHO, 0, sum_high, sum_low, 0, 0, high, low]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_checksum_of_an_echo_is_right() {
        for number in [0, 1, 50] {
            let sum: u32 = echo(number).chunks(2).map(|pair| u32::from(u16::from_be_bytes([pair[0], pair[1]]))).sum();
            assert_eq!(sum, 0xffff, "{number}");
        }
    }
}
