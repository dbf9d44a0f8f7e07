//! The identities in a certificate that a peer has shown.

use std::time::{SystemTime, UNIX_EPOCH};

use x509_parser::asn1_rs::Tag;
use x509_parser::certificate::X509Certificate;
use x509_parser::extensions::GeneralName;
use x509_parser::prelude::FromDer;

use crate::fingerprint::Fingerprint;
use crate::limits::{MAX_COMMON_NAME_BYTES, MAX_DNS_NAME_BYTES, MAX_NAMES, MAX_URI_BYTES};

/// The identities in an end-entity certificate. Whoever uses them has verified the certificate before.
///
/// Names that are longer than their limit, or have control characters, are left out; so are those beyond the first
/// [`MAX_NAMES`] of a kind.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Peer {
    /// The common name of the subject. `None` when there is none, or more than one.
    pub common_name: Option<String>,
    /// The DNS names among the subject's alternative names.
    pub dns_names: Vec<String>,
    /// The URIs among the subject's alternative names. An iSCSI name stands there as it is.
    pub uris: Vec<String>,
    /// The digest of the certificate.
    pub fingerprint: Fingerprint,
    /// The end of its validity in seconds since 1970.
    pub not_after: i64,
}

impl Peer {
    /// The identities in a certificate in DER. `None` when it is no certificate.
    pub fn of(certificate_der: &[u8]) -> Option<Self> {
        let (rest, certificate) = X509Certificate::from_der(certificate_der).ok()?;
        if !rest.is_empty() {
            return None;
        }
        let (mut dns_names, mut uris) = (Vec::new(), Vec::new());
        let alternatives = certificate.subject_alternative_name().ok()?;
        for name in alternatives.iter().flat_map(|alternatives| &alternatives.value.general_names) {
            match name {
                GeneralName::DNSName(name) => add(&mut dns_names, name, MAX_DNS_NAME_BYTES),
                GeneralName::URI(uri) => add(&mut uris, uri, MAX_URI_BYTES),
                // The enum is another crate's: mail addresses, IP addresses and the like.
                _ => {}
            }
        }
        Some(Self {
            common_name: common_name(&certificate),
            dns_names,
            uris,
            fingerprint: Fingerprint::of(certificate_der),
            not_after: certificate.validity().not_after.timestamp(),
        })
    }

    /// Whether the certificate has an identity, as configurations name it: `CN=NAME`, the fingerprint, a DNS name, or a
    /// URI. An iSCSI name is a URI, and whatever has a colon is one.
    pub fn has(&self, identity: &str) -> bool {
        if let Some(name) = identity.strip_prefix("CN=") {
            return self.common_name.as_deref() == Some(name);
        }
        if identity.starts_with("sha256:") {
            return identity.parse() == Ok(self.fingerprint);
        }
        let is_iscsi_name = ["iqn.", "eui.", "naa."].iter().any(|kind| identity.starts_with(kind));
        if is_iscsi_name || identity.contains(':') {
            return self.uris.iter().any(|uri| uri == identity);
        }
        self.dns_names.iter().any(|name| name.eq_ignore_ascii_case(identity))
    }

    /// Whether the end of its validity is over.
    pub fn has_ended(&self) -> bool {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |time| time.as_secs());
        self.not_after < i64::try_from(now).unwrap_or(i64::MAX)
    }
}

/// Whether a text can be a name. Names are shown on terminals and in logs.
pub(crate) fn is_name(text: &str, max_bytes: usize) -> bool {
    (1..=max_bytes).contains(&text.len()) && !text.chars().any(char::is_control)
}

fn add(names: &mut Vec<String>, name: &str, max_bytes: usize) {
    if names.len() < MAX_NAMES && is_name(name, max_bytes) {
        names.push(name.into());
    }
}

fn common_name(certificate: &X509Certificate<'_>) -> Option<String> {
    let mut names = certificate.subject().iter_common_name();
    let (Some(name), None) = (names.next(), names.next()) else { return None };
    // Other encodings can be read in more than one way.
    if !matches!(name.attr_value().tag(), Tag::Utf8String | Tag::PrintableString) {
        return None;
    }
    name.as_str().ok().filter(|name| is_name(name, MAX_COMMON_NAME_BYTES)).map(Into::into)
}

#[cfg(test)]
mod tests {
    use rcgen::{CertificateParams, CustomExtension, DistinguishedName, DnType, KeyPair, SanType};

    use super::*;

    fn certificate(parameters: &CertificateParams) -> Vec<u8> {
        parameters.self_signed(&KeyPair::generate().unwrap()).unwrap().der().to_vec()
    }

    fn named(names: &[(DnType, &str)]) -> Option<String> {
        let mut parameters = CertificateParams::default();
        parameters.distinguished_name = DistinguishedName::new();
        for (kind, name) in names {
            parameters.distinguished_name.push(kind.clone(), *name);
        }
        Peer::of(&certificate(&parameters)).unwrap().common_name
    }

    fn with(names: Vec<SanType>) -> Peer {
        let mut parameters = CertificateParams::default();
        parameters.subject_alt_names = names;
        Peer::of(&certificate(&parameters)).unwrap()
    }

