//! The memory of a target: idle, and with more load than it has buffers for.

mod busy;

use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use lunette_pdu::text::TextWriter;
use lunette_pdu::{
    BHS_LEN, Bhs, Cid, InitiatorTaskTag, Isid, LoginRequest, LoginResponse, LoginStatus, SerialNumber, Stage as Phase,
    Tsih, pad_len,
};

use super::contestant::{Lunette, Stage};

/// The length of a disk that is never written to, so that it takes no memory.
const DISK_LEN: u64 = 64 << 20;

/// The most memory that a session may take beside buffers.
pub(super) const SESSION_BOUND_BYTES: u64 = 64 << 10;

/// Sessions that log in and then stay idle.
const SESSIONS: u16 = 256;

/// The longest wait for the next byte of a login.
const LOGIN_LIMIT: Duration = Duration::from_secs(10);

/// Resident memory of `lunette serve`, in bytes.
pub(super) struct Memory {
    /// Memory before any initiator connects.
    pub(super) at_rest: u64,
    /// Memory that each idle session adds.
    pub(super) idle_session: u64,
    /// The peak under 1,000 sessions that want more buffers than there are.
    pub(super) busy_peak: u64,
}

impl Memory {
    /// Measures on separate servers.
    pub(super) fn measure(stage: &Stage) -> Result<Self> {
        let server = Lunette::start(stage, "serve-idle", DISK_LEN)?;
        let at_rest = server.child.resident_bytes()?;
        let (portal, target) = parts(&server.url).with_context(|| format!("{} is no URL", server.url))?;
        let mut sessions = Vec::new();
        for number in 0..SESSIONS {
            stage.interrupt.check()?;
            sessions.push(log_in(portal, target, number).with_context(|| format!("session {number}"))?);
        }
        let idle_bytes = server.child.resident_bytes()?;
        drop((sessions, server));
        Ok(Self {
            at_rest,
            idle_session: idle_bytes.saturating_sub(at_rest) / u64::from(SESSIONS),
            busy_peak: busy::peak_bytes(stage)?,
        })
    }

    /// The bound for 1,000 busy sessions: the memory at rest, all buffers, and what each session may take beside them.
    pub(super) fn busy_bound(&self) -> u64 {
        self.at_rest + busy::BUFFER_BYTES + u64::from(busy::SESSIONS) * SESSION_BOUND_BYTES
    }
}

/// Portal and target of `iscsi://PORTAL/TARGET/LUN`.
fn parts(url: &str) -> Option<(&str, &str)> {
    let (portal, rest) = url.strip_prefix("iscsi://")?.split_once('/')?;
    Some((portal, rest.split_once('/')?.0))
}

/// Opens a session with one request, which has no keys but the names, so that all parameters have their defaults.
fn log_in(portal: &str, target: &str, number: u16) -> Result<TcpStream> {
    let mut stream = TcpStream::connect(portal).with_context(|| format!("cannot connect to {portal}"))?;
    stream.set_read_timeout(Some(LOGIN_LIMIT))?;
    stream.write_all(&login_request(target, number)?)?;
    let mut response = [0; BHS_LEN];
    stream.read_exact(&mut response).context("no response to the login")?;
    let bhs = Bhs::ref_from(&response).context("a header has 48 bytes")?;
    let response = LoginResponse::parse(bhs)?;
    if response.status != LoginStatus::SUCCESS || !response.transit || response.nsg != Phase::FullFeaturePhase {
        bail!("the login does not end with this response: {response:?}");
    }
    Ok(stream)
}

fn login_request(target: &str, number: u16) -> Result<Vec<u8>> {
    let mut text = TextWriter::new();
    text.push("InitiatorName", "iqn.2026-11.lunette:idle")?;
    text.push("SessionType", "Normal")?;
    text.push("TargetName", target)?;
    let header = LoginRequest {
        transit: true,
        continue_: false,
        csg: Phase::LoginOperationalNegotiation,
        nsg: Phase::FullFeaturePhase,
        version_max: 0,
        version_min: 0,
        isid: Isid::random(0, number),
        tsih: Tsih::NEW,
        itt: InitiatorTaskTag(0),
        cid: Cid(0),
        cmd_sn: SerialNumber(1),
        exp_stat_sn: SerialNumber(0),
        data_segment_len: text.len(),
    };
    let mut bytes = header.emit().to_vec();
    bytes.extend_from_slice(text.as_bytes());
    bytes.resize(bytes.len() + pad_len(text.len()), 0);
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_url_has_a_portal_and_a_target() {
        let url = "iscsi://127.0.0.1:3260/iqn.2026-11.lunette:disk/0";
        assert_eq!(parts(url), Some(("127.0.0.1:3260", "iqn.2026-11.lunette:disk")));
        assert_eq!(parts("iscsi://127.0.0.1:3260"), None);
    }

    #[test]
    fn each_login_asks_for_a_session_of_its_own() {
        let (one, two) = (login_request("iqn.2026-11.a:b", 1).unwrap(), login_request("iqn.2026-11.a:b", 2).unwrap());
        let parse = |bytes: &[u8]| LoginRequest::parse(Bhs::ref_from(&bytes[..BHS_LEN]).unwrap()).unwrap();
        assert_ne!(parse(&one).isid, parse(&two).isid);
        assert_eq!(one.len() % 4, 0);
        assert_eq!(parse(&one).data_segment_len, one.len() - BHS_LEN - pad_len(parse(&one).data_segment_len));
    }
}
