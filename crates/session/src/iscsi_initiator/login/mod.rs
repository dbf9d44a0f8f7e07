//! The login phase, initiator side (RFC 7143 chapter 6).
//!
//! It begins in the security stage, as every target takes that, and goes through the operational stage to the full
//! feature phase. The target decides on each step whether it follows.

mod security;

use std::collections::{HashSet, VecDeque};

use lunette_pdu::text::{self, TextAssembler, TextWriter};
use lunette_pdu::{Cid, InitiatorTaskTag, LoginRequest, LoginResponse, LoginStatus, SerialNumber, Stage, Tsih};

use self::security::{Keys, Security, Trusted};
use super::config::{ChapIdentity, SessionConfig};
use super::error::{LoginError, SessionError, broken};
use crate::keys::{OfferError, Originator, Parameters, row};
use crate::limits::{LOGIN_DATA_SEGMENT_BYTES, MAX_KEYS, MAX_LOGIN_RESPONSES, MAX_TEXT_BYTES};
use crate::{Entropy, ProvenSecrets};

/// The tag of all requests of a login. Nothing else is under way yet.
const LOGIN_TAG: InitiatorTaskTag = InitiatorTaskTag(0);

/// The step after a login response.
#[derive(Debug)]
pub(crate) enum Step {
    /// Send this. ExpStatSN is the connection's to fill in.
    Send(LoginRequest, Vec<u8>),
    /// The target is elsewhere.
    Redirected { addresses: Vec<String>, permanent: bool },
    /// The full feature phase has begun.
    Done(Box<Outcome>),
}

/// The result of a login.
#[derive(Debug)]
pub(crate) struct Outcome {
    pub(crate) tsih: Tsih,
    pub(crate) parameters: Parameters,
    pub(crate) alias: Option<String>,
    pub(crate) portal_group: Option<u16>,
    pub(crate) secrets: ProvenSecrets,
}

/// Where the login is.
enum Phase {
    Security(Box<Security>),
    Operational { trusted: Trusted, originator: Box<Originator> },
    Over,
}

/// One login in progress.
pub(crate) struct Login {
    config: SessionConfig,
    cid: Cid,
    cmd_sn: SerialNumber,
    phase: Phase,
    /// The last request, against which the response is checked.
    request: LoginRequest,
    /// Parts of a long list that the target has yet to take, and what goes with the last one.
    outgoing: VecDeque<Vec<u8>>,
    assembler: TextAssembler,
    responses: u32,
    keys: usize,
    alias: Option<String>,
    portal_group: Option<u16>,
}

impl Login {
    /// The login, and its first request. `tsih` names the session that the connection joins.
    pub(crate) fn start(
        config: &SessionConfig,
        cid: Cid,
        tsih: Tsih,
        cmd_sn: SerialNumber,
        entropy: Entropy,
    ) -> Result<(Self, Step), SessionError> {
        if config.chap.as_ref().is_some_and(ChapIdentity::has_one_secret) {
            return Err(LoginError::SameSecret.into());
        }
        let security = Security::new(config.chap.clone(), entropy);
        let mut list = names(config, tsih == Tsih::NEW)?;
        put(&mut list, "AuthMethod", security.methods())?;
        let mut login = Self {
            request: LoginRequest {
                transit: false,
                continue_: false,
                csg: Stage::SecurityNegotiation,
                nsg: Stage::SecurityNegotiation,
                version_max: 0,
                version_min: 0,
                isid: config.isid,
                tsih,
                itt: LOGIN_TAG,
                cid,
                cmd_sn,
                exp_stat_sn: SerialNumber(0),
                data_segment_len: 0,
            },
            config: config.clone(),
            cid,
            cmd_sn,
            phase: Phase::Security(Box::new(security)),
            outgoing: VecDeque::new(),
            assembler: TextAssembler::new(MAX_TEXT_BYTES),
            responses: 0,
            keys: 0,
            alias: None,
            portal_group: None,
        };
        let first = login.send(&list);
        Ok((login, first))
    }

    /// Whether the target's numbers begin with the next response.
    pub(crate) fn is_first_response(&self) -> bool {
        self.responses == 0
    }

    /// Takes a response with its data segment.
    pub(crate) fn response(&mut self, response: &LoginResponse, data: &[u8]) -> Result<Step, SessionError> {
        self.check_header(response)?;
        if !response.status.is_success() {
            return refused(response.status, data);
        }
        self.check_flags(response)?;
        if !self.outgoing.is_empty() {
            if !data.is_empty() {
                return Err(broken("6.2", "keys came while our own list was being continued"));
            }
            return Ok(self.send_part());
        }
        let complete = self.assembler.push(data, response.continue_);
        let Some(list) = complete.map_err(|error| broken("6.2", error.to_string()))? else {
            return Ok(self.send_request(false, Vec::new()));
        };
        let pairs = self.read(&list)?;
        self.step(response, &pairs)
    }

