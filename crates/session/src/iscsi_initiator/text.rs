//! One text exchange, as the initiator sees it (RFC 7143 sections 11.10 and 11.11).

use std::collections::VecDeque;

use lunette_pdu::text::{self, TextAssembler};

use super::error::{SessionError, broken};
use crate::limits::{MAX_TEXT_ANSWER_BYTES, MAX_TEXT_ANSWER_KEYS, MAX_TEXT_ANSWER_PDUS};

/// A text request, with what has come of its answer.
pub(crate) struct TextExchange {
    /// The driver's name for it; none when it is ours.
    pub(crate) user: Option<u64>,
    /// The whole request.
    list: Vec<u8>,
    /// Parts of a long request that the target has yet to take.
    outgoing: VecDeque<Vec<u8>>,
    assembler: TextAssembler,
    pdus: u32,
}

impl TextExchange {
    /// Cuts the request's list to what the target takes.
    pub(crate) fn new(user: Option<u64>, list: &[u8], segment_len: u32) -> Self {
        let outgoing = text::split_text(list, segment_len as usize).map(<[u8]>::to_vec).collect();
        let assembler = TextAssembler::new(MAX_TEXT_ANSWER_BYTES);
        Self { user, list: list.to_vec(), outgoing, assembler, pdus: 0 }
    }

    /// The text from its beginning.
    pub(crate) fn again(self, segment_len: u32) -> Self {
        Self::new(self.user, &self.list, segment_len)
    }

    /// The next part of the request; empty when all of it is out and we only ask for more. True when it is the last.
    pub(crate) fn next_part(&mut self) -> (Vec<u8>, bool) {
        let part = self.outgoing.pop_front().unwrap_or_default();
        (part, self.outgoing.is_empty())
    }

    /// Takes a part of the answer.
    pub(crate) fn take(&mut self, data: &[u8], continue_: bool) -> Result<(), SessionError> {
        self.pdus += 1;
        if self.pdus > MAX_TEXT_ANSWER_PDUS {
            return Err(broken("11.11", format!("no end of the answer after {MAX_TEXT_ANSWER_PDUS} responses")));
        }
        if !self.outgoing.is_empty() && (!data.is_empty() || continue_) {
            return Err(broken("6.2", "keys came while our own list was being continued"));
        }
        // Parts without C are put together too: only F ends the answer.
        self.assembler.push(data, true).map(drop).map_err(|error| broken("6.2", error.to_string()))
    }

    /// The whole answer.
    pub(crate) fn finish(mut self) -> Result<Vec<(String, String)>, SessionError> {
        if !self.outgoing.is_empty() {
            return Err(broken("11.11.1", "F in the answer to a part of a request"));
        }
        let list = self.assembler.push(&[], false).map_err(|error| broken("6.2", error.to_string()))?;
        let list = list.unwrap_or_default();
        let pairs = text::pairs(&list).take(MAX_TEXT_ANSWER_KEYS + 1).map(|pair| {
            let (key, value) = pair.map_err(|error| broken("6.1", error.to_string()))?;
            Ok((key.to_owned(), value.to_owned()))
        });
        let pairs: Vec<_> = pairs.collect::<Result<_, SessionError>>()?;
        if pairs.len() > MAX_TEXT_ANSWER_KEYS {
            return Err(broken("6.2", format!("more than {MAX_TEXT_ANSWER_KEYS} keys in one answer")));
        }
        Ok(pairs)
    }
}
