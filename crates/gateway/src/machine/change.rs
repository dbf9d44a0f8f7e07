//! The changes that a gateway makes to the common value, one at a time. The order of the functions is their precedence.

use std::sync::Arc;

use super::{Access, Image, Machine, RequestId};
use crate::limits::MAX_MEMBERS;
use crate::{Member, Owner, Value};

impl Value {
    /// How commands may use the disk through the gateway of a group, as far as the value says.
    pub fn access(&self, group: u16) -> Access {
        let owner = self.owner.as_ref().filter(|owner| owner.is_active).map(|owner| owner.member.group);
        match (owner, self.wanted) {
            (Some(owner), None) if owner == group => Access::Active,
            (Some(owner), Some(wanted)) if owner == group && wanted == group => Access::Active,
            (Some(owner), Some(_)) if owner == group => Access::Transitioning,
            (_, Some(wanted)) if wanted == group => Access::Transitioning,
            _ => Access::Standby,
        }
    }

    /// Whether this gateway, by this client, has the image or is about to have it.
    pub(super) fn takes(&self, member: Member, client: &str) -> bool {
        self.owner.as_ref().is_some_and(|owner| owner.member == member && &*owner.client == client)
    }

    /// Whether this gateway, by this client, has the image.
    pub(super) fn is_owned(&self, member: Member, client: &str) -> bool {
        self.takes(member, client) && self.owner.as_ref().is_some_and(|owner| owner.is_active)
    }
}

impl Machine {
    /// The value with the next change of this gateway, and the request that it is for.
    pub(super) fn next_value(&self) -> Option<(Value, Option<RequestId>)> {
        let value = self.value.as_ref()?;
        if self.owner_to_fence().is_some() {
            return None;
        }
        let mut next = Value { version: value.version + 1, ..Value::clone(value) };
        let own_changes =
            [Self::remove_gone, Self::leave, Self::join, Self::give_up, Self::take_image, Self::activate, Self::want];
        if own_changes.iter().any(|change| change(self, &mut next)) {
            return Some((next, None));
        }
        if !value.has(self.me) {
            return None;
        }
        let request = self.requests.change(&mut next)?;
        Some((next, Some(request)))
    }

    /// Removes members that do not acknowledge. What they had, others may have: an owner among them is fenced by now.
    fn remove_gone(&self, next: &mut Value) -> bool {
        let is_orphaned = next.owner.as_ref().is_some_and(|owner| !next.has(owner.member));
        if self.gone.is_empty() && !is_orphaned {
            return false;
        }
        next.members
            .retain(|group, incarnation| !self.gone.contains(&Member { group: *group, incarnation: *incarnation }));
        if next.owner.as_ref().is_some_and(|owner| !next.has(owner.member)) {
            next.owner = None;
        }
        if next.wanted.is_some_and(|wanted| !next.members.contains_key(&wanted)) {
            next.wanted = None;
        }
        self.want(next);
        true
    }

    fn leave(&self, next: &mut Value) -> bool {
        if !self.requests.is_leaving() || self.image != Image::Closed || !next.has(self.me) {
            return false;
        }
        self.drop_image(next);
        next.members.remove(&self.me.group);
        true
    }

    /// Becomes a member. The first one finds what survives the time without any.
    fn join(&self, next: &mut Value) -> bool {
        let is_taken = next.members.contains_key(&self.me.group);
        if is_taken || self.requests.is_leaving() || next.members.len() >= MAX_MEMBERS || self.image != Image::Closed {
            return false;
        }
        if next.members.is_empty() {
            next.entries.retain(|_, entry| entry.survives);
        }
        next.members.insert(self.me.group, self.me.incarnation);
        self.want(next);
        true
    }

    /// Ends the ownership of this gateway when the image is closed.
    fn give_up(&self, next: &mut Value) -> bool {
        let has_it = next.owner.as_ref().is_some_and(|owner| owner.member == self.me);
        let is_wanted = next.owner.is_none() && next.wanted == Some(self.me.group) && next.has(self.me);
        if self.image != Image::Closed || !has_it && (!is_wanted || !self.has_failed) {
            return false;
        }
        self.drop_image(next);
        true
    }

    fn drop_image(&self, next: &mut Value) {
        next.owner = next.owner.take().filter(|owner| owner.member != self.me);
        next.wanted = next.wanted.filter(|wanted| *wanted != self.me.group);
    }

    /// Says by which client this gateway will write, before it takes the lock: whoever removes it knows what to fence.
    fn take_image(&self, next: &mut Value) -> bool {
        let Image::Open(client) = &self.image else { return false };
        let is_free = next.has(self.me) && next.owner.is_none() && next.wanted == Some(self.me.group);
        if !is_free || self.has_failed || self.requests.is_leaving() {
            return false;
        }
        next.owner = Some(Owner { member: self.me, client: Arc::clone(client), is_active: false });
        true
    }

    fn activate(&self, next: &mut Value) -> bool {
        let Image::Locked(client) = &self.image else { return false };
        let is_wanted = next.wanted.is_none_or(|wanted| wanted == self.me.group);
        if !is_wanted || !next.takes(self.me, client) || next.is_owned(self.me, client) || self.has_failed {
            return false;
        }
        if let Some(owner) = &mut next.owner {
            owner.is_active = true;
        }
        next.wanted = None;
        true
    }

    /// Applies for an image that no gateway has.
    fn want(&self, next: &mut Value) -> bool {
        let is_free = next.owner.is_none() && next.wanted.is_none() && next.has(self.me);
        if !is_free || self.requests.is_leaving() || self.has_failed || self.now < self.image_lane.not_before {
            return false;
        }
        next.wanted = Some(self.me.group);
        true
    }
}
