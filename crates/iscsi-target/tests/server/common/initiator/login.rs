//! Logins, and further connections of a session.

use lunette_pdu::{Cid, InitiatorTaskTag, Isid, LoginRequest, LoginStatus, Stage, TargetPdu, Tsih};

use super::{Initiator, NEXUS_LOSS, POWER_ON};
use crate::common::{TARGET, Target};

/// Who logs in.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Port {
    pub(crate) initiator: u8,
    pub(crate) isid: u16,
    pub(crate) target: &'static str,
}

impl Port {
    pub(crate) const A: Self = Self { initiator: b'a', isid: 1, target: TARGET };
    pub(crate) const B: Self = Self { initiator: b'b', isid: 1, target: TARGET };
}

fn initiator_name(initiator: u8) -> String {
    format!("iqn.2026-11.org.example:{}", char::from(initiator))
}

impl Initiator {
    /// Logs in, with the keys given beside the names.
    pub(crate) fn log_in(target: &Target, port: Port, keys: &[(&str, &str)]) -> Self {
        let mut initiator = Self::connect(target.address);
        initiator.send_login(port, keys);
        initiator.finish_login();
        initiator
    }

    /// Begins the login of one more connection of the session.
    pub(crate) fn send_join(&self, target: &Target, port: Port, cid: u16, keys: &[(&str, &str)]) -> Self {
        let mut joining = Self::connect(target.address);
        (joining.tsih, joining.cid, joining.cmd_sn) = (self.tsih, Cid(cid), self.cmd_sn);
        if joining.cid == self.cid {
            joining.exp_stat_sn = self.exp_stat_sn;
        }
        joining.next_itt = u32::from(cid) << 16;
        joining.send_login(port, keys);
        joining
    }

    /// One more connection of the session.
    pub(crate) fn join(&self, target: &Target, port: Port, cid: u16) -> Self {
        let mut joining = self.send_join(target, port, cid, &[]);
        joining.finish_login();
        joining
    }

    /// Logs in, and takes the unit attention of a new nexus on LUN 0.
    pub(crate) fn attach(target: &Target, port: Port) -> Self {
        Self::attach_to(target, port, POWER_ON)
    }

    /// The same for a nexus that comes back.
    pub(crate) fn attach_again(target: &Target, port: Port) -> Self {
        Self::attach_to(target, port, NEXUS_LOSS)
    }

    fn attach_to(target: &Target, port: Port, attention: (u8, u8, u8)) -> Self {
        let mut initiator = Self::log_in(target, port, &[]);
        assert_eq!(initiator.test_unit_ready(0).sense(), attention);
        initiator
    }

    pub(crate) fn send_login(&mut self, port: Port, keys: &[(&str, &str)]) {
        self.send_login_step(Stage::LoginOperationalNegotiation, Stage::FullFeaturePhase, port, keys);
    }

    /// One request of a login, from a stage to another one.
    pub(crate) fn send_login_step(&mut self, csg: Stage, nsg: Stage, port: Port, keys: &[(&str, &str)]) {
        let name = initiator_name(port.initiator);
        let names = [("InitiatorName", name.as_str()), ("SessionType", "Normal"), ("TargetName", port.target)];
        let text: String = names.iter().chain(keys).flat_map(|(key, value)| [key, "=", value, "\0"]).collect();
        let request = LoginRequest {
            transit: true,
            continue_: false,
            csg,
            nsg,
            version_max: 0,
            version_min: 0,
            isid: Isid::random(1, port.isid),
            tsih: self.tsih,
            itt: InitiatorTaskTag(0),
            cid: self.cid,
            cmd_sn: self.cmd_sn,
            exp_stat_sn: self.exp_stat_sn,
            data_segment_len: text.len(),
        };
        self.send(request.emit(), text.as_bytes());
    }

    pub(crate) fn finish_login(&mut self) {
        assert!(self.login_status().is_success());
    }

    /// How a login, or a step of it, ended.
    pub(crate) fn login_status(&mut self) -> LoginStatus {
        let (pdu, _) = self.receive().unwrap();
        let TargetPdu::LoginResponse(response) = pdu else { panic!("{pdu:?} answers a login") };
        if response.tsih != Tsih::NEW {
            self.tsih = response.tsih;
        }
        response.status
    }
}
