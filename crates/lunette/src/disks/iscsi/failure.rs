//! The failure that an error of the initiator means to the user, with advice.

use std::borrow::Cow;
use std::io::ErrorKind;

use lunette_initiator::{Error, Url};
use lunette_pdu::LoginStatus;
use lunette_session::iscsi_initiator::{LoginError, SessionError};

use crate::failure::Failure;

/// The failure that a failed request means to the user.
#[expect(clippy::needless_pass_by_value, reason = "it is given to map_err")]
pub(crate) fn remote_failure(error: Error) -> Failure {
    failure(&error, String::new(), false)
}

/// The failure of a login to the target of a URL. The error knows the portal alone.
#[expect(clippy::needless_pass_by_value, reason = "it is given to map_err")]
pub(super) fn failure_at(url: &Url, error: Error) -> Failure {
    let is_refused = matches!(error.cause(), Error::Session { why: SessionError::Login(_), .. });
    let target = url.target.as_deref().filter(|_| is_refused);
    failure(&error, target.map(|target| format!("{target} at ")).unwrap_or_default(), url.tls.is_some())
}

/// The failure, with words before its text.
fn failure(error: &Error, before: String, speaks_tls: bool) -> Failure {
    let text = before + &format!("{error}{}", advice(error.cause(), speaks_tls));
    match error.cause() {
        Error::Url(_) => Failure::Usage(text),
        Error::Connect { .. }
        | Error::Session { .. }
        | Error::TooManyRedirects { .. }
        | Error::BadRedirect { .. }
        | Error::BadAnswer { .. }
        | Error::OtherDisk { .. }
        | Error::TooFewPortals { .. }
        | Error::NotExplicit
        | Error::NotADisk { .. } => Failure::Disk(text),
        _ => Failure::Transfer(text),
    }
}

/// Advice for the user, where there is any.
fn advice(error: &Error, speaks_tls: bool) -> Cow<'static, str> {
    if let Error::Session { portal, why: SessionError::Login(LoginError::Refused(LoginStatus::NOT_FOUND)) } = error {
        let what = "check its name; a target may also hide from initiators that it does not admit";
        let scheme = if speaks_tls { "iscsis" } else { "iscsi" };
        return format!("; {what}: lunette ls {scheme}://{portal} lists those that this one may use").into();
    }
    Cow::Borrowed(match error {
        Error::Connect { source, .. } if source.kind() == ErrorKind::InvalidData => {
            "; whom the client trusts stands in tls=DIR or tls_pin of the URL"
        }
        Error::Connect { .. } => "; does the target listen there, and does no firewall stand between?",
        Error::NotADisk { .. } => "; lunette ls lists the disks of a target",
        Error::Session { why: SessionError::Disconnected, .. } => {
            "; a portal that speaks TLS is reached by iscsis://, and one that does not by iscsi://"
        }
        Error::Session { why: SessionError::Login(login), .. } => match login {
            LoginError::Refused(LoginStatus::AUTHENTICATION_FAILURE) => {
                "; check the USER@ in the URL, and the secret in LUNETTE_CHAP_PASSWORD or chap_secret_file"
            }
            LoginError::Refused(LoginStatus::AUTHORIZATION_FAILURE) => {
                "; the target admits other initiators: write initiator=NAME in the URL"
            }
            LoginError::TargetAuthentication => {
                "; check target_user, and the secret in LUNETTE_CHAP_TARGET_PASSWORD or chap_target_secret_file"
            }
            LoginError::Incompatible(key) if key == "AuthMethod" => "; write USER@ in the URL, or leave it out",
            _ => "",
        },
        _ => "",
    })
}
