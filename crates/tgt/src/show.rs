//! The texts that tgtd prints, character by character.

use std::fmt::Write;
use std::net::SocketAddr;

use lunette_api::{Disk, Document, Session};

use crate::book::Unit;
use crate::document::{self, Direction, is_set};

/// The bytes of what tgtd calls a MB.
const MB: u64 = 1_000_000;

/// The unit of tgtd that is no disk. This target answers for it without having one.
const CONTROLLER: u16 = 0;

/// A target with all that is printed of it.
pub(crate) struct Target<'a> {
    pub(crate) tid: u32,
    pub(crate) name: &'a str,
    pub(crate) document: &'a Document,
    pub(crate) sessions: &'a [Session],
    pub(crate) disks: Vec<&'a Disk>,
    /// The units whose disks are not open.
    pub(crate) closed: &'a [u16],
}

/// A logical unit as it is printed.
struct Lun<'a> {
    number: u16,
    kind: &'static str,
    scsi_id: String,
    serial: String,
    size_bytes: u64,
    block_size: u32,
    is_online: bool,
    is_removable: bool,
    is_read_only: bool,
    is_thin: bool,
    backing_type: &'a str,
    path: &'a str,
}

impl Target<'_> {
    /// The text. `known` is what the book has of each unit.
    pub(crate) fn text(&self, known: impl Fn(u16) -> Unit) -> String {
        let mut text = format!(
            "Target {}: {}\n    System information:\n        Driver: iscsi\n        State: ready\n    I_T nexus information:\n",
            self.tid, self.name
        );
        self.sessions.iter().for_each(|session| text.push_str(&nexus(session)));
        text.push_str("    LUN information:\n");
        let units = document::units(self.document);
        if units.first().is_none_or(|(number, _)| *number != CONTROLLER) {
            text.push_str(&self.controller().text());
        }
        for (number, unit) in units {
            let known = known(number);
            text.push_str(&self.lun(number, unit, &known).text());
        }
        // Writing to a text does not fail.
        text.push_str("    Account information:\n");
        for (user, direction) in document::users(self.document) {
            let mark = if direction == Direction::Outgoing { " (outgoing)" } else { "" };
            let _ = writeln!(text, "        {user}{mark}");
        }
        text.push_str("    ACL information:\n");
        for rule in document::rules(self.document) {
            let _ = writeln!(text, "        {}", rule.text());
        }
        text
    }

    fn controller(&self) -> Lun<'static> {
        Lun {
            number: CONTROLLER,
            kind: "controller",
            scsi_id: self.scsi_id(CONTROLLER),
            serial: format!("beaf{}{CONTROLLER}", self.tid),
            size_bytes: 0,
            block_size: 1,
            is_online: true,
            is_removable: false,
            is_read_only: false,
            is_thin: false,
            backing_type: "null",
            path: "None",
        }
    }

    fn lun<'a>(&'a self, number: u16, unit: &'a Document, known: &'a Unit) -> Lun<'a> {
        let disk = self.disks.iter().find(|disk| disk.number == number);
        let name = document::text(unit, "disk").unwrap_or_default();
        let (backing_type, path) = match (&known.backing_type, name.strip_prefix("rbd:")) {
            (Some(chosen), Some(image)) if chosen == "rbd" => (chosen.as_str(), image),
            (None, Some(image)) => ("rbd", image),
            (Some(chosen), None) if chosen == "longhorn" => (chosen.as_str(), longhorn_socket(name)),
            (chosen, _) => (chosen.as_deref().unwrap_or("rdwr"), name),
        };
        Lun {
            number,
            kind: "disk",
            scsi_id: known.scsi_id.clone().unwrap_or_else(|| self.scsi_id(number)),
            serial: disk.map(|disk| disk.serial.clone()).unwrap_or_default(),
            size_bytes: disk.map_or(0, |disk| disk.size_bytes),
            block_size: disk.map_or(512, |disk| disk.block_size),
            is_online: disk.is_some() && !self.closed.contains(&number),
            is_removable: is_set(unit, "removable"),
            is_read_only: is_set(unit, "read_only"),
            is_thin: document::is_thin(unit),
            backing_type,
            path,
        }
    }

    /// The identifier that tgtd makes of the numbers.
    fn scsi_id(&self, lun: u16) -> String {
        format!("IET     {:04x}{lun:04x}", self.tid)
    }
}

impl Lun<'_> {
    fn text(&self) -> String {
        let word = |is_so: bool| if is_so { "Yes" } else { "No" };
        let lines = [
            ("Type", self.kind.to_owned()),
            ("SCSI ID", self.scsi_id.clone()),
            ("SCSI SN", self.serial.clone()),
            ("Size", format!("{} MB, Block size: {}", megabytes(self.size_bytes), self.block_size)),
            ("Online", word(self.is_online).into()),
            ("Removable media", word(self.is_removable).into()),
            ("Prevent removal", word(false).into()),
            ("Readonly", word(self.is_read_only).into()),
            ("SWP", word(false).into()),
            ("Thin-provisioning", word(self.is_thin).into()),
            ("Backing store type", self.backing_type.to_owned()),
            ("Backing store path", self.path.to_owned()),
            ("Backing store flags", String::new()),
        ];
        let lines: String =
            lines.iter().map(|(name, value)| format!("            {name}: {value}\n")).collect::<Vec<_>>().concat();
        format!("        LUN: {}\n{lines}", self.number)
    }
}

/// The socket in the name of a volume of Longhorn.
fn longhorn_socket(name: &str) -> &str {
    let socket = name.strip_prefix("longhorn:").unwrap_or(name);
    socket.split_once('?').map_or(socket, |(socket, _)| socket)
}

/// A size as tgtd rounds it: to the nearest MB.
fn megabytes(bytes: u64) -> u64 {
    bytes.saturating_add(MB / 2) / MB
}

/// A session in the text of its target.
fn nexus(session: &Session) -> String {
    let mut text =
        format!("        I_T nexus: {}\n            Initiator: {} alias: none\n", session.id, session.initiator);
    for (number, peer) in session.peers.iter().enumerate() {
        // Writing to a text does not fail.
        let _ = write!(text, "            Connection: {number}\n                IP Address: {}\n", address(peer));
    }
    text
}

/// A session in the text of its connections.
pub(crate) fn session(session: &Session) -> String {
    let mut text = format!("Session: {}\n", session.id);
    for (number, peer) in session.peers.iter().enumerate() {
        // Writing to a text does not fail.
        let _ = write!(
            text,
            "    Connection: {number}\n        Initiator: {}\n        IP Address: {}\n",
            session.initiator,
            address(peer)
        );
    }
    text
}

/// The address of a peer, without its port.
fn address(peer: &str) -> String {
    peer.parse().map_or_else(|_| peer.to_owned(), |address: SocketAddr| address.ip().to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_rounded_as_tgtd_rounds_them() {
        // Printed by tgtd 1.0.85 for files of these lengths.
        for (bytes, printed) in
            [(1 << 26, 67), (3 << 40, 3_298_535), (1 << 20, 1), (1_500_000 - 1_500_000 % 512, 1), (0, 0)]
        {
            assert_eq!(megabytes(bytes), printed, "{bytes}");
        }
    }

    #[test]
    fn peers_are_shown_without_their_ports() {
        assert_eq!(address("192.0.2.7:51234"), "192.0.2.7");
        assert_eq!(address("[2001:db8::1]:51234"), "2001:db8::1");
    }
}
