//! The facts on which the leading login and the target have agreed.

use lunette_pdu::Tsih;

use super::error::{SessionError, broken};
use super::login::Outcome;
use crate::ProvenSecrets;
use crate::keys::Parameters;

pub(super) struct Agreed {
    tsih: Tsih,
    alias: Option<String>,
    portal_group: Option<u16>,
    secrets: ProvenSecrets,
    parameters: Parameters,
}

impl Default for Agreed {
    fn default() -> Self {
        Self {
            tsih: Tsih::NEW,
            alias: None,
            portal_group: None,
            secrets: ProvenSecrets::default(),
            parameters: Parameters::default(),
        }
    }
}

impl Agreed {
    /// Takes the outcome of a login, the leading one or that of a connection that joins. Returns the parameters of the
    /// connection.
    pub(super) fn logged_in(&mut self, outcome: Outcome) -> Result<Parameters, SessionError> {
        let Outcome { tsih, parameters, alias, portal_group, secrets } = outcome;
        if !self.is_begun() {
            *self = Self { tsih, alias, portal_group, secrets, parameters: parameters.clone() };
            return Ok(parameters);
        }
        if portal_group.is_some() && portal_group != self.portal_group {
            return Err(broken("13.9", "a connection of the session leads to another portal group"));
        }
        Ok(parameters.within(&self.parameters))
    }

    /// Whether the leading login has ended.
    pub(super) fn is_begun(&self) -> bool {
        self.tsih != Tsih::NEW
    }

    /// The target's part of the session's name; [`Tsih::NEW`] before the leading login has ended.
    pub(super) fn tsih(&self) -> Tsih {
        self.tsih
    }

    pub(super) fn alias(&self) -> Option<&str> {
        self.alias.as_deref()
    }

    pub(super) fn portal_group(&self) -> Option<u16> {
        self.portal_group
    }

    /// The secrets that the login has proven.
    pub(super) fn secrets(&self) -> &ProvenSecrets {
        &self.secrets
    }

    /// The parameters that the leading connection negotiated.
    #[inline]
    pub(super) fn parameters(&self) -> &Parameters {
        &self.parameters
    }
}
