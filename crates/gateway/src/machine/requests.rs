//! The requests of a gateway, from the question to the answer.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;

use super::{Action, Answer, Machine, Request, RequestId};
use crate::limits::{MAX_ENTRIES, MAX_NAME_BYTES, MAX_REQUESTS, MAX_VALUE_BYTES};
use crate::{Entry, Member, Value};

/// Bytes of a value that entries may not fill: the rest of it, with all its names.
const RESERVED_BYTES: usize = (MAX_ENTRIES + 1) * (MAX_NAME_BYTES + 7) + 256;

#[derive(Debug, Default)]
pub(super) struct Requests {
    reads_begun: u64,
    confirms: Vec<Confirm>,
    updates: VecDeque<Update>,
    /// The update that is stored, until every member knows it.
    stored: Option<StoredUpdate>,
    moves: Vec<Move>,
    leave: Leave,
}

/// Whether the gateway ends.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
enum Leave {
    #[default]
    No,
    /// For this request.
    Asked(RequestId),
    Answered,
}

#[derive(Debug)]
struct Confirm {
    id: RequestId,
    /// The number of the first read that begins after the request.
    read: u64,
    /// The version that such a read has found.
    version: Option<u64>,
}

#[derive(Debug)]
struct Update {
    id: RequestId,
    base: u64,
    name: Arc<str>,
    entry: Option<Entry>,
}

#[derive(Debug)]
struct StoredUpdate {
    id: RequestId,
    version: u64,
    /// Members that may not know it.
    needs: BTreeSet<Member>,
}

#[derive(Debug)]
struct Move {
    id: RequestId,
    to: u16,
    is_stored: bool,
}

impl Machine {
    pub(super) fn ask(&mut self, id: RequestId, request: Request) {
        if let Err(answer) = self.requests.add(id, request, self.value.as_deref()) {
            self.actions.push_back(Action::Answer(id, answer));
        }
    }
}

impl Requests {
    fn add(&mut self, id: RequestId, request: Request, value: Option<&Value>) -> Result<(), Answer> {
        let is_full = self.confirms.len() + self.updates.len() + self.moves.len() >= MAX_REQUESTS;
        if self.is_leaving() || is_full && request != Request::Leave {
            return Err(Answer::Refused);
        }
        match request {
            Request::Confirm => self.confirms.push(Confirm { id, read: self.reads_begun + 1, version: None }),
            Request::Update { base, name, entry } => {
                let value = value.ok_or(Answer::Changed)?;
                let others = value.entries.iter().filter(|(other, _)| **other != name).map(|(_, entry)| entry);
                let bytes: usize = others.chain(&entry).map(|entry| entry.bytes.len()).sum();
                let is_one_more = entry.is_some() && !value.entries.contains_key(&name);
                if bytes > MAX_VALUE_BYTES - RESERVED_BYTES
                    || name.len() > MAX_NAME_BYTES
                    || is_one_more && value.entries.len() >= MAX_ENTRIES
                {
                    return Err(Answer::TooLong);
                }
                self.updates.push_back(Update { id, base, name, entry });
            }
            Request::Move { to } => self.moves.push(Move { id, to, is_stored: false }),
            Request::Leave => self.leave = Leave::Asked(id),
        }
        Ok(())
    }

    pub(super) fn is_leaving(&self) -> bool {
        self.leave != Leave::No
    }

    /// Whether a request waits for a read.
    pub(super) fn wants_read(&self) -> bool {
        self.confirms.iter().any(|confirm| confirm.version.is_none())
    }

    pub(super) fn read_begins(&mut self) {
        self.reads_begun += 1;
    }

    /// The last read that has begun has found `value`.
    pub(super) fn read_ended(&mut self, value: &Value, me: Member) {
        if value.has(me) {
            for confirm in self.confirms.iter_mut().filter(|confirm| confirm.read <= self.reads_begun) {
                confirm.version.get_or_insert(value.version);
            }
        }
    }

    /// Makes the change of the next request; its number.
    pub(super) fn change(&self, next: &mut Value) -> Option<RequestId> {
        if let Some(Move { id, to, .. }) = self.moves.iter().find(|asked| !asked.is_stored) {
            next.wanted = Some(*to);
            return Some(*id);
        }
        let Update { id, name, entry, .. } = self.updates.front().filter(|_| self.stored.is_none())?;
        match entry {
            Some(entry) => drop(next.entries.insert(Arc::clone(name), entry.clone())),
            None => drop(next.entries.remove(name)),
        }
        Some(*id)
    }

    /// The change of request `id` is stored.
    pub(super) fn stored(&mut self, id: RequestId, value: &Value, me: Member) {
        if let Some(asked) = self.moves.iter_mut().find(|asked| asked.id == id) {
            asked.is_stored = true;
        }
        if self.updates.front().is_some_and(|update| update.id == id) {
            self.updates.pop_front();
            let needs = value.members().filter(|member| *member != me).collect();
            self.stored = Some(StoredUpdate { id, version: value.version, needs });
        }
    }

    /// Nothing is known of the store for request `id`. An update that is done may not be decided a second time, so it
    /// ends.
    pub(super) fn is_unknown(&mut self, id: RequestId, actions: &mut VecDeque<Action>) {
        if self.updates.front().is_some_and(|update| update.id == id) {
            self.updates.pop_front();
            actions.push_back(Action::Answer(id, Answer::Refused));
        }
    }

    /// Members that are gone, or that know it, are not waited for.
    pub(super) fn learn(&mut self, value: &Value, acknowledged: &BTreeMap<Member, u64>) {
        if let Some(StoredUpdate { version, needs, .. }) = &mut self.stored {
            needs.retain(|member| {
                value.has(*member) && acknowledged.get(member).is_none_or(|newest| *newest < *version)
            });
        }
    }

    /// Ends what has come to its end. `published` is the version that the device server knows.
    pub(super) fn answer(&mut self, value: &Value, published: u64, has_left: bool, actions: &mut VecDeque<Action>) {
        let mut end = |id, answer| actions.push_back(Action::Answer(id, answer));
        self.confirms.retain(|confirm| {
            let is_known = confirm.version.is_some_and(|version| version <= published);
            if is_known {
                end(confirm.id, Answer::Done);
            }
            !is_known
        });
        if let Some(update) = self.stored.take_if(|update| update.needs.is_empty() && update.version <= published) {
            end(update.id, Answer::Done);
        }
        self.moves.retain(|asked| {
            let answer = asked.answer(value);
            if let Some(answer) = answer {
                end(asked.id, answer);
            }
            answer.is_none()
        });
        self.updates.retain(|update| {
            let is_possible = update.base == value.version;
            if !is_possible {
                end(update.id, Answer::Changed);
            }
            is_possible
        });
        if has_left && let Leave::Asked(id) = self.leave {
            end(id, Answer::Done);
            self.leave = Leave::Answered;
        }
    }
}

impl Move {
    fn answer(&self, value: &Value) -> Option<Answer> {
        let is_wanted = value.wanted.is_none_or(|wanted| wanted == self.to);
        match value.owner.as_ref() {
            Some(owner) if owner.is_active && owner.member.group == self.to && is_wanted => Some(Answer::Done),
            _ if !value.members.contains_key(&self.to) => Some(Answer::Refused),
            Some(owner) if owner.member.group == self.to => None,
            _ if self.is_stored && value.wanted != Some(self.to) => Some(Answer::Refused),
            _ => None,
        }
    }
}
