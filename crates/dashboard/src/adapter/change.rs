//! Changes of the configuration that all gateways share.
//!
//! The value in the cluster says that a change is under way, whose, and what was before. So a gateway that ends in the
//! midst of its change leaves one that the next gateway takes back. Only the gateway that has written a value goes on
//! from it, because each step is one compare and swap.

use std::collections::BTreeSet;
use std::sync::PoisonError;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use serde_json::json;

use super::{Adapter, Answer, check_there};
use crate::document::Document;
use crate::follow::Question;
use crate::limits::{
    BACK_LIMIT, CHANGE_PAUSE, CHANGE_WAIT, FOLLOW_LIMIT, MAX_ATTEMPTS, MAX_DOCUMENT_BYTES, STATE_LIMIT,
};
use crate::refusal::Refusal;
use crate::stored::{Pending, Stored};

/// The end of an attempt to take a change of others back.
enum Settled {
    Back,
    /// A gateway is at work on it.
    UnderWay,
}

impl Adapter {
    /// Changes the configuration, and has all its gateways follow. When one of them does not, all go back.
    pub(crate) fn change(&self, edit: impl Fn(&mut Document) -> Result<&'static str, Refusal>) -> Answer {
        let _changing = self.changing.lock().unwrap_or_else(PoisonError::into_inner);
        let _at_work = AtWork::new(&self.me.is_changing);
        self.try_change(edit)
    }

    /// Takes a change back whose gateway has ended.
    pub(super) fn settle_leftover(&self) -> Result<(), Refusal> {
        let _changing = self.changing.lock().unwrap_or_else(PoisonError::into_inner);
        let (version, stored) = self.me.read()?;
        if stored.pending.is_some() {
            self.settle(version, &stored)?;
        }
        Ok(())
    }

    fn try_change(&self, edit: impl Fn(&mut Document) -> Result<&'static str, Refusal>) -> Answer {
        let (begun, mut attempts) = (Instant::now(), 0);
        while attempts < MAX_ATTEMPTS && begun.elapsed() < CHANGE_WAIT {
            let (version, stored) = self.me.read()?;
            if stored.pending.is_some() {
                match self.settle(version, &stored)? {
                    Settled::Back => {}
                    Settled::UnderWay => thread::sleep(CHANGE_PAUSE),
                }
                continue;
            }
            attempts += 1;
            let before = stored.document;
            let mut document = before.clone();
            let done = json!({ "message": edit(&mut document)? });
            if document == before {
                return Ok(done);
            }
            let gateways = gateways_of(&before, &document);
            check_there(&gateways, &self.ask(&Question::State, STATE_LIMIT)?)?;
            if !self.replace(version, &Stored::pending(document.clone(), self.me.instance, before.clone()))? {
                // Another gateway was first.
                continue;
            }
            let followed = self.have_followed(&gateways, version + 1, FOLLOW_LIMIT);
            let settled = followed.and_then(|()| self.settled(version + 1, document));
            if let Err(refusal) = settled {
                self.go_back(version + 1, before, &gateways);
                return Err(refusal);
            }
            return Ok(done);
        }
        Err(Refusal::unavailable("other gateways change the configuration all the time; try again"))
    }

    /// Says that a change has been made everywhere.
    fn settled(&self, version: u64, document: Document) -> Result<(), Refusal> {
        if self.replace(version, &Stored::settled(document))? {
            return Ok(());
        }
        Err(Refusal::unavailable("another gateway has taken the change back, because this one did not answer"))
    }

    /// Takes back a change whose gateway is not at work any more.
    fn settle(&self, version: u64, stored: &Stored) -> Result<Settled, Refusal> {
        let Some(Pending { by, before }) = &stored.pending else { return Ok(Settled::Back) };
        let replies = self.ask(&Question::State, STATE_LIMIT)?;
        let is_at_work = replies.values().any(|reply| reply.instance == *by && reply.is_changing);
        if is_at_work && *by != self.me.instance {
            return Ok(Settled::UnderWay);
        }
        tracing::warn!("dashboard: a change whose gateway has ended is taken back");
        self.go_back(version, before.clone(), &gateways_of(before, &stored.document));
        Ok(Settled::Back)
    }

    /// Goes back to a configuration. Gateways that do not follow at once try again by themselves.
    fn go_back(&self, version: u64, before: Document, gateways: &BTreeSet<String>) {
        let back = self.replace(version, &Stored::settled(before)).and_then(|is_replaced| {
            // What another gateway has written is not ours to go back from.
            if is_replaced { self.have_followed(gateways, version + 1, BACK_LIMIT) } else { Ok(()) }
        });
        if let Err(Refusal { message, .. }) = back {
            tracing::error!("dashboard: a change that has failed is not undone everywhere yet: {message}");
        }
    }

    /// Replaces the value of this version. Whether it still had that version.
    fn replace(&self, version: u64, stored: &Stored) -> Result<bool, Refusal> {
        if stored.document.len_bytes()? > MAX_DOCUMENT_BYTES {
            return Err(Refusal::bad(format!("the configuration would have more than {MAX_DOCUMENT_BYTES} bytes")));
        }
        self.me.cluster()?.replace(version, &stored.encode()?).or_else(|error| match self.me.read() {
            // Without an answer, it may have been replaced all the same.
            Ok((found, now)) if found == version + 1 && now == *stored => Ok(true),
            _ => Err(Refusal::unavailable(format!(
                "whether the configuration in the cluster was replaced is not known: {error}; look at it, and try again"
            ))),
        })
    }

    /// Has gateways follow, and checks that each of them has.
    fn have_followed(&self, gateways: &BTreeSet<String>, version: u64, limit: Duration) -> Result<(), Refusal> {
        let mut replies = self.ask(&Question::Follow { version }, limit)?;
        check_there(gateways, &replies)?;
        let refused = gateways.iter().find_map(|name| Some((name, replies.get_mut(name)?.refusal.take()?)));
        match refused {
            Some((name, Refusal { status, message })) => {
                Err(Refusal { status, message: format!("failed on {name}. {message}") })
            }
            None => Ok(()),
        }
    }
}

/// The sign for other gateways that a change is at work here.
struct AtWork<'a>(&'a AtomicBool);

impl<'a> AtWork<'a> {
    fn new(sign: &'a AtomicBool) -> Self {
        sign.store(true, Ordering::SeqCst);
        Self(sign)
    }
}

impl Drop for AtWork<'_> {
    fn drop(&mut self) {
        self.0.store(false, Ordering::SeqCst);
    }
}

/// The gateways that a change from one configuration to another concerns.
fn gateways_of(before: &Document, after: &Document) -> BTreeSet<String> {
    before.gateways.keys().chain(after.gateways.keys()).cloned().collect()
}
