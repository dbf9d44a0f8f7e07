//! The content of certificates and lists: names, rights and times.

use data_encoding::HEXLOWER;
use rcgen::{
    BasicConstraints, CertificateParams, DistinguishedName, DnType, ExtendedKeyUsagePurpose, IsCa, KeyPair,
    KeyUsagePurpose, RevokedCertParams, SanType,
};
use rustls::pki_types::ServerName;
use time::OffsetDateTime;

use super::record::{Identities, Issued, Serial};
use super::{AUTHORITY_SECONDS, AuthorityError, CLOCK_SKEW_SECONDS};
use crate::folder::Side;
use crate::limits::{MAX_NAMES, MAX_URI_BYTES};

/// The beginnings of iSCSI names (RFC 7143, section 4.2.7.3).
const ISCSI_PREFIXES: [&str; 3] = ["iqn.", "eui.", "naa."];

/// The authority's own certificate. Its subject depends on the key: with one name for all, a certificate of another
/// authority would look forged instead of unknown.
pub(super) fn authority_parameters(name: &str, key: &KeyPair, now: i64) -> Result<CertificateParams, AuthorityError> {
    let digest = aws_lc_rs::digest::digest(&aws_lc_rs::digest::SHA256, key.public_key_raw());
    let digits = HEXLOWER.encode(&digest.as_ref()[..8]);
    let mut parameters = CertificateParams::default();
    parameters.distinguished_name = common_name(&format!("{name} {digits}"));
    parameters.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
    parameters.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
    (parameters.not_before, parameters.not_after) = (date(now - CLOCK_SKEW_SECONDS)?, date(now + AUTHORITY_SECONDS)?);
    Ok(parameters)
}

/// The certificate of a server or a client.
pub(super) fn owner_parameters(
    name: &str,
    identities: &Identities,
    serial: &Serial,
    now: i64,
    until: i64,
) -> Result<CertificateParams, AuthorityError> {
    let mut parameters = CertificateParams::default();
    parameters.distinguished_name = common_name(name);
    parameters.serial_number = Some(serial.number());
    (parameters.not_before, parameters.not_after) = (date(now - CLOCK_SKEW_SECONDS)?, date(until)?);
    parameters.key_usages = vec![KeyUsagePurpose::DigitalSignature];
    parameters.use_authority_key_identifier_extension = true;
    parameters.extended_key_usages = vec![match identities.side() {
        Side::Server => ExtendedKeyUsagePurpose::ServerAuth,
        Side::Client => ExtendedKeyUsagePurpose::ClientAuth,
    }];
    parameters.subject_alt_names = alternative_names(identities)?;
    Ok(parameters)
}

/// The entry of a certificate in the list; `None` when it is not revoked.
pub(super) fn revoked_parameters(issued: &Issued) -> Option<Result<RevokedCertParams, AuthorityError>> {
    let revocation_time = date(issued.revoked?);
    Some(revocation_time.map(|revocation_time| RevokedCertParams {
        serial_number: issued.serial.number(),
        revocation_time,
        reason_code: None,
        invalidity_date: None,
    }))
}

pub(super) fn date(seconds: i64) -> Result<OffsetDateTime, AuthorityError> {
    OffsetDateTime::from_unix_timestamp(seconds)
        .map_err(|_| AuthorityError::Refused(format!("the date {seconds} is out of the range of certificates")))
}

fn alternative_names(identities: &Identities) -> Result<Vec<SanType>, AuthorityError> {
    let Identities { hosts, iscsi_names, dns_names } = identities;
    if [hosts, iscsi_names, dns_names].iter().any(|names| names.len() > MAX_NAMES) {
        let message = format!("a certificate has at most {MAX_NAMES} names of each kind; issue several");
        return Err(AuthorityError::Refused(message));
    }
    let hosts = hosts.iter().map(|host| {
        let refused = || AuthorityError::Refused(format!("{host:?} is neither an address nor the name of a host"));
        match ServerName::try_from(host.as_str()).map_err(|_| refused())? {
            ServerName::IpAddress(address) => Ok(SanType::IpAddress(address.into())),
            _ => Ok(SanType::DnsName(host.as_str().try_into().map_err(|_| refused())?)),
        }
    });
    let iscsi_names = iscsi_names.iter().map(|name| {
        let uri = name.as_str().try_into().ok().filter(|_| is_iscsi_name(name)).map(SanType::URI);
        uri.ok_or_else(|| {
            let rule = "it begins with iqn., eui. or naa., has up to 223 bytes and no space";
            AuthorityError::Refused(format!("{name:?} is no iSCSI name: {rule}"))
        })
    });
    let dns_names = dns_names.iter().map(|name| {
        let is_name = matches!(ServerName::try_from(name.as_str()), Ok(ServerName::DnsName(_)));
        let dns = name.as_str().try_into().ok().filter(|_| is_name).map(SanType::DnsName);
        dns.ok_or_else(|| AuthorityError::Refused(format!("{name:?} is not the name of a host")))
    });
    hosts.chain(iscsi_names).chain(dns_names).collect()
}

/// Whether a text has the shape of an iSCSI name. The protocol's own crate knows all rules; a certificate may carry
/// what it refuses later.
fn is_iscsi_name(name: &str) -> bool {
    let has_prefix = ISCSI_PREFIXES.iter().any(|prefix| name.len() > prefix.len() && name.starts_with(prefix));
    has_prefix && name.len() <= MAX_URI_BYTES && name.bytes().all(|byte| byte.is_ascii_graphic())
}

fn common_name(name: &str) -> DistinguishedName {
    let mut distinguished = DistinguishedName::new();
    distinguished.push(DnType::CommonName, name);
    distinguished
}
