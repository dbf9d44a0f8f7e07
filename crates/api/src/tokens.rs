//! Tokens, with which clients that come over TCP prove themselves.
//!
//! A line of their file is `TOKEN [role=ROLE] [name=NAME] [targets=IQN,IQN...]`. A token alone may do everything.

use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use lunette_files::{Content, FileProblem, Stamp};
use sha2::{Digest, Sha256};
use subtle::ConstantTimeEq;
use tokio::sync::Mutex;
use zeroize::Zeroizing;

use crate::callers::{Grant, Role};
use crate::limits::{MAX_TOKEN_FILE_BYTES, MIN_TOKEN_BYTES};

/// The file of tokens.
const TOKENS: Content = Content { name: "tokens", max_bytes: MAX_TOKEN_FILE_BYTES };

/// A file with one token in each line. It is read again when it has changed, so a token that is removed there holds no
/// longer.
#[derive(Debug, Clone)]
pub struct TokenFile(Arc<Watched>);

#[derive(Debug)]
struct Watched {
    path: PathBuf,
    /// Held while the file is looked at: however many requests wait, one thread does.
    known: Mutex<Tokens>,
}

/// The tokens of a file, by their digests.
#[derive(Debug, Clone, Default)]
struct Tokens {
    grants: Arc<[(Sha256Digest, Grant)]>,
    /// The mistakes of the lines that grant nothing.
    mistakes: Arc<[String]>,
    /// The state of the file that they are from; `None` when it may have changed since and look the same.
    stamp: Option<Stamp>,
}

pub(crate) type Sha256Digest = [u8; 32];

impl TokenFile {
    /// The file at this path, which is read to see that it can be.
    ///
    /// # Errors
    ///
    /// When it cannot be read, has a mistake, holds no token, or one that is short enough to be guessed.
    pub fn open(path: PathBuf) -> io::Result<Self> {
        let text = read(&path)?;
        let wrong = |what: &str| io::Error::new(ErrorKind::InvalidData, what);
        let (grants, mistakes) = parse_all(&text);
        match mistakes.first() {
            Some(mistake) => Err(wrong(mistake)),
            None if grants.is_empty() => Err(wrong("there is no token")),
            None => Ok(Self(Arc::new(Watched { path, known: Mutex::default() }))),
        }
    }

    /// Where the file is.
    pub(crate) fn path(&self) -> &Path {
        &self.0.path
    }

    /// The grant of a token, if the file holds it now. A thread that may wait looks at the file.
    pub(crate) async fn find(&self, token: &Sha256Digest) -> io::Result<Option<Grant>> {
        let mut known = self.0.known.lock().await;
        let (file, before) = (Arc::clone(&self.0), known.clone());
        let now = tokio::task::spawn_blocking(move || before.again(&file.path)).await.map_err(io::Error::other)??;
        *known = now.clone();
        drop(known);
        Ok(now.find(token))
    }
}

impl Tokens {
    /// The tokens of the file now: these, as long as it has not changed.
    fn again(self, path: &Path) -> io::Result<Self> {
        // Before it is read, so that a change meanwhile is seen the next time.
        let stamp = Stamp::of(path).map_err(|error| FileProblem::of(path, TOKENS, error).into_io())?;
        let stamp = stamp.is_settled().then_some(stamp);
        if stamp.is_some() && stamp == self.stamp {
            return Ok(self);
        }
        let (grants, mistakes) = parse_all(&read(path)?);
        for mistake in mistakes.iter().filter(|mistake| !self.mistakes.contains(mistake)) {
            tracing::error!("API: {}: {mistake}; this line grants nothing", path.display());
        }
        Ok(Self { grants: grants.into(), mistakes: mistakes.into(), stamp })
    }

    /// The rights that a token grants, if it is one of these. Takes the same time for each wrong one.
    fn find(&self, asked: &Sha256Digest) -> Option<Grant> {
        let mut found = None;
        for (known, grant) in &*self.grants {
            if bool::from(known.ct_eq(asked)) {
                found = Some(grant);
            }
        }
        found.cloned()
    }
}

