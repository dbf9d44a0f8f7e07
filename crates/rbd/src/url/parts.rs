//! The parts that the names of images and pools have in common.

use std::fmt::{self, Write};

use super::UrlError;
use crate::limits::MAX_URL_LEN;

/// The beginning of every URL.
const SCHEME: &str = "rbd:";

/// The names of the parameters.
pub(super) const PARAMETERS: [&str; 3] = ["conf", "user", "keyring"];

/// The parameters: the way to a cluster.
#[derive(Default)]
pub(super) struct Parameters {
    pub(super) conf: Option<String>,
    pub(super) user: Option<String>,
    pub(super) keyring: Option<String>,
}

impl Parameters {
    fn parse(query: &str) -> Result<Self, UrlError> {
        let mut parameters = Self::default();
        query.split('&').try_for_each(|parameter| parameters.set(parameter))?;
        Ok(parameters)
    }

    fn set(&mut self, parameter: &str) -> Result<(), UrlError> {
        let (name, value) = parameter.split_once('=').unwrap_or((parameter, ""));
        // Without the value, which may be a key.
        let unknown = || UrlError::Parameter(name.into());
        let place = self.place(name).ok_or_else(unknown)?;
        if value.is_empty() {
            return Err(unknown());
        }
        match place.replace(decode(value)?) {
            None => Ok(()),
            Some(_) => Err(UrlError::Twice(name.into())),
        }
    }

    fn place(&mut self, name: &str) -> Option<&mut Option<String>> {
        match name {
            "conf" => Some(&mut self.conf),
            "user" => Some(&mut self.user),
            "keyring" => Some(&mut self.keyring),
            _ => None,
        }
    }
}

/// Whether `text` is meant as such a URL.
pub(super) fn is_meant(text: &str) -> bool {
    text.starts_with(SCHEME)
}

/// Splits a URL into what stands before its parameters, without its beginning, and the parameters.
pub(super) fn split(text: &str) -> Result<(&str, Parameters), UrlError> {
    if text.len() > MAX_URL_LEN {
        return Err(UrlError::Length);
    }
    let rest = text.strip_prefix(SCHEME).ok_or_else(|| UrlError::Scheme(text.into()))?;
    match rest.split_once('?') {
        Some((path, query)) => Ok((path, Parameters::parse(query)?)),
        None => Ok((rest, Parameters::default())),
    }
}

/// The name that a part of the URL `text` stands for.
pub(super) fn name(text: &str, part: &str) -> Result<String, UrlError> {
    match decode(part) {
        Ok(name) if name.is_empty() => Err(UrlError::Empty(text.into())),
        other => other,
    }
}

/// Writes the beginning of a URL: a pool and its namespace.
pub(super) fn write_pool(f: &mut fmt::Formatter<'_>, pool: &str, namespace: Option<&str>) -> fmt::Result {
    write!(f, "{SCHEME}{}", Encoded(pool))?;
    namespace.map_or(Ok(()), |namespace| write!(f, "/{}", Encoded(namespace)))
}

/// Writes the parameters that have a value, in the order of [`PARAMETERS`].
pub(super) fn write_parameters(f: &mut fmt::Formatter<'_>, values: [&Option<String>; 3]) -> fmt::Result {
    let mut mark = '?';
    for (name, value) in PARAMETERS.into_iter().zip(values).filter_map(|(name, value)| Some((name, value.as_ref()?))) {
        write!(f, "{mark}{name}={}", EncodedValue(value))?;
        mark = '&';
    }
    Ok(())
}

/// A name as a part of a URL.
pub(super) struct Encoded<'a>(pub(super) &'a str);

impl fmt::Display for Encoded<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        encode(f, self.0, "/@?&%")
    }
}

/// A value of a parameter: paths keep their slashes.
struct EncodedValue<'a>(&'a str);

impl fmt::Display for EncodedValue<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        encode(f, self.0, "?&%")
    }
}

fn encode(f: &mut fmt::Formatter<'_>, text: &str, special: &str) -> fmt::Result {
    for c in text.chars() {
        if special.contains(c) {
            write!(f, "%{:02x}", c as u32)?;
        } else {
            f.write_char(c)?;
        }
    }
    Ok(())
}

/// Puts bytes in the place of `%XX`.
fn decode(text: &str) -> Result<String, UrlError> {
    let wrong = || UrlError::Escape(text.into());
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.bytes();
    while let Some(byte) = rest.next() {
        bytes.push(match byte {
            b'%' => {
                let mut digit = || char::from(rest.next()?).to_digit(16);
                let (high, low) = (digit().ok_or_else(wrong)?, digit().ok_or_else(wrong)?);
                (high * 16 + low) as u8
            }
            byte => byte,
        });
    }
    String::from_utf8(bytes).ok().filter(|name| !name.contains('\0')).ok_or_else(wrong)
}
