//! Messages with their headers (KMIP 1.4, sections 6 and 7).

use super::fields::{Fields, integer, invalid, known, number};
use super::limits::MAX_BATCH_ITEMS;
use super::{Operation, Refusal, Response, ResultReason, ResultStatus};
use crate::ttlv::{Item, Tag, Value};

/// A version of the protocol.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Version {
    /// The major number.
    pub major: i32,
    /// The minor number.
    pub minor: i32,
}

impl Version {
    /// The versions that this crate speaks, the preferred one first.
    pub const SUPPORTED: [Self; 5] = [Self::one(4), Self::one(3), Self::one(2), Self::one(1), Self::one(0)];

    /// The version KMIP 1.`minor`.
    pub const fn one(minor: i32) -> Self {
        Self { major: 1, minor }
    }

    /// Whether this crate speaks it.
    pub fn is_supported(self) -> bool {
        Self::SUPPORTED.contains(&self)
    }

    pub(super) fn from_item(item: Item) -> Result<Self, Refusal> {
        let mut fields = Fields::of(item)?;
        let major = integer(fields.need(Tag::PROTOCOL_VERSION_MAJOR)?)?;
        let minor = integer(fields.need(Tag::PROTOCOL_VERSION_MINOR)?)?;
        fields.end()?;
        Ok(Self { major, minor })
    }

    pub(super) fn to_item(self) -> Item {
        let fields = vec![
            Item::integer(Tag::PROTOCOL_VERSION_MAJOR, self.major),
            Item::integer(Tag::PROTOCOL_VERSION_MINOR, self.minor),
        ];
        Item::structure(Tag::PROTOCOL_VERSION, fields)
    }
}

/// A message of a client.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RequestMessage {
    /// The version of the message.
    pub version: Version,
    /// The longest response that the client takes, in bytes.
    pub maximum_response_bytes: Option<u32>,
    /// Go on with the next request when one fails.
    pub goes_on: bool,
    /// The requests.
    pub items: Vec<BatchItem>,
}

/// One request of a message, of which only the frame was read: a payload that is wrong fails alone.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BatchItem {
    /// The number of the operation, which may be one that is not known.
    pub operation: u32,
    /// The client's identifier, which the answer repeats.
    pub batch_id: Option<Vec<u8>>,
    /// The payload.
    pub payload: Item,
}

/// Fields of a header that change nothing here: requests are always carried out in their order, the certificate says
/// who the client is, its clock does not matter, it may attest or not, and correlation values are for logs of theirs.
const PASSED_OVER: [Tag; 5] = [
    Tag::BATCH_ORDER_OPTION,
    Tag::AUTHENTICATION,
    Tag::TIME_STAMP,
    Tag::ATTESTATION_CAPABLE_INDICATOR,
    Tag::CLIENT_CORRELATION_VALUE,
];

/// The values of Batch Error Continuation Option.
const CONTINUE: u32 = 1;
const STOP: u32 = 2;

impl RequestMessage {
    /// Reads the message.
    ///
    /// # Errors
    ///
    /// When the frame of the message is wrong. Everything in it fails then.
    pub fn from_item(message: Item) -> Result<Self, Refusal> {
        if message.tag != Tag::REQUEST_MESSAGE {
            return Err(Refusal::new(ResultReason::InvalidMessage, "this is no request message"));
        }
        let mut fields = Fields::of(message)?;
        let mut header = Fields::of(fields.need(Tag::REQUEST_HEADER)?)?;
        let version = Version::from_item(header.need(Tag::PROTOCOL_VERSION)?)?;
        let maximum = header.integer(Tag::MAXIMUM_RESPONSE_SIZE)?;
        let maximum_response_bytes = maximum
            .map(|bytes| u32::try_from(bytes).map_err(|_| invalid(Tag::MAXIMUM_RESPONSE_SIZE, "is negative")))
            .transpose()?;
        if header.boolean(Tag::ASYNCHRONOUS_INDICATOR)? == Some(true) {
            return Err(Refusal::new(ResultReason::FeatureNotSupported, "requests are answered at once only"));
        }
        let goes_on = match header.number(Tag::BATCH_ERROR_CONTINUATION_OPTION)? {
            Some(CONTINUE) => true,
            None | Some(STOP) => false,
            Some(_) => return Err(Refusal::new(ResultReason::FeatureNotSupported, "requests cannot be undone")),
        };
        for tag in PASSED_OVER {
            header.take(tag);
        }
        let count = integer(header.need(Tag::BATCH_COUNT)?)?;
        header.end()?;
        let items = fields.take_all(Tag::BATCH_ITEM, MAX_BATCH_ITEMS)?;
        fields.end()?;
        if items.is_empty() || usize::try_from(count) != Ok(items.len()) {
            return Err(Refusal::new(ResultReason::InvalidMessage, "Batch Count is not the number of requests"));
        }
        let items = items.into_iter().map(BatchItem::from_item).collect::<Result<_, _>>()?;
        Ok(Self { version, maximum_response_bytes, goes_on, items })
    }

