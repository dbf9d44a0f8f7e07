//! The initiator's session with a peer made of the input at the other end, for the fuzz targets of its login and of its
//! full feature phase.

use std::time::Duration;

use lunette_pdu::text::pairs;
use lunette_pdu::{BHS_LEN, Cid, InitiatorPdu, Isid, LoginRequest, LoginResponse, SerialNumber, Tsih};
use lunette_session::iscsi_initiator::{ChapIdentity, Event, Session, SessionConfig};
use lunette_session::keys::{Choices, Digest, Offer};
use lunette_session::{ChapAlgorithms, Credentials, Entropy, Secret, Time, Timers};
use lunette_testkit::{Format, Numbers};

use crate::input::ENTROPY;
use crate::marked::{self, Stream};

/// How the session may prove itself.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Chap {
    None,
    OneWay,
    Mutual,
}

/// The offer without digests, for a fuzzer without coverage does not guess them either.
pub(crate) fn offer() -> Offer {
    Offer { header_digest: Choices(1), data_digest: Choices(1), ..Offer::default() }
}

/// A session and what has been seen of it.
pub(crate) struct Host {
    pub(crate) session: Session,
    pub(crate) cid: Cid,
    pub(crate) now: Time,
    /// Bytes at a time.
    pub(crate) chunk_len: usize,
    /// Whether what the session sends is read.
    pub(crate) reading: bool,
    pub(crate) events: Vec<Event>,
    pub(crate) sent: Vec<(InitiatorPdu, Vec<u8>)>,
    pub(crate) logged_in: bool,
    pub(crate) closed: bool,
    header_digest: bool,
    /// Bytes of the login, in each direction.
    login_len: (usize, usize),
    /// Markers in what the target sends.
    pub(crate) markers: Option<Stream>,
    markers_of_session: Option<Stream>,
    /// The bytes that the session has sent after the login, without markers.
    pub(crate) transcript: Vec<u8>,
}

impl Host {
    pub(crate) fn new(chap: Chap, discovery: bool, offer: Offer) -> Self {
        let credentials = |user: &str| Credentials { user: user.into(), secret: Secret::new(b"a secret".to_vec()) };
        let identity = ChapIdentity {
            initiator: credentials("user"),
            target: (chap == Chap::Mutual).then(|| credentials("target")),
            algorithms: ChapAlgorithms::ALL,
        };
        let config = SessionConfig {
            initiator_name: "iqn.2026-11.example:i".into(),
            initiator_alias: None,
            target_name: (!discovery).then(|| "iqn.2026-11.lunette:disk".into()),
            isid: Isid([0x80, 0, 1, 2, 0, 3]),
            chap: (chap != Chap::None).then_some(identity),
            offer,
            timers: Timers::default(),
        };
        let now = Time::new(Duration::from_secs(1));
        let mut session = Session::new(config);
        let cid = session.connect(Entropy([ENTROPY; Entropy::BYTES]), now);
        let mut host = Self {
            session,
            cid,
            now,
            chunk_len: usize::MAX,
            reading: true,
            events: Vec::new(),
            sent: Vec::new(),
            logged_in: false,
            closed: false,
            header_digest: false,
            login_len: (0, 0),
            markers: None,
            markers_of_session: None,
            transcript: Vec::new(),
        };
        host.feed(&[]);
        host
    }

    /// Bytes from the target, in chunks.
    pub(crate) fn feed(&mut self, bytes: &[u8]) {
        self.drain(&[]);
        let wire = self.markers.as_mut().map_or_else(|| bytes.to_vec(), |markers| markers.weave(bytes));
        self.login_len.0 += wire.len();
        for chunk in wire.chunks(self.chunk_len) {
            match self.session.direct(self.cid) {
                Some(place) => {
                    let len = chunk.len().min(place.len());
                    place[..len].copy_from_slice(&chunk[..len]);
                    self.session.direct_received(self.cid, len, self.now);
                    self.drain(&chunk[len..]);
                }
                None => self.drain(chunk),
            }
        }
        self.listen();
    }

