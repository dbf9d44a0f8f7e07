//! Tokens: what clients that come over TCP prove themselves with.
//!
//! A line of their file is `TOKEN [role=ROLE] [name=NAME] [targets=IQN,IQN...]`. A token alone may do everything.

use std::io::{self, ErrorKind};
use std::path::PathBuf;
use std::sync::Arc;

use axum::extract::{Request, State};
use axum::http::header;
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use lunette_files::{Content, FileProblem};
use sha2::{Digest, Sha256};
use subtle::ConstantTimeEq;
use zeroize::Zeroizing;

use crate::callers::{Caller, Role};
use crate::limits::{MAX_TOKEN_FILE_BYTES, MIN_TOKEN_BYTES};
use crate::listen::Connection;
use crate::problem::Problem;

/// The file of tokens.
const TOKENS: Content = Content { name: "tokens", max_bytes: MAX_TOKEN_FILE_BYTES };

/// A file with one token in each line. It is read for each request, so a token that is removed there holds no longer.
#[derive(Debug, Clone)]
pub struct TokenFile(PathBuf);

/// The rights that a token grants.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Grant {
    name: String,
    role: Role,
    targets: Option<Vec<String>>,
}

impl TokenFile {
    /// The file at this path, which is read to see that it can be.
    ///
    /// # Errors
    ///
    /// When it cannot be read, has a mistake, holds no token, or one that is short enough to be guessed.
    pub fn open(path: PathBuf) -> io::Result<Self> {
        let file = Self(path);
        let text = file.read()?;
        let wrong = |what: String| io::Error::new(ErrorKind::InvalidData, what);
        let mut any = false;
        for (number, line) in lines(&text) {
            let (token, _) = parse(number, line).map_err(|why| wrong(format!("line {number}: {why}")))?;
            if token.len() < MIN_TOKEN_BYTES {
                return Err(wrong(format!("line {number}: the token is shorter than {MIN_TOKEN_BYTES} bytes")));
            }
            any = true;
        }
        if any { Ok(file) } else { Err(wrong("there is no token".into())) }
    }

    fn read(&self) -> io::Result<Zeroizing<String>> {
        let mut bytes = lunette_files::read_secret(&self.0, TOKENS).map_err(FileProblem::into_io)?;
        let text = String::from_utf8(std::mem::take(&mut *bytes));
        text.map(Zeroizing::new).map_err(|_| io::Error::new(ErrorKind::InvalidData, "the file of tokens is not UTF-8"))
    }

    /// The rights that a token grants, if the file holds it. Takes the same time for each wrong one. Lines with a
    /// mistake grant nothing.
    fn find(&self, token: &str) -> io::Result<Option<Grant>> {
        let text = self.read()?;
        let asked = Sha256::digest(token);
        let mut found = None;
        for (number, line) in lines(&text) {
            let Ok((known, grant)) = parse(number, line) else { continue };
            if bool::from(Sha256::digest(known).ct_eq(&asked)) {
                found = Some(grant);
            }
        }
        Ok(found)
    }
}

/// The lines of a file that have a token, with their numbers. Empty lines and those that begin with # are for people.
fn lines(text: &str) -> impl Iterator<Item = (usize, &str)> {
    let numbered = text.lines().enumerate().map(|(index, line)| (index + 1, line.trim()));
    numbered.filter(|(_, line)| !line.is_empty() && !line.starts_with('#'))
}

/// The token of a line, and what it grants. Errors quote no token.
fn parse(number: usize, line: &str) -> Result<(&str, Grant), String> {
    let mut words = line.split_whitespace();
    let token = words.next().unwrap_or_default();
    let mut grant = Grant { name: format!("token of line {number}"), role: Role::Admin, targets: None };
    for word in words {
        match word.split_once('=') {
            Some(("role", role)) => grant.role = role.parse()?,
            Some(("name", name)) if !name.is_empty() => grant.name = name.into(),
            Some(("targets", names)) if !names.is_empty() => {
                grant.targets = Some(names.split(',').map(str::to_owned).collect());
            }
            _ => return Err("write TOKEN, and behind it role=ROLE, name=NAME or targets=IQN,IQN...".into()),
        }
    }
    Ok((token, grant))
}

/// Lets requests with a token pass, and those that ask whether the API answers.
pub(crate) async fn require_token(State(file): State<TokenFile>, mut request: Request, next: Next) -> Response {
    if request.uri().path() == "/healthz" {
        return next.run(request).await;
    }
    let value = request.headers().get(header::AUTHORIZATION).and_then(|value| value.to_str().ok());
    let token = value.and_then(|value| value.strip_prefix("Bearer "));
    match token.map(|token| file.find(token)) {
        Some(Ok(Some(Grant { name, role, targets }))) => {
            let connection = request.extensions().get::<Arc<Connection>>();
            // A request that comes from no connection is the login's, which asks whether the token holds.
            if let Some(Err(problem)) = connection.map(|connection| connection.prove()) {
                return problem.into_response();
            }
            let from = connection.map_or_else(|| "the login".into(), |connection| connection.peer().to_owned());
            request.extensions_mut().insert(Arc::new(Caller { name, role, targets, from }));
            next.run(request).await
        }
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
            assert_eq!(file.find(token).unwrap().is_some(), holds, "{token}");
        }
        fs::write(place.path().join("tokens"), "").unwrap();
        assert_eq!(file.find(LONG).unwrap(), None);
    }

    #[test]
    fn a_token_has_a_role_and_alone_it_is_that_of_an_administrator() {
        let text = format!(
            "# for people\n{LONG}\n{LONG}-r role=read name=prometheus\n{LONG}-o targets=iqn.a,iqn.b role=operate\n"
        );
        let (_place, file) = open(&text);
        let find = |end: &str| file.as_ref().unwrap().find(&format!("{LONG}{end}")).unwrap().unwrap();
        let grant = |name: &str, role, targets| Grant { name: name.into(), role, targets };
        assert_eq!(find(""), grant("token of line 2", Role::Admin, None));
        assert_eq!(find("-r"), grant("prometheus", Role::Read, None));
        let both = Some(vec!["iqn.a".into(), "iqn.b".into()]);
        assert_eq!(find("-o"), grant("token of line 4", Role::Operate, both));
    }

    #[test]
    fn a_line_that_gets_a_mistake_grants_nothing() {
        let (place, file) = open(&format!("{LONG} role=read"));
        fs::write(place.path().join("tokens"), format!("{LONG} rol=read")).unwrap();
        assert_eq!(file.unwrap().find(LONG).unwrap(), None);
    }

    #[test]
    fn files_that_protect_nothing_are_refused() {
        for (content, expected) in [
            ("", "no token"),
            ("# only this\n", "no token"),
            (&format!("{LONG}\nshort"), "line 2: the token is shorter"),
            (&format!("{LONG} role=root"), "line 1: \"root\" is no role; write read, operate or admin"),
            (&format!("{LONG} read"), "line 1: write TOKEN, and behind it role=ROLE"),
            (&format!("{LONG} targets="), "line 1: write TOKEN"),
            (&"x".repeat(70_000), "too long"),
        ] {
            let error = open(content).1.unwrap_err().to_string();
            assert!(error.contains(expected) && !error.contains(LONG), "{error}");
        }
    }
}
