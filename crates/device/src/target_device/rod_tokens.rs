//! The ROD tokens of a target device (SPC-5 5.18.6).
//!
//! A token is a change vulnerable point in time copy: it stands for its blocks as they were at its creation, and is
//! revoked when one of them is written. Its creation copies and keeps nothing, and its use yields either the bytes of
//! that time or TOKEN REVOKED. The other ROD types are worse: access upon reference returns bytes that were never asked
//! for when a block changes between the two commands, and a persistent copy needs a snapshot, which stores do not have.
//!
//! A nexus that uses a token must also see the logical unit that the token was created from, and be allowed to read it:
//! a token grants no more than READ does. The secret keeps initiators that see the unit, but were not given the token,
//! from guessing it.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use lunette_handover::{ByteBuf, Token};
use lunette_scsi::copy::tokens::{RodToken, RodType, SECRET_LEN, TOKEN_LEN};
use lunette_scsi::{AdditionalSense, Lun, SenseData};

use crate::environment::millis;
use crate::extent::Extent;
use crate::limits::MAX_ROD_TOKENS;
use crate::unit::LogicalUnit;
use crate::unit::change_watch::ChangeWatch;

/// The ROD tokens that have not expired.
#[derive(Default)]
pub(crate) struct RodTokens(Mutex<State>);

#[derive(Default)]
struct State {
    last_id: u64,
    tokens: BTreeMap<u64, IssuedToken>,
}

struct IssuedToken {
    bytes: Box<[u8; TOKEN_LEN]>,
    source: Weak<LogicalUnit>,
    watch: Arc<ChangeWatch>,
}

/// The blocks that a token stands for.
#[derive(Debug)]
pub(crate) struct TokenSource {
    pub(crate) id: u64,
    pub(crate) unit: Arc<LogicalUnit>,
    pub(crate) watch: Arc<ChangeWatch>,
}

impl IssuedToken {
    /// Whether the token has expired, by the clock of its logical unit.
    fn is_expired(&self) -> bool {
        self.source.upgrade().is_none_or(|unit| self.watch.is_expired(now(&unit)))
    }
}

fn now(unit: &LogicalUnit) -> Duration {
    (unit.config().clock)()
}

impl RodTokens {
    /// Creates a token for the extents of `watch` on `unit`. At the limit, revoked tokens are removed first.
    ///
    /// # Errors
    ///
    /// INSUFFICIENT RESOURCES TO CREATE ROD TOKEN at the limit.
    pub(crate) fn create(
        &self,
        unit: &Arc<LogicalUnit>,
        watch: Arc<ChangeWatch>,
        secret: [u8; SECRET_LEN],
    ) -> Result<Box<[u8; TOKEN_LEN]>, SenseData> {
        let mut state = self.lock();
        state.tokens.retain(|_, token| !token.is_expired());
        if state.tokens.len() >= MAX_ROD_TOKENS {
            state.tokens.retain(|_, token| !token.watch.has_changed());
        }
        if state.tokens.len() >= MAX_ROD_TOKENS {
            let code = AdditionalSense::INSUFFICIENT_RESOURCES_TO_CREATE_ROD_TOKEN;
            return Err(SenseData::illegal_request(code));
        }
        // A successor begins with a number of its predecessor, so this one may be any.
        state.last_id = state.last_id.wrapping_add(1);
        let id = state.last_id;
        let token = RodToken {
            rod_type: RodType::POINT_IN_TIME_CHANGE_VULNERABLE,
            id,
            unit: unit.naa_designator(),
            len_bytes: watch.extents().iter().map(|extent| extent.len).sum(),
            block_len: unit.block_size(),
            physical_exponent: unit.physical_exponent(),
            secret,
        };
        let bytes = Box::new(token.emit());
        watch.use_at(now(unit));
        let token = IssuedToken { bytes: bytes.clone(), source: Arc::downgrade(unit), watch };
        state.tokens.insert(id, token);
        Ok(bytes)
    }

