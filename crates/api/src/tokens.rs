//! Tokens: what clients that come over TCP prove themselves with.

use std::io::{self, ErrorKind};
use std::path::PathBuf;

use axum::extract::{Request, State};
use axum::http::header;
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use lunette_files::{Content, FileProblem};
use sha2::{Digest, Sha256};
use subtle::{Choice, ConstantTimeEq};
use zeroize::Zeroizing;

use crate::limits::{MAX_TOKEN_FILE_BYTES, MIN_TOKEN_BYTES};
use crate::problem::Problem;

/// What the file holds.
const TOKENS: Content = Content { name: "tokens", max_bytes: MAX_TOKEN_FILE_BYTES };

/// A file with one token in each line. It is read for each request, so a token that is removed there holds no longer.
#[derive(Debug, Clone)]
pub struct TokenFile(PathBuf);

impl TokenFile {
    /// The file at this path, which is read to see that it can be.
    ///
    /// # Errors
    ///
    /// When it cannot be read, holds no token, or one that is short enough to be guessed.
    pub fn open(path: PathBuf) -> io::Result<Self> {
        let file = Self(path);
        let text = file.read()?;
        let wrong = |what: String| Err(io::Error::new(ErrorKind::InvalidData, what));
        match tokens(&text).enumerate().find(|(_, token)| token.len() < MIN_TOKEN_BYTES) {
            Some((index, _)) => wrong(format!("token {} is shorter than {MIN_TOKEN_BYTES} bytes", index + 1)),
            None if tokens(&text).next().is_none() => wrong("there is no token".into()),
            None => Ok(file),
        }
    }

    fn read(&self) -> io::Result<Zeroizing<String>> {
        let mut bytes = lunette_files::read_secret(&self.0, TOKENS).map_err(FileProblem::into_io)?;
        let text = String::from_utf8(std::mem::take(&mut *bytes));
        text.map(Zeroizing::new).map_err(|_| io::Error::new(ErrorKind::InvalidData, "the file of tokens is not UTF-8"))
    }

    /// Whether it holds the token. Takes the same time for each wrong one.
    fn holds(&self, token: &str) -> io::Result<bool> {
        let text = self.read()?;
        let asked = Sha256::digest(token);
        let same = tokens(&text).map(|known| Sha256::digest(known).ct_eq(&asked));
        let found = same.fold(Choice::from(0), |any, same| any | same);
        Ok(found.into())
    }
}

/// The tokens of a file. Empty lines and those that begin with # are for people.
fn tokens(text: &str) -> impl Iterator<Item = &str> {
    text.lines().map(str::trim).filter(|line| !line.is_empty() && !line.starts_with('#'))
}

/// Lets requests with a token pass, and those that ask whether the API answers.
pub(crate) async fn require_token(State(file): State<TokenFile>, request: Request, next: Next) -> Response {
    if request.uri().path() == "/healthz" {
        return next.run(request).await;
    }
    let value = request.headers().get(header::AUTHORIZATION).and_then(|value| value.to_str().ok());
    let token = value.and_then(|value| value.strip_prefix("Bearer "));
    match token.map(|token| file.holds(token)) {
        Some(Ok(true)) => next.run(request).await,
        Some(Err(error)) => {
            tracing::error!(%error, "API: the file of tokens cannot be read");
            Problem::unavailable("the tokens cannot be read; the server's log says why").into_response()
        }
        _ => {
            let mut refused =
                Problem::unauthorized("send Authorization: Bearer TOKEN, with a token of the server's file");
            refused.title = "a token is needed".into();
            let mut response = refused.into_response();
            response.headers_mut().insert(header::WWW_AUTHENTICATE, header::HeaderValue::from_static("Bearer"));
            response
        }
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    fn open(content: &str) -> (tempfile::TempDir, io::Result<TokenFile>) {
        let place = tempfile::tempdir().unwrap();
        let path = place.path().join("tokens");
        fs::write(&path, content).unwrap();
        (place, TokenFile::open(path))
    }

    const LONG: &str = "0123456789abcdef0123456789";

    #[test]
    fn a_token_holds_while_it_is_in_the_file() {
        let (place, file) = open(&format!("# admin\n{LONG}\n\n{LONG}-2\n"));
        let file = file.unwrap();
        for (token, holds) in
            [(LONG, true), (&format!("{LONG}-2"), true), ("", false), (&LONG[1..], false), ("# admin", false)]
        {
            assert_eq!(file.holds(token).unwrap(), holds, "{token}");
        }
        fs::write(place.path().join("tokens"), "").unwrap();
        assert!(!file.holds(LONG).unwrap());
    }

    #[test]
    fn files_that_protect_nothing_are_refused() {
        for (content, expected) in [
            ("", "no token"),
            ("# only this\n", "no token"),
            (&format!("{LONG}\nshort"), "token 2 is shorter"),
            (&"x".repeat(70_000), "too long"),
        ] {
            let error = open(content).1.unwrap_err().to_string();
            assert!(error.contains(expected) && !error.contains(LONG), "{error}");
        }
    }
}
