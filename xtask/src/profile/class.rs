//! The layer of a function, by the beginning of its name.

use std::fmt;
use std::sync::OnceLock;

use serde::Deserialize;

/// The layers of the slides on zero-copy iSCSI, and the code between them here.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Class {
    /// The protocol: PDUs, sessions, connections.
    Iscsi,
    /// The device server, or the caller's side of commands; the store behind it.
    Scsi,
    /// CRC32C, even where it is fused with a copy.
    Digest,
    /// Bytes moved, cleared, or summed up for a checksum of TCP, in the kernel or outside.
    #[serde(alias = "checksum")]
    Copy,
    /// Sockets, TCP and IP.
    TcpIp,
    /// The network device: on loopback, the queue that stands for it.
    Driver,
    /// Pages, slabs, the heap, the pool of buffers.
    Memory,
    /// The event loop, and the code that passes things between the layers.
    EventLoop,
    /// System calls as such, scheduling, wake-ups, locks and clocks of the kernel.
    System,
}

impl Class {
    pub(super) const ALL: [Self; 9] = [
        Self::Iscsi,
        Self::Scsi,
        Self::Digest,
        Self::Copy,
        Self::TcpIp,
        Self::Driver,
        Self::Memory,
        Self::EventLoop,
        Self::System,
    ];

    /// The class of a function by its name.
    pub(super) fn of(symbol: &str, in_kernel: bool) -> Self {
        let (entries, otherwise) =
            if in_kernel { (&table().kernel, Self::System) } else { (&table().user, Self::EventLoop) };
        entries.iter().find(|entry| entry.fits(symbol)).map_or(otherwise, |entry| entry.layer)
    }
}

impl fmt::Display for Class {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Iscsi => "iSCSI",
            Self::Scsi => "SCSI and store",
            Self::Digest => "digest",
            Self::Copy => "copy",
            Self::TcpIp => "TCP/IP",
            Self::Driver => "driver",
            Self::Memory => "memory management",
            Self::EventLoop => "event loop",
            Self::System => "system calls, scheduler",
        })
    }
}

/// The table of names, which the laboratory has, too.
const TABLE: &str = include_str!("../../../lab/src/layers.toml");

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Table {
    kernel: Vec<Entry>,
    user: Vec<Entry>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Entry {
    layer: Class,
    names: Vec<String>,
}

impl Entry {
    /// Whether a name begins with one of the entry's or, for those of our own crates, contains it: names of trait
    /// functions begin with `<`.
    fn fits(&self, symbol: &str) -> bool {
        let bare = symbol.trim_start_matches('_');
        let fits = |name: &str| bare.starts_with(name) || (name.starts_with("lunette_") && symbol.contains(name));
        self.names.iter().any(|name| fits(name))
    }
}

fn table() -> &'static Table {
    static TABLE_READ: OnceLock<Table> = OnceLock::new();
    TABLE_READ.get_or_init(|| toml::from_str(TABLE).expect("the table of layers is right"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn functions_find_their_layer() {
        for (symbol, in_kernel, class) in [
            ("_copy_from_iter", true, Class::Copy),
            ("__pi_memcpy", true, Class::Copy),
            ("tcp_sendmsg_locked", true, Class::TcpIp),
            ("skb_page_frag_refill", true, Class::Memory),
            ("skb_release_data", true, Class::TcpIp),
            ("__netif_receive_skb_core.constprop.0", true, Class::Driver),
            ("_raw_spin_unlock_irqrestore", true, Class::System),
            ("__memset_avx512_unaligned_erms", false, Class::Copy),
            ("lunette_crc32c::kernels::vpclmul512::update", false, Class::Digest),
            ("<lunette_buffer::memory::Handle as core::ops::drop::Drop>::drop", false, Class::Memory),
            ("lunette_device::task::Task::step", false, Class::Scsi),
            ("lunette_session::outbox::Outbox::push", false, Class::Iscsi),
            ("lunette_reactor::reactor::Reactor::run", false, Class::EventLoop),
            ("[unknown]", false, Class::EventLoop),
        ] {
            assert_eq!(Class::of(symbol, in_kernel), class, "{symbol}");
        }
    }
}