    fn drain(&mut self, mut input: &[u8]) {
        while let Some(event) = self.session.next_event(self.cid, &mut input, self.now) {
            assert!(!self.closed, "{event:?} after the end");
            match event {
                Event::LoggedIn(_) => self.login_has_ended(),
                Event::Closed { .. } | Event::Redirected { .. } => self.closed = true,
                _ => {}
            }
            self.events.push(event);
        }
        assert!(input.is_empty(), "everything is consumed");
    }

    fn login_has_ended(&mut self) {
        self.logged_in = true;
        let parameters = self.session.parameters(self.cid).expect("it is logged in");
        self.header_digest = parameters.header_digest == Digest::Crc32c;
        let (fed, sent) = self.login_len;
        self.markers = parameters.if_marker.then(|| Stream::new(fed, parameters.if_mark_int));
        self.markers_of_session = parameters.of_marker.then(|| Stream::new(sent, parameters.of_mark_int));
    }

    /// Reads what the session has to say.
    fn listen(&mut self) {
        let mut wire = Vec::new();
        while self.reading && self.session.has_output(self.cid) {
            let before = wire.len();
            self.session.slices(self.cid).for_each(|slice| wire.extend_from_slice(slice));
            self.session.sent(self.cid, wire.len() - before);
        }
        if self.logged_in {
            let (pdus, markers) = match &mut self.markers_of_session {
                Some(stream) => stream.strip(&wire),
                None => (wire, Vec::new()),
            };
            marked::check_markers(&markers, &self.take_pdus(&pdus));
            self.transcript.extend(pdus);
        } else {
            self.login_len.1 += wire.len();
            self.take_pdus(&wire);
        }
    }

    /// Takes all PDUs. Gives where they begin, and where the last one ends.
    fn take_pdus(&mut self, wire: &[u8]) -> Vec<usize> {
        let format = Format { header_digest: self.header_digest, data_digest: false };
        let (mut starts, mut start) = (vec![0], 0);
        while let Some((frame, len)) = format.first(&wire[start..]) {
            let frame = frame.verified();
            self.sent.push((frame.initiator_pdu(), frame.data));
            start += len;
            starts.push(start);
        }
        assert_eq!(start, wire.len(), "half a PDU");
        starts
    }

    /// Lets time pass, doing what is due on the way.
    pub(crate) fn wait(&mut self, span: Duration) {
        let end = self.now + span;
        while let Some(at) = self.session.next_timeout().filter(|at| *at <= end) {
            self.now = self.now.max(at);
            self.session.time_has_come(self.now);
            self.feed(&[]);
        }
        self.now = end;
    }

    /// The last login request, with its keys.
    pub(crate) fn login_request(&mut self) -> Option<(LoginRequest, Vec<(String, String)>)> {
        let (pdu, data) = self.sent.pop()?;
        let InitiatorPdu::LoginRequest(request) = pdu else { return None };
        let keys = pairs(&data).flatten().map(|(key, value)| (key.to_owned(), value.to_owned()));
        Some((request, keys.collect()))
    }
}

/// A response that follows the request.
pub(crate) fn login_response(request: &LoginRequest, stat_sn: u32) -> LoginResponse {
    let numbers = Numbers::new(SerialNumber(stat_sn), request.cmd_sn);
    LoginResponse { tsih: Tsih(1), ..numbers.login_response(request) }
}

/// A PDU on the wire, without digests.
pub(crate) fn wire(mut header: [u8; BHS_LEN], data: &[u8]) -> Vec<u8> {
    let [_, high, middle, low] = (data.len() as u32).to_be_bytes();
    header[5..8].copy_from_slice(&[high, middle, low]);
    Format::PLAIN.encode(&header, &[], data)
}
