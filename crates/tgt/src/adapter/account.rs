//! Users of CHAP.

use lunette_api::{Document, Kind};
use serde_json::Value;

use super::Adapter;
use crate::document::{self, Direction};
use crate::params;
use crate::wire::{Fault, Request};

/// The parameter that names a user.
const USER: &str = "user";

impl Adapter {
    pub(super) fn new_account(&mut self, text: &str) -> Result<(), Fault> {
        let (user, password) = params::account(text)?;
        self.book.add_account(user, password)
    }

    /// Removes a user, from all targets that have it by this adapter.
    pub(super) fn delete_account(&mut self, text: &str) -> Result<(), Fault> {
        let user = user(text)?;
        let file = self.book.secret_file(user).ok_or(Fault::NoAccount)?.display().to_string();
        let catalog = self.server.catalog();
        let has_it = |target: &Document| document::names(&Value::Object(target.clone()), &file);
        if catalog.of(Kind::Target).any(|(_, target, _)| has_it(target)) {
            let file = file.clone();
            self.change(user, false, move |catalog| {
                let mut objects = catalog.objects.clone();
                objects.of_mut(Kind::Target).for_each(|target| document::remove_users_of(target, &file));
                Ok(objects)
            })?;
        }
        if self.server.catalog().of(Kind::Target).any(|(_, target, _)| has_it(target)) {
            tracing::warn!(user, "tgt: refused: a host, or a target of the main file, has this account");
            return Err(Fault::Invalid);
        }
        self.book.forget_account(user)
    }

    pub(super) fn bind_account(&mut self, request: &Request, text: &str) -> Result<(), Fault> {
        let (target, direction, user) = self.bound(request, text)?;
        let file = self.book.secret_file(&user).ok_or(Fault::NoAccount)?.display().to_string();
        self.change_target(&target, false, move |target| document::add_user(target, &user, direction, &file))
    }

    pub(super) fn unbind_account(&mut self, request: &Request, text: &str) -> Result<(), Fault> {
        let (target, direction, user) = self.bound(request, text)?;
        self.change_target(&target, false, move |target| document::remove_user(target, &user, direction))
    }

    pub(super) fn show_accounts(&self) -> String {
        let lines: String =
            self.book.accounts().iter().map(|user| format!("    {user}\n")).collect::<Vec<_>>().concat();
        if lines.is_empty() { lines } else { format!("Account list:\n{lines}") }
    }

    /// The target, the direction and the user of a request.
    fn bound(&mut self, request: &Request, text: &str) -> Result<(String, Direction, String), Fault> {
        let user = user(text)?.to_owned();
        if request.tid.is_none() {
            // Users of discovery stand in the main file, which the API does not write.
            return Err(Fault::Unsupported);
        }
        let (target, _) = self.target(request)?;
        let direction = if request.is_outgoing { Direction::Outgoing } else { Direction::Incoming };
        Ok((target, direction, user))
    }
}

fn user(text: &str) -> Result<&str, Fault> {
    let (name, user) = params::one(text)?;
    if name == USER { Ok(user) } else { Err(Fault::Invalid) }
}