    fn check_header(&mut self, response: &LoginResponse) -> Result<(), SessionError> {
        self.responses += 1;
        if self.responses > MAX_LOGIN_RESPONSES {
            return Err(broken("6.3", format!("no end of the login after {MAX_LOGIN_RESPONSES} responses")));
        }
        if response.itt != LOGIN_TAG {
            return Err(broken("11.13", format!("tag {} in answer to a login request with {LOGIN_TAG}", response.itt)));
        }
        if response.status.is_success() && response.isid != self.request.isid {
            return Err(broken("11.13", format!("ISID {} is not ours", response.isid)));
        }
        if response.status.is_success() && response.version_active != 0 {
            return Err(broken("11.13.2", format!("version {} was not offered", response.version_active)));
        }
        Ok(())
    }

    /// T, C, CSG and NSG (RFC 7143 sections 11.13.1 and 6.3): the target follows, or does not; it does not lead.
    fn check_flags(&self, response: &LoginResponse) -> Result<(), SessionError> {
        let request = &self.request;
        if response.csg != request.csg {
            let (got, sent) = (response.csg, request.csg);
            return Err(broken("11.13", format!("CSG {got:?} in answer to {sent:?}")));
        }
        if response.continue_ && !self.outgoing.is_empty() {
            return Err(broken("6.2", "C while our own list was being continued"));
        }
        if !response.transit {
            return Ok(());
        }
        if !request.transit {
            return Err(broken("11.13", "T in answer to a request without T"));
        }
        if response.nsg <= request.csg || response.nsg > request.nsg {
            let (got, sent) = (response.nsg, request.nsg);
            return Err(broken("11.13", format!("NSG {got:?} in answer to {sent:?}")));
        }
        Ok(())
    }

    fn read<'a>(&mut self, list: &'a [u8]) -> Result<Keys<'a>, SessionError> {
        let pairs: Result<Vec<_>, _> = text::pairs(list).take(MAX_KEYS + 1).collect();
        let pairs = pairs.map_err(|error| broken("6.1", error.to_string()))?;
        self.keys += pairs.len();
        if self.keys > MAX_KEYS {
            return Err(broken("6.2", format!("more than {MAX_KEYS} keys")));
        }
        let mut seen = HashSet::with_capacity(pairs.len());
        if let Some((key, _)) = pairs.iter().find(|(key, _)| !seen.insert(*key)) {
            return Err(broken("6.2", format!("key {key} stands twice in one list")));
        }
        Ok(Keys(pairs))
    }

    /// A complete list has come: answers it, and moves on when the target does.
    fn step(&mut self, response: &LoginResponse, pairs: &Keys<'_>) -> Result<Step, SessionError> {
        self.describe(pairs)?;
        match std::mem::replace(&mut self.phase, Phase::Over) {
            Phase::Security(security) => self.security_step(security, response, pairs),
            Phase::Operational { trusted, originator } => self.operational_step(trusted, originator, response, pairs),
            Phase::Over => Err(broken("6.3", "a login response after the login")),
        }
    }

    fn security_step(
        &mut self,
        mut security: Box<Security>,
        response: &LoginResponse,
        pairs: &Keys<'_>,
    ) -> Result<Step, SessionError> {
        if let Some((key, _)) = pairs.0.iter().find(|(key, _)| row(key).is_some()) {
            return Err(broken("6.3", format!("{key} does not belong to the security stage")));
        }
        let mut reply = TextWriter::new();
        security.take(pairs, response.transit, &mut reply)?;
        if !response.transit {
            self.phase = Phase::Security(security);
            return Ok(self.send(&reply));
        }
        let trusted = security.trusted().ok_or(LoginError::TargetAuthentication)?;
        self.begin_operational(trusted)
    }

    fn operational_step(
        &mut self,
        trusted: Trusted,
        mut originator: Box<Originator>,
        response: &LoginResponse,
        pairs: &Keys<'_>,
    ) -> Result<Step, SessionError> {
        let mut reply = TextWriter::new();
        for (key, value) in pairs.0.iter().filter(|(key, _)| !is_name_key(key)) {
            let Some(answer) = originator.take(key, value)? else { continue };
            if response.transit && row(key).is_some() {
                return Err(broken("6.2", format!("{key} was offered where no answer can follow")));
            }
            put(&mut reply, key, &answer)?;
        }
        if response.transit {
            return self.finish(response.tsih, &originator, trusted);
        }
        self.phase = Phase::Operational { trusted, originator };
        Ok(self.send(&reply))
    }

    /// Takes the target's description of itself.
    fn describe(&mut self, pairs: &Keys<'_>) -> Result<(), SessionError> {
        if let Some(alias) = pairs.value("TargetAlias") {
            self.alias = Some(text::printable(alias).into_owned());
        }
        if let Some(group) = pairs.value("TargetPortalGroupTag") {
            let number = text::parse_number(group).ok().and_then(|n| u16::try_from(n).ok());
            self.portal_group = Some(number.ok_or_else(|| broken("13.9", format!("TargetPortalGroupTag={group}")))?);
        }
        Ok(())
    }

    fn begin_operational(&mut self, trusted: Trusted) -> Result<Step, SessionError> {
        let leads = self.request.tsih == Tsih::NEW && self.config.target_name.is_some();
        let originator =
            if leads { Originator::leading(&self.config.offer) } else { Originator::joining(&self.config.offer) };
        let mut list = TextWriter::new();
        originator.write(&mut list).map_err(|error| broken("6.1", error.to_string()))?;
        self.phase = Phase::Operational { trusted, originator: Box::new(originator) };
        Ok(self.send(&list))
    }

    fn finish(&mut self, tsih: Tsih, originator: &Originator, trusted: Trusted) -> Result<Step, SessionError> {
        if tsih == Tsih::NEW {
            return Err(broken("11.13.3", "the login ends with TSIH 0"));
        }
        let asked = self.request.tsih;
        if asked != Tsih::NEW && tsih != asked {
            return Err(broken("11.13.3", format!("TSIH {tsih} in answer to a login to session {asked}")));
        }
        let parameters = originator.finish()?;
        let (alias, portal_group) = (self.alias.take(), self.portal_group);
        Ok(Step::Done(Box::new(Outcome { tsih, parameters, alias, portal_group, secrets: trusted.into_secrets() })))
    }

    /// Cuts a list to what a target must take during login (RFC 7143 section 13.12), and sends its first part.
    fn send(&mut self, list: &TextWriter) -> Step {
        self.outgoing =
            text::split_text(list.as_bytes(), LOGIN_DATA_SEGMENT_BYTES as usize).map(<[u8]>::to_vec).collect();
        self.send_part()
    }

    fn send_part(&mut self) -> Step {
        let part = self.outgoing.pop_front().unwrap_or_default();
        let last = self.outgoing.is_empty();
        let transit = last
            && match &self.phase {
                Phase::Security(security) => security.may_end(),
                Phase::Operational { .. } => true,
                Phase::Over => false,
            };
        self.send_request(transit, part)
    }

    fn send_request(&mut self, transit: bool, text: Vec<u8>) -> Step {
        let (csg, next) = match self.phase {
            Phase::Security(_) => (Stage::SecurityNegotiation, Stage::LoginOperationalNegotiation),
            _ => (Stage::LoginOperationalNegotiation, Stage::FullFeaturePhase),
        };
        self.request = LoginRequest {
            transit,
            continue_: !self.outgoing.is_empty(),
            csg,
            nsg: if transit { next } else { Stage::SecurityNegotiation },
            cid: self.cid,
            cmd_sn: self.cmd_sn,
            data_segment_len: text.len(),
            ..self.request
        };
        Step::Send(self.request, text)
    }
}