fn read(path: &Path) -> io::Result<Zeroizing<String>> {
    let mut bytes = lunette_files::read_secret(path, TOKENS).map_err(FileProblem::into_io)?;
    let text = String::from_utf8(std::mem::take(&mut *bytes));
    text.map(Zeroizing::new).map_err(|_| io::Error::new(ErrorKind::InvalidData, "the file of tokens is not UTF-8"))
}

/// The lines of a file that have a token, with their numbers. Empty lines and those that begin with # are for people.
fn lines(text: &str) -> impl Iterator<Item = (usize, &str)> {
    let numbered = text.lines().enumerate().map(|(index, line)| (index + 1, line.trim()));
    numbered.filter(|(_, line)| !line.is_empty() && !line.starts_with('#'))
}

/// The grants of the lines of a file, and the mistakes of the others.
fn parse_all(text: &str) -> (Vec<(Sha256Digest, Grant)>, Vec<String>) {
    let (mut grants, mut mistakes) = (Vec::new(), Vec::new());
    for (number, line) in lines(text) {
        match parse(number, line) {
            Ok((token, grant)) => grants.push((Sha256::digest(token).into(), grant)),
            Err(why) => mistakes.push(format!("line {number}: {why}")),
        }
    }
    (grants, mistakes)
}

/// The token of a line, and what it grants. Errors quote no token.
fn parse(number: usize, line: &str) -> Result<(&str, Grant), String> {
    let mut words = line.split_whitespace();
    let token = words.next().unwrap_or_default();
    if token.len() < MIN_TOKEN_BYTES {
        return Err(format!("the token is shorter than {MIN_TOKEN_BYTES} bytes"));
    }
    let mut grant =
        Grant { name: format!("token of line {number}"), is_named: false, role: Role::Admin, targets: None };
    let mut seen = Vec::new();
    for word in words {
        let (key, value) = word.split_once('=').unwrap_or_default();
        match (key, value) {
            _ if seen.contains(&key) => return Err(format!("{key} is there twice; leave out one of them")),
            ("role", role) => grant.role = role.parse()?,
            ("name", name) if !name.is_empty() => (grant.name, grant.is_named) = (name.into(), true),
            ("targets", names) if !names.is_empty() => {
                grant.targets = Some(names.split(',').map(target).collect::<Result<_, _>>()?);
            }
            _ => return Err("write TOKEN, and behind it role=ROLE, name=NAME or targets=IQN,IQN...".into()),
        }
        seen.push(key);
    }
    Ok((token, grant))
}

