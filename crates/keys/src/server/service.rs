//! From the bytes of a message to the bytes of its answer.

use std::net::SocketAddr;

use zeroize::Zeroizing;

use super::audit::{AuditEntry, AuditLog, quoted};
use super::engine::{Engine, Outcome};
use super::object::Object;
use crate::kmip::{
    Answer, BatchItem, Operation, Refusal, Request, RequestMessage, Response, ResponseMessage, ResultReason, Version,
};
use crate::ttlv::{self, Item};

/// Where changes are kept.
pub trait Keep {
    /// Replaces an object, and forgets another one. Returns when both are on stable storage, or neither.
    ///
    /// # Errors
    ///
    /// The words of the medium.
    fn keep(&mut self, changed: Option<&Object>, forgotten: Option<&str>) -> Result<(), String>;
}

/// The client that sends a request.
#[derive(Debug, Clone)]
pub struct Client {
    /// The name in the certificate.
    pub name: String,
    /// The address.
    pub peer: SocketAddr,
}

/// The engine with what keeps its objects and what records its deeds.
pub struct Service<K> {
    engine: Engine,
    keeper: K,
    audit: AuditLog,
}

impl<K: Keep> Service<K> {
    /// A service over objects that were kept.
    pub fn new(engine: Engine, keeper: K, audit: AuditLog) -> Self {
        Self { engine, keeper, audit }
    }

    /// Answers a message. `now` is in seconds since 1970. The answer may hold keys, and is overwritten when it is
    /// dropped.
    pub fn answer(&mut self, client: &Client, message: &[u8], now: i64) -> Zeroizing<Vec<u8>> {
        let read = ttlv::decode(message).map_err(|error| Refusal::new(ResultReason::InvalidMessage, error.to_string()));
        let answer = match read.and_then(RequestMessage::from_item) {
            Ok(request) if request.version.is_supported() => self.batch(client, request, now),
            Ok(request) => {
                let Version { major, minor } = request.version;
                let text = format!("KMIP {major}.{minor} is not supported; 1.0 to 1.4 are");
                self.refuse(client, now, Refusal::new(ResultReason::InvalidMessage, text))
            }
            Err(refusal) => self.refuse(client, now, refusal),
        };
        Zeroizing::new(ttlv::encode(&answer.to_item()))
    }

    /// Records that a connection was refused.
    pub(super) fn record(&mut self, entry: &AuditEntry) {
        if let Err(error) = self.audit.write(entry) {
            tracing::error!(%error, "the audit log cannot be written");
        }
    }

    fn refuse(&mut self, client: &Client, now: i64, refusal: Refusal) -> ResponseMessage {
        let Client { name, peer } = client;
        self.record(&AuditEntry::refused(now, *peer, Some(name), refusal.reason.name(), &refusal.message));
        ResponseMessage::refusal(Version::SUPPORTED[0], now, refusal)
    }

    fn batch(&mut self, client: &Client, request: RequestMessage, now: i64) -> ResponseMessage {
        let RequestMessage { version, maximum_response_bytes, goes_on, items } = request;
        let mut answers = Vec::new();
        let mut placeholder = None;
        for BatchItem { operation, batch_id, payload } in items {
            let outcome = self.one(client, version, operation, payload, &mut placeholder, now);
            let failed = outcome.is_err();
            answers.push(Answer { operation: Some(operation), batch_id, outcome });
            if failed && !goes_on {
                break;
            }
        }
        let message = ResponseMessage { version, time: now, answers };
        let limit = maximum_response_bytes.map_or(usize::MAX, |bytes| bytes as usize);
        if ttlv::encoded_len(&message.to_item()) > limit {
            let text = format!("the answer is longer than {limit} bytes");
            return ResponseMessage::refusal(version, now, Refusal::new(ResultReason::ResponseTooLarge, text));
        }
        message
    }

    /// Carries out one request, keeps what it changes, and records it.
    fn one(
        &mut self,
        client: &Client,
        version: Version,
        number: u32,
        payload: Item,
        placeholder: &mut Option<String>,
        now: i64,
    ) -> Result<Item, Refusal> {
        let operation = Operation::from_number(number);
        let mut object = None;
        let unknown =
            || Refusal::new(ResultReason::OperationNotSupported, format!("operation {number:#x} is not supported"));
        let outcome = operation.ok_or_else(unknown).and_then(|operation| {
            let request = Request::from_payload(operation, payload)?;
            object = request.id().map(Into::into).or_else(|| placeholder.clone());
            let outcome = self.engine.handle(&client.name, version, request, placeholder.as_deref(), now)?;
            self.keep(outcome)
        });
        if let Ok(response) = &outcome {
            object = response.id().map(Into::into);
            placeholder.clone_from(&object);
        }
        let refusal = outcome.as_ref().err();
        let entry = AuditEntry {
            time: now,
            peer: client.peer.to_string(),
            client: Some(client.name.clone()),
            operation: Some(operation.map_or_else(|| format!("{number:#x}"), |operation| operation.name().into())),
            object,
            result: refusal.map_or("Success", |refusal| refusal.reason.name()).into(),
            message: refusal.map(|refusal| quoted(&refusal.message)),
        };
        // No secret leaves without a record.
        self.audit.write(&entry).map_err(|error| {
            tracing::error!(%error, "the audit log cannot be written");
            Refusal::new(ResultReason::GeneralFailure, "the audit log cannot be written")
        })?;
        outcome.map(|response| response.to_payload())
    }

    /// A change is in force when it is kept.
    fn keep(&mut self, outcome: Outcome) -> Result<Response, Refusal> {
        let Outcome { response, changed, forgotten } = outcome;
        if changed.is_some() || forgotten.is_some() {
            self.keeper.keep(changed.as_ref(), forgotten.as_deref()).map_err(|error| {
                tracing::error!(%error, "the key store cannot be written");
                Refusal::new(ResultReason::GeneralFailure, "the key store cannot be written")
            })?;
            self.engine.apply(changed, forgotten.as_deref());
        }
        Ok(response)
    }
}
