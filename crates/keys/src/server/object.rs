//! An object as the server keeps it: its attributes, its secret, and what may happen to it.

use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};
use zeroize::Zeroizing;

use crate::hex;
use crate::kmip::{Attribute, Kind, ManagedObject, Refusal, ResultReason, RevocationCode, State};

/// An object. Its state is what its dates and the clock say.
#[derive(Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Object {
    pub(super) id: String,
    /// The name in the certificate of the client that made it.
    pub(super) owner: String,
    pub(super) users: BTreeSet<String>,
    pub(super) kind: StoredKind,
    pub(super) usage_mask: i32,
    pub(super) names: Vec<(String, u32)>,
    pub(super) groups: Vec<String>,
    pub(super) contact: Option<String>,
    /// Attributes of the clients' own, whose names begin with `x-`.
    pub(super) custom: Vec<(String, String)>,
    pub(super) initial_date: i64,
    pub(super) activation_date: Option<i64>,
    pub(super) deactivation_date: Option<i64>,
    pub(super) compromise_occurrence_date: Option<i64>,
    pub(super) compromise_date: Option<i64>,
    pub(super) destroy_date: Option<i64>,
    pub(super) last_change_date: i64,
    pub(super) revocation: Option<(u32, Option<String>)>,
    material: Option<Material>,
}

/// [`Kind`] for serde.
#[derive(Clone, Copy, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub(super) enum StoredKind {
    SymmetricKey { algorithm: Option<u32>, bits: Option<i32> },
    SecretData(u32),
    OpaqueData(u32),
}

/// Secret bytes that serde writes as hexadecimal digits, into memory that the store overwrites.
#[derive(Clone)]
struct Material(Zeroizing<Vec<u8>>);

impl Serialize for Material {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&Zeroizing::new(hex::encode(&self.0)))
    }
}

impl<'de> Deserialize<'de> for Material {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = Zeroizing::new(String::deserialize(deserializer)?);
        let bytes = hex::decode(&text).ok_or_else(|| serde::de::Error::custom("key material is hexadecimal"))?;
        Ok(Self(Zeroizing::new(bytes)))
    }
}

impl Object {
    /// A new object of `owner`, with the attributes that its request has.
    pub(super) fn new(
        id: String,
        owner: &str,
        object: ManagedObject,
        attributes: Vec<Attribute>,
        now: i64,
    ) -> Result<Self, Refusal> {
        let kind = match object.kind {
            Kind::SymmetricKey { algorithm, bits } => StoredKind::SymmetricKey { algorithm, bits },
            Kind::SecretData(kind) => StoredKind::SecretData(kind),
            Kind::OpaqueData(kind) => StoredKind::OpaqueData(kind),
        };
        let mut new = Self {
            id,
            owner: owner.into(),
            users: BTreeSet::new(),
            kind,
            usage_mask: 0,
            names: Vec::new(),
            groups: Vec::new(),
            contact: None,
            custom: Vec::new(),
            initial_date: now,
            activation_date: None,
            deactivation_date: None,
            compromise_occurrence_date: None,
            compromise_date: None,
            destroy_date: None,
            last_change_date: now,
            revocation: None,
            material: Some(Material(object.material)),
        };
        attributes.into_iter().try_for_each(|attribute| new.set_initial(attribute))?;
        Ok(new)
    }

    pub(super) fn kind(&self) -> Kind {
        match self.kind {
            StoredKind::SymmetricKey { algorithm, bits } => Kind::SymmetricKey { algorithm, bits },
            StoredKind::SecretData(kind) => Kind::SecretData(kind),
            StoredKind::OpaqueData(kind) => Kind::OpaqueData(kind),
        }
    }

    /// The object with its secret, unless it was destroyed.
    pub(super) fn managed(&self) -> Option<ManagedObject> {
        let Material(material) = self.material.clone()?;
        Some(ManagedObject { kind: self.kind(), material })
    }

    /// The state at a time. Opaque objects have none (KMIP 1.4, section 3.22), except that they can be destroyed.
    pub(super) fn state(&self, now: i64) -> Option<State> {
        let passed = |date: Option<i64>| date.is_some_and(|date| date <= now);
        let compromised = self.compromise_date.is_some();
        if self.destroy_date.is_some() {
            return Some(if compromised { State::DestroyedCompromised } else { State::Destroyed });
        }
        if matches!(self.kind, StoredKind::OpaqueData(_)) {
            return None;
        }
        Some(match (compromised, passed(self.deactivation_date), passed(self.activation_date)) {
            (true, ..) => State::Compromised,
            (_, true, true) => State::Deactivated,
            (_, _, true) => State::Active,
            (_, _, false) => State::PreActive,
        })
    }

    pub(super) fn is_destroyed(&self) -> bool {
        self.destroy_date.is_some()
    }

    /// Lets the key be used from now on.
    pub(super) fn activate(&mut self, now: i64) -> Result<(), Refusal> {
        match self.state(now) {
            None => Err(self.has_no_state()),
            Some(State::PreActive) => {
                self.activation_date = Some(now);
                self.last_change_date = now;
                Ok(())
            }
            Some(state) => {
                let message = format!("the object is {state}; only Pre-Active ones are activated");
                Err(Refusal::new(ResultReason::PermissionDenied, message))
            }
        }
    }

    /// Ends the use of the key, or marks it as compromised.
    pub(super) fn revoke(
        &mut self,
        code: RevocationCode,
        message: Option<String>,
        occurred: Option<i64>,
        now: i64,
    ) -> Result<(), Refusal> {
        let state = self.state(now).ok_or_else(|| self.has_no_state())?;
        if matches!(code, RevocationCode::KeyCompromise | RevocationCode::CaCompromise) {
            self.compromise_date.get_or_insert(now);
            self.compromise_occurrence_date = occurred.or(self.compromise_occurrence_date).or(Some(self.initial_date));
        } else if state == State::Active {
            self.deactivation_date = Some(now);
        } else {
            let message =
                format!("the object is {state}; only Active ones are revoked for another reason than a compromise");
            return Err(Refusal::new(ResultReason::IllegalOperation, message));
        }
        self.revocation = Some((code.number(), message));
        self.last_change_date = now;
        Ok(())
    }

    /// Drops the secret. Attributes stay.
    pub(super) fn destroy(&mut self, now: i64) -> Result<(), Refusal> {
        if self.state(now) == Some(State::Active) {
            let message = "the object is Active; revoke it before it is destroyed";
            return Err(Refusal::new(ResultReason::PermissionDenied, message));
        }
        self.material = None;
        self.destroy_date = Some(now);
        self.last_change_date = now;
        Ok(())
    }

    fn has_no_state(&self) -> Refusal {
        let message = format!("an object of type {} has no state", self.kind().object_type());
        Refusal::new(ResultReason::IllegalOperation, message)
    }
}