    /// The blocks that the token with these bytes stands for. Restarts its inactivity timeout.
    ///
    /// # Errors
    ///
    /// TOKEN UNKNOWN, or TOKEN EXPIRED.
    pub(crate) fn find(&self, bytes: &[u8; TOKEN_LEN]) -> Result<TokenSource, SenseData> {
        let state = self.lock();
        let unknown = SenseData::illegal_request(AdditionalSense::TOKEN_UNKNOWN);
        let (id, token) = state.tokens.iter().find(|(_, token)| same(&token.bytes, bytes)).ok_or(unknown)?;
        let unit = token.source.upgrade().ok_or(unknown)?;
        if token.is_expired() {
            return Err(SenseData::illegal_request(AdditionalSense::TOKEN_EXPIRED));
        }
        token.watch.use_at(now(&unit));
        Ok(TokenSource { id: *id, unit, watch: Arc::clone(&token.watch) })
    }

    /// Deletes a token.
    pub(crate) fn delete(&self, id: u64) {
        self.lock().tokens.remove(&id);
    }

    /// The valid tokens that were created from `unit`.
    pub(crate) fn of(&self, unit: &Arc<LogicalUnit>) -> Vec<[u8; TOKEN_LEN]> {
        let state = self.lock();
        let made_of_it = |token: &&IssuedToken| std::ptr::eq(token.source.as_ptr(), Arc::as_ptr(unit));
        let good = |token: &&IssuedToken| !token.is_expired() && !token.watch.has_changed();
        state.tokens.values().filter(made_of_it).filter(good).map(|token| *token.bytes).collect()
    }

    /// The number of the last token, and the tokens that have not expired, for a successor. Those of shared units stay
    /// behind: other servers may write meanwhile.
    pub(super) fn handover(&self) -> (u64, Vec<Token>) {
        let state = self.lock();
        let left = |(id, token): (&u64, &IssuedToken)| {
            let unit =
                token.source.upgrade().filter(|unit| !unit.config().shared && !token.watch.is_expired(now(unit)))?;
            let (timeout, last_used) = token.watch.times();
            Some(Token {
                id: *id,
                bytes: ByteBuf::from(token.bytes.to_vec()),
                serial: unit.config().serial.clone(),
                extents: token.watch.extents().iter().map(|extent| (extent.offset, extent.len)).collect(),
                changed: token.watch.has_changed(),
                timeout_ms: millis(timeout),
                last_used_ms: millis(last_used),
            })
        };
        (state.last_id, state.tokens.iter().filter_map(left).collect())
    }

    /// Takes over the tokens of a predecessor for blocks of `units`. Others are left out: their users get TOKEN
    /// UNKNOWN.
    pub(super) fn inherit(&self, last_id: u64, tokens: &[Token], units: &BTreeMap<Lun, Arc<LogicalUnit>>) {
        let mut state = self.lock();
        state.last_id = state.last_id.max(last_id);
        for token in tokens.iter().take(MAX_ROD_TOKENS) {
            let is_source = |unit: &&Arc<LogicalUnit>| unit.config().serial == token.serial && !unit.config().shared;
            let Some(unit) = units.values().find(is_source) else { continue };
            let bytes: Result<[u8; TOKEN_LEN], _> = token.bytes.as_slice().try_into();
            let (Ok(bytes), Some(extents)) = (bytes, extents_on(unit, &token.extents)) else { continue };
            let [timeout, last_used] = [token.timeout_ms, token.last_used_ms].map(Duration::from_millis);
            let watch = unit.change_watches().resume(extents, timeout, last_used, token.changed);
            let issued = IssuedToken { bytes: Box::new(bytes), source: Arc::downgrade(unit), watch };
            state.tokens.insert(token.id, issued);
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The extents of a token, if all of them lie within the unit.
fn extents_on(unit: &LogicalUnit, extents: &[(u64, u64)]) -> Option<Vec<Extent>> {
    let len_bytes = unit.blocks() * u64::from(unit.block_size());
    let extent = |(offset, len): &(u64, u64)| {
        offset.checked_add(*len).filter(|end| *end <= len_bytes)?;
        Some(Extent { offset: *offset, len: *len })
    };
    extents.iter().map(extent).collect()
}

/// Compares all bytes, so that the time taken reveals nothing about a guess.
fn same(a: &[u8; TOKEN_LEN], b: &[u8; TOKEN_LEN]) -> bool {
    a.iter().zip(b).fold(0, |different, (a, b)| different | (a ^ b)) == 0
}
