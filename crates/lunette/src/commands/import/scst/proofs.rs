//! The proofs that a target of SCST, or discovery, asks for.

use super::super::draft::{User, Users};
use super::super::report::{Imported, may_ask_for_proof, unknown_proof};
use super::super::tree::{self, Statement};

/// The side whose proof a setting is about.
#[derive(Clone, Copy)]
pub(super) enum Proof {
    OfInitiators,
    OfTarget,
    Unknown,
}

impl Proof {
    /// iscsi-scstd takes a number behind both keys, because one alone would be there once.
    pub(super) fn of(key: &str) -> Option<Self> {
        let key = key.to_ascii_lowercase();
        match key.trim_end_matches(|c: char| c.is_ascii_digit()) {
            "incominguser" => Some(Self::OfInitiators),
            "outgoinguser" => Some(Self::OfTarget),
            other => may_ask_for_proof(other).then_some(Self::Unknown),
        }
    }
}

/// The proofs that a target, or discovery, asks for.
#[derive(Default)]
pub(super) struct Proofs {
    pub(super) users: Users,
    /// The name of a user without a secret.
    pub(super) without_secret: Option<String>,
    pub(super) has_unknown: bool,
}

impl Proofs {
    /// Collects the proofs of a driver or a target, whose secrets belong to `owner`.
    pub(super) fn of(owner: &str, statement: &Statement, imported: &mut Imported) -> Self {
        let mut proofs = Self::default();
        for setting in &statement.body {
            let Some(proof) = Proof::of(setting.key()) else { continue };
            if let Some(what) = proofs.take(proof, owner, setting, imported) {
                imported.note(tree::place(&[owner], setting), what);
            }
        }
        if proofs.users.chap.is_empty() && proofs.users.mutual_chap.take().is_some() {
            let what = "OutgoingUser: no user of initiators is there, so the target does not prove itself";
            imported.note(tree::place(&[owner], statement), what);
        }
        proofs
    }

    /// Takes a setting. Says what cannot be taken.
    fn take(&mut self, proof: Proof, owner: &str, setting: &Statement, imported: &mut Imported) -> Option<String> {
        let key = setting.key();
        match (proof, user(owner, setting, imported)) {
            (Proof::Unknown, _) => {
                self.has_unknown = true;
                Some(unknown_proof(key))
            }
            (Proof::OfInitiators, Ok(user)) => {
                self.users.chap.push(user);
                None
            }
            (Proof::OfInitiators, Err(name)) => {
                self.without_secret = Some(name);
                Some(format!("{key}: a user without a secret; no initiator is let in for it"))
            }
            (Proof::OfTarget, Ok(user)) => {
                let before = self.users.mutual_chap.replace(user)?;
                Some(format!("{key}: the target proves itself as this user, and not as {}", before.user))
            }
            (Proof::OfTarget, Err(_)) => {
                Some(format!("{key}: a user without a secret; the target does not prove itself as this one"))
            }
        }
    }
}

/// A user, written as `"USER SECRET"`, or the name of one without a secret.
fn user(owner: &str, statement: &Statement, imported: &mut Imported) -> Result<User, String> {
    let words = statement.words[1..].join(" ");
    match words.trim().split_once(char::is_whitespace) {
        Some((user, secret)) => Ok(imported.user(owner, user, secret.trim_start())),
        None => Err(words.trim().into()),
    }
}
