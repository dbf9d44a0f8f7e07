//! The layer of a function: a table of prefixes of its name.

use std::fmt;

/// The layers of the slides on zero-copy iSCSI, and the code between them here.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Class {
    /// The protocol: PDUs, sessions, connections.
    Iscsi,
    /// The device server, or the caller's side of commands; the store behind it.
    Scsi,
    /// CRC32C, even where it is fused with a copy.
    Digest,
    /// Bytes moved or cleared, in the kernel or outside.
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
        let table: &[(Self, &[&str])] = if in_kernel { &KERNEL } else { &USER };
        let found = table.iter().find(|(_, beginnings)| beginnings.iter().any(|part| matches(symbol, part)));
        let otherwise = if in_kernel { Self::System } else { Self::EventLoop };
        found.map_or(otherwise, |(class, _)| *class)
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

/// Whether a name begins with the part or, for parts of our own crates, contains it: names of trait functions begin with
/// `<`.
fn matches(symbol: &str, part: &str) -> bool {
    let bare = symbol.trim_start_matches('_');
    bare.starts_with(part) || (part.starts_with("lunette_") && symbol.contains(part))
}

/// Functions of the kernel. The first line that matches decides.
const KERNEL: [(Class, &[&str]); 4] = [
    (
        Class::Copy,
        &[
            "copy_from_iter",
            "copy_to_iter",
            "copy_user",
            "copy_from_user",
            "copy_to_user",
            "rep_movs",
            "rep_stos",
            "pi_mem",
            "memcpy",
            "memset",
            "memmove",
            "check_object_size",
            "check_heap_object",
            "virt_addr_valid",
            "skb_datagram_iter",
            "skb_copy_datagram",
            "simple_copy_to_iter",
            "copy_page",
            "splice",
            "iov_iter",
        ],
    ),
    (
        Class::Memory,
        &[
            "alloc_",
            "free_",
            "kmem_cache",
            "kmalloc",
            "kfree",
            "kvfree",
            "slab",
            "get_page",
            "put_page",
            "page_frag",
            "skb_page_frag",
            "clear_page",
            "clear_huge",
            "handle_mm",
            "do_anonymous",
            "exc_page_fault",
            "asm_exc_page_fault",
            "unmap",
            "zap_",
            "mod_node",
            "mod_zone",
            "mod_memcg",
            "lru_",
            "folio",
            "rmqueue",
            "list_del_entry",
            "list_add_valid",
            "mem_cgroup",
            "obj_cgroup",
            "refill_",
        ],
    ),
    (
        Class::Driver,
        &[
            "loopback",
            "net_rx_action",
            "process_backlog",
            "netif_",
            "dev_",
            "handle_softirqs",
            "do_softirq",
            "enqueue_to_backlog",
            "napi",
            "validate_xmit",
            "sch_direct",
            "qdisc",
            "eth_",
            "virtnet",
            "veth",
            "local_bh_enable",
        ],
    ),
    (
        Class::TcpIp,
        &[
            "tcp",
            "ip_",
            "ipv4",
            "ip6",
            "inet",
            "sk_",
            "sock",
            "skb",
            "raw_local",
            "raw_v4",
            "nf_",
            "lock_sock",
            "release_sock",
            "bictcp",
            "cubictcp",
            "bbr",
            "rb_",
            "neigh",
            "dst_",
            "fib_",
            "sys_sendmsg",
            "sys_recvmsg",
            "sys_recvfrom",
            "sys_sendto",
            "copy_msghdr",
            "import_iovec",
            "consume_skb",
        ],
    ),
];

/// Functions outside of the kernel.
const USER: [(Class, &[&str]); 5] = [
    (Class::Digest, &["lunette_crc32c"]),
    (Class::Copy, &["memcpy", "memmove", "memset", "memcmp"]),
    (Class::Iscsi, &["lunette_session", "lunette_pdu", "core::hash", "hashbrown", "<core::hash"]),
    (Class::Scsi, &["lunette_scsi", "lunette_device", "lunette_store"]),
    (
        Class::Memory,
        &["lunette_buffer", "malloc", "int_malloc", "int_free", "cfree", "free", "calloc", "realloc", "unlink_chunk"],
    ),
];

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
