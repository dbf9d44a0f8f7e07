//! Making TCP connections. Names are looked up and sockets connected on a thread of their own: both may take long.

use std::io;
use std::net::{TcpStream, ToSocketAddrs};
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use super::{Message, Queue, SessionKey};
use crate::Error;
use crate::options::Portal;

/// Connects to `portal`; [`Message::Dialed`] brings the result.
pub(super) fn dial(queue: &Arc<Queue>, session: SessionKey, attempt: u64, portal: Portal, timeout: Duration) {
    let answer = Arc::clone(queue);
    let report = move |result| answer.push(Message::Dialed { session, attempt, result });
    let failed = {
        let portal = portal.to_string();
        move |source: io::Error| Error::Connect { portal, source: Arc::new(source) }
    };
    let (report_failure, cannot_start) = (report.clone(), failed.clone());
    let work = move || report(connect(&portal, timeout).map_err(failed));
    if let Err(error) = thread::Builder::new().name("lunette-connect".into()).spawn(work) {
        report_failure(Err(cannot_start(error)));
    }
}

/// The first address of the portal that answers.
fn connect(portal: &Portal, timeout: Duration) -> io::Result<TcpStream> {
    let mut last = io::Error::new(io::ErrorKind::NotFound, "the name has no address");
    for address in (portal.host.as_str(), portal.port).to_socket_addrs()? {
        match TcpStream::connect_timeout(&address, timeout) {
            Ok(stream) => return Ok(stream),
            Err(error) => last = error,
        }
    }
    Err(last)
}