    fn dns(name: &str) -> SanType {
        SanType::DnsName(name.try_into().unwrap())
    }

    fn uri(name: &str) -> SanType {
        SanType::URI(name.try_into().unwrap())
    }

    #[test]
    fn the_common_name_of_the_subject_is_the_client() {
        assert_eq!(named(&[(DnType::CommonName, "alice")]).as_deref(), Some("alice"));
        let names =
            [(DnType::OrganizationName, "Example"), (DnType::CommonName, "b\u{f6}b"), (DnType::CountryName, "AT")];
        assert_eq!(named(&names).as_deref(), Some("b\u{f6}b"));
        let long = "x".repeat(MAX_COMMON_NAME_BYTES);
        assert_eq!(named(&[(DnType::CommonName, &long)]), Some(long));
    }

    #[test]
    fn an_identity_is_of_the_kind_that_it_is_written_as() {
        let names =
            [uri("iqn.2026-11.org.example:db1"), uri("CN=root"), uri("db2.example.org"), dns("db1.example.org")];
        let peer = with(names.into_iter().chain([dns("iqn.2026-11.org.example")]).collect());
        let peer = Peer { common_name: Some("alice".into()), ..peer };
        let fingerprint = peer.fingerprint.to_string();
        for name in ["CN=alice", "iqn.2026-11.org.example:db1", "db1.example.org", "DB1.example.org", &fingerprint] {
            assert!(peer.has(name), "{name}");
        }
        for name in ["alice", "CN=root", "CN=Alice", "db2.example.org", "iqn.2026-11.org.example", "sha256:00", ""] {
            assert!(!peer.has(name), "{name}");
        }
    }

    #[test]
    fn names_that_could_deceive_are_no_names() {
        let long = "x".repeat(MAX_COMMON_NAME_BYTES + 1);
        for name in ["", "a\nb", "a\u{1b}[0m", &long] {
            assert_eq!(named(&[(DnType::CommonName, name)]), None, "{name:?}");
        }
        assert_eq!(named(&[(DnType::OrganizationName, "alice")]), None);
        let names = ["a\nb", &"x".repeat(MAX_URI_BYTES + 1), "", "iqn.2026-11.org.example:db1"].map(uri);
        assert_eq!(with(names.into()).uris, ["iqn.2026-11.org.example:db1"]);
        let names = ["a\u{7f}b", &"x".repeat(MAX_DNS_NAME_BYTES + 1), "db1.example.org"].map(dns);
        assert_eq!(with(names.into()).dns_names, ["db1.example.org"]);
    }

    #[test]
    fn of_two_common_names_none_counts() {
        let mut parameters = CertificateParams::default();
        parameters.distinguished_name = DistinguishedName::new();
        parameters.distinguished_name.push(DnType::CommonName, "alice");
        parameters.distinguished_name.push(DnType::OrganizationName, "bob");
        let mut der = certificate(&parameters);
        assert_eq!(Peer::of(&der).unwrap().common_name.as_deref(), Some("alice"));
        // The organization of issuer and subject becomes a common name: 2.5.4.3 instead of 2.5.4.10.
        let found = (0..der.len() - 5).filter(|at| der[*at..at + 5] == [6, 3, 0x55, 4, 10]).collect::<Vec<_>>();
        for at in &found {
            der[at + 4] = 3;
        }
        assert_eq!((found.len(), Peer::of(&der).unwrap().common_name), (2, None));
    }

    #[test]
    fn names_of_each_kind_are_bounded() {
        let many = 0..=MAX_NAMES;
        let names = many.clone().map(|at| dns(&format!("h{at}"))).chain(many.map(|at| uri(&format!("iqn.{at}"))));
        let peer = with(names.chain([SanType::IpAddress([127, 0, 0, 1].into())]).collect());
        assert_eq!((peer.dns_names.len(), peer.uris.len()), (MAX_NAMES, MAX_NAMES));
        assert_eq!((&*peer.dns_names[0], &*peer.uris[MAX_NAMES - 1]), ("h0", "iqn.15"));
    }

    #[test]
    fn the_end_and_the_digest_are_those_of_the_certificate() {
        let mut parameters = CertificateParams::default();
        parameters.not_after = rcgen::date_time_ymd(2031, 2, 3);
        let der = certificate(&parameters);
        let peer = Peer::of(&der).unwrap();
        assert_eq!(peer.not_after, rcgen::date_time_ymd(2031, 2, 3).unix_timestamp());
        assert_eq!(peer.fingerprint, Fingerprint::of(&der));
    }

    #[test]
    fn what_is_no_certificate_has_no_identities() {
        let der = certificate(&CertificateParams::default());
        for (at, _) in der.iter().enumerate() {
            assert_eq!(Peer::of(&der[..at]), None);
        }
        assert_eq!(Peer::of(&[&der[..], &[0]].concat()), None);
        assert_eq!(Peer::of(&[0x30, 0]), None);
        let mut parameters = CertificateParams::default();
        parameters.custom_extensions = vec![CustomExtension::from_oid_content(&[2, 5, 29, 17], vec![0x30, 5, 1])];
        assert_eq!(Peer::of(&certificate(&parameters)), None, "alternative names that cannot be read");
    }
}
