//! The system calls for which no safe wrapper exists.
#![allow(unsafe_code)]

use std::fs::File;
use std::io;
use std::net::{Ipv4Addr, UdpSocket};
use std::os::fd::{AsRawFd, BorrowedFd};

use rustix::ioctl::{self, Opcode, Updater, opcode};
use rustix::thread::{CpuSet, UnshareFlags};

/// `TUNSETIFF`, whose number is made with an `int` though it takes an `ifreq`.
const TUNSETIFF: Opcode = opcode::write::<i32>(b'T', 202);
const IFF_TUN: u16 = 0x0001;
const IFF_NO_PI: u16 = 0x1000;

/// `struct ifreq`, as far as a TUN device needs it.
#[repr(C)]
struct InterfaceRequest {
    name: [u8; 16],
    flags: u16,
    rest: [u8; 22],
}

/// The namespaces that the calling thread, or for processes its children, get for themselves.
#[derive(Clone, Copy)]
pub(crate) enum Unshared {
    Network,
    Mounts,
    /// The processes of children alone. No thread can start afterwards in this process.
    Processes,
}

pub(crate) fn unshare(what: Unshared) -> io::Result<()> {
    let flags = match what {
        Unshared::Network => UnshareFlags::NEWNET,
        Unshared::Mounts => UnshareFlags::NEWNS,
        Unshared::Processes => UnshareFlags::NEWPID,
    };
    // SAFETY: of all flags only `FILES` breaks what other code relies on, and it is none of these.
    unsafe { rustix::thread::unshare_unsafe(flags) }.map_err(Into::into)
}

/// Makes `/dev/net/tun`, opened, a TUN device of that name in the network namespace of the calling thread.
pub(crate) fn attach_tun(file: &File, name: &str) -> io::Result<()> {
    let mut request = InterfaceRequest { name: [0; 16], flags: IFF_TUN | IFF_NO_PI, rest: [0; 22] };
    assert!(name.len() < request.name.len(), "a name of an interface has up to 15 bytes");
    request.name[..name.len()].copy_from_slice(name.as_bytes());
    // SAFETY: `TUNSETIFF` reads and writes one `struct ifreq` of 40 bytes, which `InterfaceRequest` is.
    unsafe { ioctl::ioctl(file, Updater::<TUNSETIFF, InterfaceRequest>::new(&mut request)) }.map_err(Into::into)
}

/// Which real-time threads run before which.
#[derive(Clone, Copy)]
pub(crate) enum Urgency {
    /// The processes of a measurement: before all that is ordinary.
    Measured = 1,
    /// The relay, and what counts packets: before what is measured.
    Instrument = 2,
}

/// Runs the calling thread, and what it starts later, before all threads with an ordinary priority. Root needs
/// CAP_SYS_NICE for it.
pub(crate) fn run_first(urgency: Urgency) -> io::Result<()> {
    let priority = libc::sched_param { sched_priority: urgency as i32 };
    // SAFETY: the call reads the parameter and changes nothing but how the thread is scheduled.
    let outcome = unsafe { libc::sched_setscheduler(0, libc::SCHED_RR, &raw const priority) };
    if outcome == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// `struct ethtool_value`.
#[repr(C)]
struct EthtoolValue {
    command: u32,
    value: u32,
}

/// `struct ifreq` with a pointer.
#[repr(C)]
struct EthtoolRequest {
    name: [u8; 16],
    value: *mut EthtoolValue,
    rest: [u8; 16],
}

/// The work that an interface does for the system.
#[derive(Clone, Copy)]
pub(crate) enum Offload {
    /// Checksums are computed and verified by it.
    Checksums,
    /// Packets are segmented and joined by it: TSO, GSO and GRO.
    Segments,
}

/// Switches an offload of an interface in the network namespace of the calling thread.
pub(crate) fn set_offload(interface: &str, offload: Offload, on: bool) -> io::Result<()> {
    const SIOCETHTOOL: libc::c_ulong = 0x8946;
    let commands: &[u32] = match offload {
        // ETHTOOL_STXCSUM and ETHTOOL_SRXCSUM.
        Offload::Checksums => &[0x17, 0x15],
        // ETHTOOL_STSO, ETHTOOL_SGSO and ETHTOOL_SGRO.
        Offload::Segments => &[0x1f, 0x24, 0x2c],
    };
    let socket = UdpSocket::bind((Ipv4Addr::UNSPECIFIED, 0))?;
    let mut name = [0; 16];
    assert!(interface.len() < name.len(), "a name of an interface has up to 15 bytes");
    name[..interface.len()].copy_from_slice(interface.as_bytes());
    for &command in commands {
        let mut value = EthtoolValue { command, value: on.into() };
        let mut request = EthtoolRequest { name, value: &raw mut value, rest: [0; 16] };
        // SAFETY: the call reads an `ifreq`, which the request is, and the value that it points to; both outlive it.
        let outcome = unsafe { libc::ioctl(socket.as_raw_fd(), SIOCETHTOOL as _, &raw mut request) };
        if outcome != 0 {
            return Err(io::Error::last_os_error());
        }
    }
    Ok(())
}

/// Keeps the calling thread, and what it starts later, on one CPU.
pub(crate) fn stay_on(cpu: usize) -> io::Result<()> {
    let mut set = CpuSet::new();
    set.set(cpu);
    rustix::thread::sched_setaffinity(None, &set).map_err(Into::into)
}

/// Lets the calling thread run on any CPU.
pub(crate) fn stay_on_any() -> io::Result<()> {
    let mut set = CpuSet::new();
    // The system leaves those out that do not exist.
    (0..CpuSet::MAX_CPU).for_each(|cpu| set.set(cpu));
    rustix::thread::sched_setaffinity(None, &set).map_err(Into::into)
}

/// The bytes that may be on the way on a TCP connection.
pub(crate) struct TcpWindows {
    /// The allowance of the peer's last acknowledgement, in bytes.
    pub(crate) sent: u32,
    /// The allowance of this end for its peer.
    pub(crate) received: u32,
}

/// Reads both windows of a TCP connection. Linux 6.2 and later have them.
pub(crate) fn tcp_windows(socket: BorrowedFd) -> io::Result<TcpWindows> {
    /// The places of `tcpi_snd_wnd` and `tcpi_rcv_wnd` in `struct tcp_info`.
    const WINDOWS: [usize; 2] = [228, 232];
    let mut info = [0_u8; 256];
    let mut len = info.len() as libc::socklen_t;
    // SAFETY: the call writes at most `len` bytes to `info`, and sets `len` to their number.
    let outcome = unsafe {
        libc::getsockopt(socket.as_raw_fd(), libc::IPPROTO_TCP, libc::TCP_INFO, info.as_mut_ptr().cast(), &raw mut len)
    };
    if outcome != 0 {
        return Err(io::Error::last_os_error());
    }
    let [sent, received] = WINDOWS.map(|at| u32::from_ne_bytes([info[at], info[at + 1], info[at + 2], info[at + 3]]));
    Ok(TcpWindows { sent, received })
}

const _: () = assert!(size_of::<InterfaceRequest>() == 40 && size_of::<EthtoolRequest>() == 40);