    /// The message as an item.
    pub fn to_item(&self) -> Item {
        let mut header = vec![self.version.to_item()];
        let maximum = self.maximum_response_bytes.map(u32::cast_signed);
        header.extend(maximum.map(|bytes| Item::integer(Tag::MAXIMUM_RESPONSE_SIZE, bytes)));
        if self.goes_on {
            header.push(Item::enumeration(Tag::BATCH_ERROR_CONTINUATION_OPTION, CONTINUE));
        }
        header.push(Item::integer(Tag::BATCH_COUNT, count(self.items.len())));
        let mut fields = vec![Item::structure(Tag::REQUEST_HEADER, header)];
        fields.extend(self.items.iter().map(BatchItem::to_item));
        Item::structure(Tag::REQUEST_MESSAGE, fields)
    }
}

impl BatchItem {
    fn from_item(item: Item) -> Result<Self, Refusal> {
        let mut fields = Fields::of(item)?;
        let operation = number(fields.need(Tag::OPERATION)?)?;
        let batch_id = fields.bytes(Tag::UNIQUE_BATCH_ITEM_ID)?.map(|id| id.to_vec());
        let payload = fields.need(Tag::REQUEST_PAYLOAD)?;
        if let Some(extension) = fields.take(Tag::MESSAGE_EXTENSION) {
            let critical = Fields::of(extension)?.boolean(Tag::CRITICALITY_INDICATOR)?;
            if critical == Some(true) {
                return Err(Refusal::new(ResultReason::FeatureNotSupported, "no message extension is supported"));
            }
        }
        fields.end()?;
        Ok(Self { operation, batch_id, payload })
    }

    fn to_item(&self) -> Item {
        let mut fields = vec![Item::enumeration(Tag::OPERATION, self.operation)];
        fields.extend(self.batch_id.as_ref().map(|id| Item::bytes(Tag::UNIQUE_BATCH_ITEM_ID, id.clone())));
        fields.push(self.payload.clone());
        Item::structure(Tag::BATCH_ITEM, fields)
    }
}

/// A message of a server.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ResponseMessage {
    /// The version of the message: that of the request.
    pub version: Version,
    /// When it was made, in seconds since 1970.
    pub time: i64,
    /// The answers, in the order of the requests.
    pub answers: Vec<Answer>,
}

/// The answer to one request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Answer {
    /// The number of the operation; absent when the request could not be read.
    pub operation: Option<u32>,
    /// The client's identifier of the request.
    pub batch_id: Option<Vec<u8>>,
    /// The payload, or why there is none.
    pub outcome: Result<Item, Refusal>,
}

impl ResponseMessage {
    /// The answer to a message that could not be read.
    pub fn refusal(version: Version, time: i64, refusal: Refusal) -> Self {
        let answer = Answer { operation: None, batch_id: None, outcome: Err(refusal) };
        Self { version, time, answers: vec![answer] }
    }