/// The name of a target, in the form that targets of a server have.
fn target(name: &str) -> Result<String, String> {
    let is_name = ["iqn.", "eui.", "naa."].iter().any(|kind| name.len() > kind.len() && name.starts_with(kind));
    match name.to_lowercase() {
        lower if lower != name => Err(format!("targets={name}: names of targets have no capitals; write {lower}")),
        _ if !is_name => {
            Err(format!("targets={name}: that is no name of a target; write one such as iqn.2026-11.org.example:a"))
        }
        lower => Ok(lower),
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::time::{Duration, SystemTime};

    use super::*;

    fn open(content: &str) -> (tempfile::TempDir, io::Result<TokenFile>) {
        let place = tempfile::tempdir().unwrap();
        let path = place.path().join("tokens");
        fs::write(&path, content).unwrap();
        (place, TokenFile::open(path))
    }

    fn digest(token: &str) -> Sha256Digest {
        Sha256::digest(token).into()
    }

    const LONG: &str = "0123456789abcdef0123456789";

    #[tokio::test]
    async fn a_token_holds_while_it_is_in_the_file() {
        let (place, file) = open(&format!("# admin\n{LONG}\n\n{LONG}-2\n"));
        let file = file.unwrap();
        for (token, holds) in
            [(LONG, true), (&format!("{LONG}-2"), true), ("", false), (&LONG[1..], false), ("# admin", false)]
        {
            assert_eq!(file.find(&digest(token)).await.unwrap().is_some(), holds, "{token}");
        }
        fs::write(place.path().join("tokens"), "").unwrap();
        assert_eq!(file.find(&digest(LONG)).await.unwrap(), None);
        fs::remove_file(place.path().join("tokens")).unwrap();
        assert!(file.find(&digest(LONG)).await.is_err());
    }

    #[test]
    fn a_file_is_read_again_when_it_has_changed() {
        let place = tempfile::tempdir().unwrap();
        let path = place.path().join("tokens");
        let write = |path: &Path, content: &str| {
            fs::write(path, content).unwrap();
            let hour_ago = SystemTime::now() - Duration::from_hours(1);
            fs::File::options().write(true).open(path).unwrap().set_modified(hour_ago).unwrap();
        };
        let same = |one: &Tokens, other: &Tokens| Arc::ptr_eq(&one.grants, &other.grants);
        write(&path, LONG);
        let first = Tokens::default().again(&path).unwrap();
        assert!(same(&first, &first.clone().again(&path).unwrap()), "nothing has changed");
        // Of the same length and the same time, in place and as another file.
        write(&path, &LONG.replace('0', "1"));
        let second = first.clone().again(&path).unwrap();
        assert!(!same(&first, &second) && second.find(&digest(LONG)).is_none());
        write(&place.path().join("new"), LONG);
        fs::rename(place.path().join("new"), &path).unwrap();
        let third = second.clone().again(&path).unwrap();
        assert!(!same(&second, &third) && third.find(&digest(LONG)).is_some());
        // One that has just been written may change once more within a tick of its times.
        fs::write(&path, LONG).unwrap();
        let fresh = third.again(&path).unwrap();
        assert!(!same(&fresh, &fresh.clone().again(&path).unwrap()));
    }

    #[tokio::test]
    async fn a_token_has_a_role_and_alone_it_is_that_of_an_administrator() {
        let text = format!(
            "# for people\n{LONG}\n{LONG}-r role=read name=prometheus\n{LONG}-o targets=iqn.a,iqn.b role=operate\n"
        );
        let (_place, file) = open(&text);
        let file = file.unwrap();
        let grant = |name: &str, role, targets| {
            let is_named = !name.starts_with("token of");
            Grant { name: name.into(), is_named, role, targets }
        };
        let both = Some(vec!["iqn.a".into(), "iqn.b".into()]);
        for (end, expected) in [
            ("", grant("token of line 2", Role::Admin, None)),
            ("-r", grant("prometheus", Role::Read, None)),
            ("-o", grant("token of line 4", Role::Operate, both)),
        ] {
            assert_eq!(file.find(&digest(&format!("{LONG}{end}"))).await.unwrap(), Some(expected));
        }
    }

    #[tokio::test]
    async fn a_line_that_gets_a_mistake_grants_nothing_and_is_named() {
        let (place, file) = open(&format!("{LONG} role=read"));
        fs::write(place.path().join("tokens"), format!("{LONG} rol=read\nshort\n{LONG}-2")).unwrap();
        let file = file.unwrap();
        for (token, holds) in [(LONG, false), ("short", false), (&format!("{LONG}-2"), true)] {
            assert_eq!(file.find(&digest(token)).await.unwrap().is_some(), holds, "{token}");
        }
        let mistakes = file.0.known.lock().await.mistakes.concat();
        assert!(mistakes.contains("line 1: write TOKEN") && mistakes.contains("line 2: the token is"), "{mistakes}");
        assert!(!mistakes.contains(LONG), "{mistakes}");
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
            (&format!("{LONG} role=read role=admin"), "line 1: role is there twice"),
            (&format!("{LONG} targets=iqn.a targets=iqn.b"), "line 1: targets is there twice"),
            (
                &format!("{LONG} targets=iqn.a,iqn.X:Q"),
                "line 1: targets=iqn.X:Q: names of targets have no capitals; write iqn.x:q",
            ),
            (&format!("{LONG} targets=foo"), "line 1: targets=foo: that is no name of a target"),
            (&format!("{LONG} targets=iqn.a,"), "line 1: targets=: that is no name of a target"),
            (&"x".repeat(70_000), "too long"),
        ] {
            let error = open(content).1.unwrap_err().to_string();
            assert!(error.contains(expected) && !error.contains(LONG), "{error}");
        }
    }
}
