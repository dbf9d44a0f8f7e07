//! Logins, and further connections of a session.

use std::io;
use std::net::SocketAddr;

use lunette_pdu::{Cid, Isid, LoginRequest, LoginResponse, LoginStatus, Stage, TargetPdu, Tsih};

use super::{Outcome, ScriptedInitiator, Sense};
use crate::{Format, TARGET, keys, requests};

/// An initiator port, and the target that it logs in to.
#[derive(Debug, Clone, Copy)]
pub struct Port {
    /// The last character of the initiator's name.
    pub initiator: u8,
    /// The qualifier of the ISID.
    pub isid: u16,
    /// The target's name.
    pub target: &'static str,
}

impl Port {
    /// A port of an initiator at the usual target.
    pub const A: Self = Self { initiator: b'a', isid: 1, target: TARGET };
    /// A port of another initiator.
    pub const B: Self = Self { initiator: b'b', isid: 1, target: TARGET };
}

impl ScriptedInitiator {
    /// Logs in, with the keys given beside the names.
    pub fn log_in(portal: impl Into<SocketAddr>, port: Port, keys: &[(&str, &str)]) -> Self {
        let mut initiator = Self::connect(portal);
        initiator.send_login(port, keys);
        initiator.finish_login();
        initiator
    }

    /// Logs in, and takes the unit attention of a new nexus on LUN 0.
    pub fn attach(portal: impl Into<SocketAddr>, port: Port) -> Self {
        Self::attach_after(portal, port, Outcome::POWER_ON)
    }

    /// A session for a nexus that comes back.
    pub fn attach_again(portal: impl Into<SocketAddr>, port: Port) -> Self {
        Self::attach_after(portal, port, Outcome::NEXUS_LOSS)
    }

    fn attach_after(portal: impl Into<SocketAddr>, port: Port, attention: Sense) -> Self {
        let mut initiator = Self::log_in(portal, port, &[]);
        assert_eq!(initiator.test_unit_ready(0).sense(), attention);
        initiator
    }

    /// Begins the login of one more connection of the session.
    #[must_use]
    pub fn send_join(&self, portal: impl Into<SocketAddr>, port: Port, cid: u16, keys: &[(&str, &str)]) -> Self {
        let mut joining = Self::connect(portal);
        (joining.tsih, joining.cid, joining.cmd_sn) = (self.tsih, Cid(cid), self.cmd_sn);
        if joining.cid == self.cid {
            joining.exp_stat_sn = self.exp_stat_sn;
        }
        joining.next_itt = u32::from(cid) << 16;
        joining.send_login(port, keys);
        joining
    }

    /// One more connection of the session.
    #[must_use]
    pub fn join(&self, portal: impl Into<SocketAddr>, port: Port, cid: u16) -> Self {
        let mut joining = self.send_join(portal, port, cid, &[]);
        joining.finish_login();
        joining
    }

    /// Sends the only request of a login.
    pub fn send_login(&mut self, port: Port, keys: &[(&str, &str)]) {
        self.send_login_step(Stage::LoginOperationalNegotiation, Stage::FullFeaturePhase, port, keys);
    }

    /// Sends one request of a login, from a stage to another one.
    pub fn send_login_step(&mut self, csg: Stage, nsg: Stage, port: Port, keys: &[(&str, &str)]) {
        self.isid = Isid::random(1, port.isid);
        let name = format!("iqn.2026-11.org.example:{}", char::from(port.initiator));
        let names = [("InitiatorName", name.as_str()), ("SessionType", "Normal"), ("TargetName", port.target)];
        self.send_login_request(csg, Some(nsg), &[&names[..], keys].concat()).expect("the target takes it");
    }

    /// Sends one request of a login with these keys alone. Without a next stage the T bit is zero.
    fn send_login_request(&mut self, csg: Stage, nsg: Option<Stage>, pairs: &[(&str, &str)]) -> io::Result<()> {
        let text = keys(pairs);
        let request = LoginRequest {
            transit: nsg.is_some(),
            csg,
            nsg: nsg.unwrap_or(csg),
            isid: self.isid,
            tsih: self.tsih,
            cid: self.cid,
            cmd_sn: self.cmd_sn,
            exp_stat_sn: self.exp_stat_sn,
            data_segment_len: text.len(),
            ..requests::login()
        };
        self.try_send(request.emit(), text.as_bytes())
    }

    /// Sends one request of a login with these keys alone, and receives the response with its keys.
    pub fn login_step(
        &mut self,
        csg: Stage,
        nsg: Option<Stage>,
        pairs: &[(&str, &str)],
    ) -> io::Result<(LoginResponse, String)> {
        self.send_login_request(csg, nsg, pairs)?;
        self.login_response()
    }

    /// Receives the response to a login request. The digests that it names are in use once the login has ended.
    fn login_response(&mut self) -> io::Result<(LoginResponse, String)> {
        let (pdu, text) = self.receive()?;
        let TargetPdu::LoginResponse(response) = pdu else { panic!("{pdu:?} answers a login") };
        let text = String::from_utf8_lossy(&text).into_owned();
        if response.tsih != Tsih::NEW {
            self.tsih = response.tsih;
        }
        if response.transit && response.nsg == Stage::FullFeaturePhase {
            self.format = Format::agreed(&text);
        }
        Ok((response, text))
    }

    /// How a login, or a step of it, ended.
    pub fn login_status(&mut self) -> LoginStatus {
        self.login_response().expect("a login response").0.status
    }

    /// The login has succeeded.
    pub fn finish_login(&mut self) {
        let status = self.login_status();
        assert!(status.is_success(), "{status}");
    }
}
