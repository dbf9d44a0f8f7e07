//! Counters of a server, as Prometheus reads them.

use std::collections::BTreeMap;
use std::io::{self, Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};

/// The beginnings of the names of counters that belong to disks and initiators, and not to a process.
const LASTING: [&str; 5] = [
    "lunette_lun_read_bytes_total",
    "lunette_lun_written_bytes_total",
    "lunette_lun_commands_total",
    "lunette_initiator_read_bytes_total",
    "lunette_initiator_written_bytes_total",
];

/// Values by the names of counters with their labels.
pub(super) type Counters = BTreeMap<String, f64>;

/// Reads the counters that no handover may set back.
pub(super) fn read(metrics: SocketAddr) -> io::Result<Counters> {
    let mut stream = TcpStream::connect(metrics)?;
    write!(stream, "GET /metrics HTTP/1.0\r\n\r\n")?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer)?;
    let counter = |line: &str| {
        let (name, value) = line.rsplit_once(' ')?;
        let lasts = LASTING.iter().any(|known| name.strip_prefix(known).is_some_and(|rest| rest.starts_with('{')));
        lasts.then(|| Some((name.to_owned(), value.parse().ok()?)))?
    };
    Ok(answer.lines().filter_map(counter).collect())
}