impl From<OfferError> for SessionError {
    fn from(error: OfferError) -> Self {
        match error {
            OfferError::Incompatible(key) => LoginError::Incompatible(key.into()).into(),
            other => broken("6.2", other.to_string()),
        }
    }
}

/// The names of both ends. They stand in the first request of every connection (RFC 7143 sections 13.4 and 13.5),
/// SessionType in that of the leading one alone: it is a key of the leading login (section 13.21).
fn names(config: &SessionConfig, leads: bool) -> Result<TextWriter, SessionError> {
    let mut list = TextWriter::new();
    put(&mut list, "InitiatorName", &config.initiator_name)?;
    if let Some(alias) = &config.initiator_alias {
        put(&mut list, "InitiatorAlias", alias)?;
    }
    if leads {
        put(&mut list, "SessionType", if config.target_name.is_some() { "Normal" } else { "Discovery" })?;
    }
    if let Some(name) = &config.target_name {
        put(&mut list, "TargetName", name)?;
    }
    Ok(list)
}

/// Appends a key of ours. One that cannot stand on the wire comes from the configuration.
fn put(list: &mut TextWriter, key: &str, value: &str) -> Result<(), SessionError> {
    list.push(key, value).map_err(|error| LoginError::Incompatible(format!("{key}: {error}")).into())
}

/// RFC 7143 section 11.13.5.
fn refused(status: LoginStatus, data: &[u8]) -> Result<Step, SessionError> {
    if status.class != LoginStatus::CLASS_REDIRECTION {
        return Err(LoginError::Refused(status).into());
    }
    let pairs: Result<Vec<_>, _> = text::pairs(data).take(MAX_KEYS).collect();
    let pairs = pairs.map_err(|error| broken("6.1", error.to_string()))?;
    let addresses: Vec<String> =
        pairs.iter().filter(|(key, _)| *key == "TargetAddress").map(|(_, value)| (*value).into()).collect();
    if addresses.is_empty() {
        return Err(broken("11.13.5", "a redirection without TargetAddress"));
    }
    Ok(Step::Redirected { addresses, permanent: status == LoginStatus::TARGET_MOVED_PERMANENTLY })
}

/// Keys by which the target describes itself; they are not negotiated.
fn is_name_key(key: &str) -> bool {
    matches!(key, "TargetName" | "TargetAlias" | "TargetAddress" | "TargetPortalGroupTag")
}
