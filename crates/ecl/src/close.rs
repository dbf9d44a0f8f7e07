//! The payload of a Close packet: why the association has ended.
//!
//! | bytes | |
//! |---|---|
//! | 0–1 | [`CloseCode`] |
//! | 2–3 | the length of the text |
//! | 4– | UTF-8 text for people, at most [`MAX_CLOSE_TEXT_LEN`] bytes |
//!
//! It takes back what is under way on the association, and nothing is sent after it.

use std::fmt;

use crate::limits::MAX_CLOSE_TEXT_LEN;

/// The bytes before the text.
const FIXED_LEN: usize = 4;

/// The longest payload of a Close packet.
pub const MAX_CLOSE_LEN: usize = FIXED_LEN + MAX_CLOSE_TEXT_LEN;

/// Why an association has ended. A code that this version does not know is kept as it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct CloseCode(pub u16);

/// Names and meanings, in the order of the codes.
const CODES: [(CloseCode, &str); 12] = [
    (CloseCode::FINISHED, "finished"),
    (CloseCode::SHUTDOWN, "the server stops"),
    (CloseCode::REPLACED, "another association has taken the session over"),
    (CloseCode::SESSION, "the iSCSI session has ended with an error"),
    (CloseCode::PROTOCOL, "a rule of the protocol was broken"),
    (CloseCode::CREDIT, "more was sent than the credit allows"),
    (CloseCode::ACKNOWLEDGEMENT, "a packet was acknowledged that was never sent"),
    (CloseCode::TIMEOUT, "no answer from the peer"),
    (CloseCode::NARROW_PATH, "the path does not carry packets of the length that is needed"),
    (CloseCode::KEYS_EXHAUSTED, "the keys have protected as many packets as they may"),
    (CloseCode::RESOURCES, "a limit of the server is reached"),
    (CloseCode::INTERNAL, "an error within the peer"),
];

impl CloseCode {
    /// The session was logged out.
    pub const FINISHED: Self = Self(0);
    /// The server stops.
    pub const SHUTDOWN: Self = Self(1);
    /// Another association has taken the session over (reinstatement, RFC 7143 section 6.3.5).
    pub const REPLACED: Self = Self(2);
    /// The session has ended with an error of RFC 7143: a refused login, a broken rule of a PDU.
    pub const SESSION: Self = Self(3);
    /// A rule of the Effective Cross Layer was broken.
    pub const PROTOCOL: Self = Self(4);
    /// The peer has sent beyond its credit.
    pub const CREDIT: Self = Self(5);
    /// The peer has acknowledged a packet that was never sent.
    pub const ACKNOWLEDGEMENT: Self = Self(6);
    /// The peer has not answered for too long. It may come back and read this.
    pub const TIMEOUT: Self = Self(7);
    /// A quantum with its slot does not fit the path.
    pub const NARROW_PATH: Self = Self(8);
    /// [`MAX_PACKETS_PER_KEY`](crate::limits::MAX_PACKETS_PER_KEY) is reached.
    pub const KEYS_EXHAUSTED: Self = Self(9);
    /// A limit of the server is reached.
    pub const RESOURCES: Self = Self(10);
    /// An error within the sender.
    pub const INTERNAL: Self = Self(11);

    /// The meaning of the code, if it is known.
    pub fn meaning(self) -> Option<&'static str> {
        CODES.get(usize::from(self.0)).map(|&(_, meaning)| meaning)
    }
}

impl fmt::Display for CloseCode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.meaning() {
            Some(meaning) => f.write_str(meaning),
            None => write!(f, "code {}", self.0),
        }
    }
}

/// Why an association has ended, with text.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Close {
    /// The reason.
    pub code: CloseCode,
    /// More about it, for people. It is empty, or one line.
    text: String,
}

/// Why bytes are no payload of a Close packet. The association has ended all the same.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum CloseError {
    /// Too short for a code.
    #[error("{0} bytes are too short for a Close")]
    Short(usize),
    /// The text is longer than it may be.
    #[error("the text has {0} bytes, and the bound is {MAX_CLOSE_TEXT_LEN}")]
    TextLen(usize),
    /// The text does not end where the payload does.
    #[error("{payload} bytes, of which {text} are text")]
    Len {
        /// The length of the payload.
        payload: usize,
        /// The length of the text, as the payload says.
        text: usize,
    },
}

impl Close {
    /// A Close with that text, cut where it is longer than [`MAX_CLOSE_TEXT_LEN`].
    pub fn new(code: CloseCode, text: &str) -> Self {
        Self { code, text: line(text) }
    }

    /// The text: no control characters, so it can be printed.
    pub fn text(&self) -> &str {
        &self.text
    }

    /// Writes the payload to the front of `bytes`, and returns its length.
    pub fn emit(&self, bytes: &mut [u8; MAX_CLOSE_LEN]) -> usize {
        let len = self.text.len();
        bytes[..2].copy_from_slice(&self.code.0.to_be_bytes());
        bytes[2..FIXED_LEN].copy_from_slice(&(len as u16).to_be_bytes());
        bytes[FIXED_LEN..FIXED_LEN + len].copy_from_slice(self.text.as_bytes());
        FIXED_LEN + len
    }

    /// Reads a payload. What is not UTF-8 in the text is replaced by U+FFFD.
    ///
    /// # Errors
    ///
    /// [`CloseError`] when lengths do not fit.
    pub fn parse(payload: &[u8]) -> Result<Self, CloseError> {
        let (fixed, text) = payload.split_first_chunk::<FIXED_LEN>().ok_or(CloseError::Short(payload.len()))?;
        let len = usize::from(u16::from_be_bytes([fixed[2], fixed[3]]));
        if len > MAX_CLOSE_TEXT_LEN {
            return Err(CloseError::TextLen(len));
        }
        if len != text.len() {
            return Err(CloseError::Len { payload: payload.len(), text: len });
        }
        Ok(Self {
            code: CloseCode(u16::from_be_bytes([fixed[0], fixed[1]])),
            text: line(&String::from_utf8_lossy(text)),
        })
    }
}

/// Text as a terminal may show it: no control characters, and within the bound.
fn line(text: &str) -> String {
    let mut line: String = text.chars().map(|c| if c.is_control() { ' ' } else { c }).collect();
    line.truncate(line.floor_char_boundary(MAX_CLOSE_TEXT_LEN));
    line
}

impl fmt::Display for Close {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.text.is_empty() { self.code.fmt(f) } else { write!(f, "{}: {}", self.code, self.text) }
    }
}

#[cfg(test)]
mod tests;
