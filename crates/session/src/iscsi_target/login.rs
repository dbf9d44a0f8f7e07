//! The login phase, target side (RFC 7143 chapter 6).
//!
//! Stages: security, operational, full feature. A login may start in either of the first two and may skip the second.
//! The way out of the security stage needs an [`Authenticated`](crate::chap::Authenticated).

mod identity;
mod security;

use std::collections::VecDeque;
use std::net::SocketAddr;
use std::sync::Arc;

use lunette_pdu::text::{self, TextAssembler, TextWriter};
use lunette_pdu::{Cid, Isid, LoginRequest, LoginResponse, LoginStatus, SerialNumber, Stage, Tsih};

use self::identity::Identity;
use self::security::Security;
use super::admit_request::AdmitRequest;
use super::connection_config::ConnectionConfig;
use super::directory::Directory;
use super::origin::Origin;
use crate::Entropy;
use crate::keys::{Answer, Negotiation, Parameters, first_duplicate};
use crate::limits::{
    LOGIN_DATA_SEGMENT_BYTES, MAX_COMMAND_WINDOW, MAX_KEYS, MAX_LOGIN_REQUESTS, MAX_LOGIN_TEXT_BYTES, MAX_REASON_BYTES,
};

/// A refusal: the status for the peer, the reason for the log.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Refusal {
    pub(crate) status: LoginStatus,
    pub(crate) why: String,
    /// Keys for the peer: where to go instead.
    pub(crate) keys: Vec<u8>,
}

impl Refusal {
    pub(crate) fn new(status: LoginStatus, why: impl Into<String>) -> Self {
        let mut why = why.into();
        // It may quote the initiator, and goes to the log.
        why.truncate(why.floor_char_boundary(MAX_REASON_BYTES));
        Self { status, why, keys: Vec::new() }
    }
}

fn refuse<T>(status: LoginStatus, why: impl Into<String>) -> Result<T, Refusal> {
    Err(Refusal::new(status, why))
}

/// The step after a login request.
#[derive(Debug)]
pub(crate) enum Step {
    /// Send this; the login goes on.
    Reply(LoginResponse, Vec<u8>),
    /// All stages are passed; [`Login::admitted`] makes the last response.
    Admit(Box<AdmitRequest>),
}

/// The parts of the first request that all others must repeat.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Thread {
    isid: Isid,
    tsih: Tsih,
    cid: Cid,
}

/// The names that an initiator gives in its login. Before the login has succeeded, they are no more than its word.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct LoginClaims {
    /// The initiator's iSCSI name, as it was sent.
    pub initiator: Option<String>,
    /// The target that it asks for.
    pub target: Option<String>,
}

/// One login in progress.
pub(crate) struct Login {
    directory: Arc<Directory>,
    local: SocketAddr,
    origin: Origin,
    portal_group: u16,
    entropy: Entropy,
    requests: u32,
    keys: usize,
    thread: Option<Thread>,
    /// The number up to which the initiator has received on the connection that this one replaces: the first request
    /// says so (RFC 7143 section 11.12.9).
    exp_stat_sn: SerialNumber,
    stage: Option<Stage>,
    assembler: TextAssembler,
    /// Parts of a long answer that the initiator has yet to ask for.
    outgoing: VecDeque<Vec<u8>>,
    claims: LoginClaims,
    identity: Option<Identity>,
    security: Security,
    negotiation: Option<Negotiation>,
    declared: bool,
    last: Option<(LoginRequest, Vec<u8>)>,
}

impl Login {
    pub(crate) fn new(config: ConnectionConfig) -> Self {
        Self {
            directory: config.directory,
            local: config.local,
            origin: config.peer.into(),
            portal_group: config.portal_group,
            entropy: config.entropy,
            requests: 0,
            keys: 0,
            thread: None,
            exp_stat_sn: SerialNumber(0),
            stage: None,
            assembler: TextAssembler::new(MAX_LOGIN_TEXT_BYTES),
            outgoing: VecDeque::new(),
            claims: LoginClaims::default(),
            identity: None,
            security: Security::Open,
            negotiation: None,
            declared: false,
            last: None,
        }
    }

    /// The names that have come so far.
    pub(crate) fn claims(&self) -> &LoginClaims {
        &self.claims
    }

    pub(crate) fn directory(&self) -> &Arc<Directory> {
        &self.directory
    }

    pub(crate) fn local(&self) -> SocketAddr {
        self.local
    }

    pub(crate) fn origin(&self) -> &Origin {
        &self.origin
    }

    /// The transport has proven that the peer has these identities.
    pub(crate) fn set_identities(&mut self, identities: Arc<[String]>) {
        self.origin.identities = identities;
    }

    /// Takes a request with its data segment.
    pub(crate) fn request(&mut self, request: &LoginRequest, data: &[u8]) -> Result<Step, Refusal> {
        self.check_header(request)?;
        if !self.outgoing.is_empty() {
            return self.next_part(request, data);
        }
        let complete = match self.assembler.push(data, request.continue_) {
            Ok(complete) => complete,
            Err(error) => return refuse(LoginStatus::INITIATOR_ERROR, error.to_string()),
        };
        let Some(list) = complete else {
            return Ok(Step::Reply(response(request, false), Vec::new()));
        };
        let answer = self.key_list(request, &list)?;
        self.finish(request, &answer)
    }