    /// Reads the message.
    ///
    /// # Errors
    ///
    /// When a field is missing or has the wrong type.
    pub fn from_item(message: Item) -> Result<Self, Refusal> {
        if message.tag != Tag::RESPONSE_MESSAGE {
            return Err(Refusal::new(ResultReason::InvalidMessage, "this is no response message"));
        }
        let mut fields = Fields::of(message)?;
        let mut header = Fields::of(fields.need(Tag::RESPONSE_HEADER)?)?;
        let version = Version::from_item(header.need(Tag::PROTOCOL_VERSION)?)?;
        let time = header.date(Tag::TIME_STAMP)?.unwrap_or_default();
        let items = fields.take_all(Tag::BATCH_ITEM, MAX_BATCH_ITEMS)?;
        let answers = items.into_iter().map(Answer::from_item).collect::<Result<_, _>>()?;
        Ok(Self { version, time, answers })
    }

    /// The message as an item.
    pub fn to_item(&self) -> Item {
        let header = vec![
            self.version.to_item(),
            Item::new(Tag::TIME_STAMP, Value::DateTime(self.time)),
            Item::integer(Tag::BATCH_COUNT, count(self.answers.len())),
        ];
        let mut fields = vec![Item::structure(Tag::RESPONSE_HEADER, header)];
        fields.extend(self.answers.iter().map(Answer::to_item));
        Item::structure(Tag::RESPONSE_MESSAGE, fields)
    }
}

impl Answer {
    /// Reads the payload of an answer to `operation`.
    ///
    /// # Errors
    ///
    /// The refusal of the server, or of this reader.
    pub fn response(self, operation: Operation) -> Result<Response, Refusal> {
        Response::from_payload(operation, self.outcome?)
    }

    fn from_item(item: Item) -> Result<Self, Refusal> {
        let mut fields = Fields::of(item)?;
        let operation = fields.number(Tag::OPERATION)?;
        let batch_id = fields.bytes(Tag::UNIQUE_BATCH_ITEM_ID)?.map(|id| id.to_vec());
        let status = number(fields.need(Tag::RESULT_STATUS)?)?;
        let status = known(Tag::RESULT_STATUS, status, ResultStatus::from_number)?;
        if status == ResultStatus::Success {
            let payload = fields.take(Tag::RESPONSE_PAYLOAD);
            let payload = payload.unwrap_or_else(|| Item::structure(Tag::RESPONSE_PAYLOAD, Vec::new()));
            return Ok(Self { operation, batch_id, outcome: Ok(payload) });
        }
        // A server may give a reason of a later version; its text still helps.
        let reason = fields.number(Tag::RESULT_REASON)?.and_then(ResultReason::from_number);
        let message = fields.take(Tag::RESULT_MESSAGE).and_then(|item| match item.value {
            Value::TextString(text) => Some(text),
            _ => None,
        });
        let refusal = Refusal::new(
            reason.unwrap_or(ResultReason::GeneralFailure),
            message.unwrap_or_else(|| format!("{status} without a message")),
        );
        Ok(Self { operation, batch_id, outcome: Err(refusal) })
    }

    fn to_item(&self) -> Item {
        let mut fields = Vec::new();
        fields.extend(self.operation.map(|operation| Item::enumeration(Tag::OPERATION, operation)));
        fields.extend(self.batch_id.as_ref().map(|id| Item::bytes(Tag::UNIQUE_BATCH_ITEM_ID, id.clone())));
        let status = |status: ResultStatus| Item::enumeration(Tag::RESULT_STATUS, status.number());
        match &self.outcome {
            Ok(payload) => fields.extend([status(ResultStatus::Success), payload.clone()]),
            Err(refusal) => fields.extend([
                status(ResultStatus::OperationFailed),
                Item::enumeration(Tag::RESULT_REASON, refusal.reason.number()),
                Item::text(Tag::RESULT_MESSAGE, &refusal.message),
            ]),
        }
        Item::structure(Tag::BATCH_ITEM, fields)
    }
}

/// A number of requests, which is at most [`MAX_BATCH_ITEMS`].
fn count(items: usize) -> i32 {
    i32::try_from(items).unwrap_or(i32::MAX)
}