    fn check_header(&mut self, request: &LoginRequest) -> Result<(), Refusal> {
        self.requests += 1;
        if self.requests > MAX_LOGIN_REQUESTS {
            return refuse(LoginStatus::INITIATOR_ERROR, "too many login requests");
        }
        if request.version_min > 0 {
            return refuse(LoginStatus::UNSUPPORTED_VERSION, format!("version {} wanted", request.version_min));
        }
        let thread = Thread { isid: request.isid, tsih: request.tsih, cid: request.cid };
        if self.thread.is_none() {
            self.exp_stat_sn = request.exp_stat_sn;
        }
        if *self.thread.get_or_insert(thread) != thread {
            return refuse(LoginStatus::INVALID_REQUEST_DURING_LOGIN, "ISID, TSIH or CID changed during the login");
        }
        if *self.stage.get_or_insert(request.csg) != request.csg || request.csg == Stage::FullFeaturePhase {
            return refuse(LoginStatus::INVALID_REQUEST_DURING_LOGIN, format!("stage {:?} out of turn", request.csg));
        }
        if request.transit && (request.continue_ || request.nsg as u8 <= request.csg as u8) {
            return refuse(LoginStatus::INVALID_REQUEST_DURING_LOGIN, "a transit that leads nowhere");
        }
        Ok(())
    }

    fn next_part(&mut self, request: &LoginRequest, data: &[u8]) -> Result<Step, Refusal> {
        if !data.is_empty() {
            return refuse(LoginStatus::INITIATOR_ERROR, "keys were sent while an answer was being continued");
        }
        let part = self.outgoing.pop_front().unwrap_or_default();
        self.finish_part(request, part)
    }

    /// Answers a complete key list.
    fn key_list(&mut self, request: &LoginRequest, list: &[u8]) -> Result<TextWriter, Refusal> {
        let pairs: Vec<(&str, &str)> = match text::pairs(list).take(MAX_KEYS + 1).collect::<Result<_, _>>() {
            Ok(pairs) => pairs,
            Err(error) => return refuse(LoginStatus::INITIATOR_ERROR, error.to_string()),
        };
        self.keys += pairs.len();
        if self.keys > MAX_KEYS {
            return refuse(LoginStatus::INITIATOR_ERROR, "too many keys");
        }
        if let Some(key) = first_duplicate(&pairs) {
            return refuse(LoginStatus::INITIATOR_ERROR, format!("key {key} stands twice in one list"));
        }
        let mut answer = Answers(TextWriter::new());
        match &self.identity {
            None => self.identify(&pairs, &mut answer)?,
            Some(identity) => identity.check_repeated(&pairs)?,
        }
        match request.csg {
            Stage::SecurityNegotiation => self.security_keys(request, &pairs, &mut answer)?,
            _ => self.operational_keys(&pairs, &mut answer)?,
        }
        Ok(answer.0)
    }

    fn operational_keys(&mut self, pairs: &[(&str, &str)], answer: &mut Answers) -> Result<(), Refusal> {
        if !matches!(self.security, Security::Done(_)) {
            self.security = Security::Done(self.without_proof()?);
        }
        let discovery = self.identity.as_ref().is_some_and(|identity| identity.admission.is_none());
        let Some(negotiation) = &mut self.negotiation else {
            return refuse(LoginStatus::TARGET_ERROR, "the login has no identity");
        };
        for (key, value) in pairs.iter().filter(|(key, _)| !is_name_key(key)) {
            match negotiation.answer(key, value) {
                Ok(Answer::Value(text)) => answer.push(key, &text)?,
                Ok(Answer::None) => {}
                Err(error) => return refuse(LoginStatus::INITIATOR_ERROR, error.to_string()),
            }
        }
        if !self.declared {
            self.declared = true;
            let ours = negotiation.agreed().recv_data_segment_len;
            if ours != Parameters::default().recv_data_segment_len && !discovery {
                answer.push("MaxRecvDataSegmentLength", &ours.to_string())?;
            }
        }
        Ok(())
    }

    /// Cuts the answer to the initiator's limit and sends its first part.
    fn finish(&mut self, request: &LoginRequest, answer: &TextWriter) -> Result<Step, Refusal> {
        // RFC 7143 section 13.12: during login the default holds, whatever was declared.
        let mut parts: VecDeque<Vec<u8>> =
            text::split_text(answer.as_bytes(), LOGIN_DATA_SEGMENT_BYTES as usize).map(<[u8]>::to_vec).collect();
        let first = parts.pop_front().unwrap_or_default();
        self.outgoing = parts;
        self.finish_part(request, first)
    }

    fn finish_part(&mut self, request: &LoginRequest, part: Vec<u8>) -> Result<Step, Refusal> {
        if !self.outgoing.is_empty() {
            let response = LoginResponse { continue_: true, ..response(request, false) };
            return Ok(Step::Reply(response, part));
        }
        let proven = matches!(self.security, Security::Done(_));
        let transit = request.transit && (request.csg != Stage::SecurityNegotiation || proven);
        if transit && request.nsg == Stage::FullFeaturePhase {
            let admit = self.admit_request(request)?;
            self.last = Some((*request, part));
            return Ok(Step::Admit(Box::new(admit)));
        }
        if transit {
            self.stage = Some(request.nsg);
        }
        Ok(Step::Reply(response(request, transit), part))
    }

    fn admit_request(&self, request: &LoginRequest) -> Result<AdmitRequest, Refusal> {
        let (Some(identity), Some(negotiation)) = (&self.identity, &self.negotiation) else {
            return refuse(LoginStatus::MISSING_PARAMETER, "no InitiatorName has been sent");
        };
        let Security::Done(proof) = &self.security else {
            return refuse(LoginStatus::AUTHENTICATION_FAILURE, "the security stage has not ended");
        };
        Ok(AdmitRequest {
            initiator_name: identity.initiator_name.clone(),
            chap_user: proof.user().map(Into::into),
            secrets: proof.secrets().clone(),
            isid: request.isid,
            tsih: request.tsih,
            cid: request.cid,
            admission: identity.admission.clone(),
            origin: self.origin.clone(),
            portal_group: self.portal_group,
            cmd_sn: request.cmd_sn,
            exp_stat_sn: self.exp_stat_sn,
            parameters: self.parameters(negotiation),
        })
    }

    /// We declare our MaxRecvDataSegmentLength with the first operational answer. A login that never enters that stage
    /// leaves the default.
    fn parameters(&self, negotiation: &Negotiation) -> Parameters {
        let mut agreed = negotiation.agreed().clone();
        if !self.declared || self.identity.as_ref().is_none_or(|identity| identity.admission.is_none()) {
            agreed.recv_data_segment_len = Parameters::default().recv_data_segment_len;
        }
        agreed
    }

    /// The last response of a login that the driver has admitted.
    pub(crate) fn admitted(
        &mut self,
        tsih: Tsih,
        (exp_cmd_sn, max_cmd_sn): (SerialNumber, SerialNumber),
    ) -> Option<(LoginResponse, Vec<u8>)> {
        let (request, text) = self.last.take()?;
        let response = LoginResponse { tsih, exp_cmd_sn, max_cmd_sn, ..response(&request, true) };
        Some((response, text))
    }

    /// The result of the login, for the connection that goes on from here.
    pub(crate) fn take_result(&mut self) -> Option<(Cid, Parameters)> {
        let cid = self.thread?.cid;
        self.negotiation.take().map(|negotiation| (cid, self.parameters(&negotiation)))
    }

    /// Bytes of text that it keeps.
    pub(crate) fn text_bytes(&self) -> usize {
        let answer = self.outgoing.iter().map(Vec::len).sum::<usize>();
        let last = self.last.as_ref().map_or(0, |(_, text)| text.len());
        self.assembler.len() + answer + last
    }

    /// The request that waits for the driver's decision.
    pub(crate) fn waiting(&self) -> Option<LoginRequest> {
        self.last.as_ref().map(|(request, _)| *request)
    }
}

/// The response that ends a login. StatSN is the connection's to fill in.
pub(crate) fn refused(request: &LoginRequest, status: LoginStatus) -> LoginResponse {
    LoginResponse { status, tsih: Tsih(0), ..response(request, false) }
}

/// StatSN is the connection's to fill in.
fn response(request: &LoginRequest, transit: bool) -> LoginResponse {
    // A connection that asks to join a session hears its numbers when it has joined. Until then it hears old ones,
    // which change nothing.
    let (exp_cmd_sn, max_cmd_sn) = if request.tsih == Tsih::NEW {
        (request.cmd_sn, request.cmd_sn)
    } else {
        let old = request.cmd_sn.add(MAX_COMMAND_WINDOW.wrapping_neg());
        (old, old.add(u32::MAX))
    };
    LoginResponse {
        transit,
        continue_: false,
        csg: request.csg,
        nsg: if transit { request.nsg } else { Stage::SecurityNegotiation },
        version_max: 0,
        version_active: 0,
        isid: request.isid,
        tsih: request.tsih,
        itt: request.itt,
        stat_sn: SerialNumber(0),
        exp_cmd_sn,
        max_cmd_sn,
        status: LoginStatus::SUCCESS,
        data_segment_len: 0,
    }
}

/// The answer being written. A value that cannot stand on the wire is our mistake, not the initiator's.
struct Answers(TextWriter);

impl Answers {
    fn push(&mut self, key: &str, value: &str) -> Result<(), Refusal> {
        self.0.push(key, value).or_else(|error| refuse(LoginStatus::TARGET_ERROR, format!("{key}: {error}")))
    }
}

/// Keys that name both ends. They are read by name and not answered.
fn is_name_key(key: &str) -> bool {
    matches!(key, "InitiatorName" | "InitiatorAlias" | "TargetName" | "SessionType")
}
