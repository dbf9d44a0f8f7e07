//! The moments at which files of certificates end, in seconds since 1970.

use std::path::Path;

use rustls::pki_types::CertificateDer;
use x509_parser::certificate::X509Certificate;
use x509_parser::prelude::FromDer;
use x509_parser::revocation_list::CertificateRevocationList;

use crate::{TlsError, certificates, read_revoked};

/// The end of the certificates in a file: that of the one that ends first. A chain holds as long as all of it does.
///
/// # Errors
///
/// When the file cannot be read, or has no certificate or a damaged one.
pub fn end_of_certificates(path: &Path) -> Result<i64, TlsError> {
    let ends: Result<Vec<_>, _> = certificates(path)?.iter().map(|certificate| end(path, certificate)).collect();
    ends?.into_iter().min().ok_or_else(|| TlsError::at(path, "there is no certificate in it"))
}

/// The moment at which the next list of revoked certificates is due, the first of all lists in a file. `None` when the
/// file is missing, or its lists name no moment.
///
/// # Errors
///
/// When the file cannot be read, or has no list or a damaged one.
pub fn next_list(path: &Path) -> Result<Option<i64>, TlsError> {
    let mut due = None;
    for list in read_revoked(path)? {
        let (_, list) = CertificateRevocationList::from_der(&list).map_err(|error| TlsError::at(path, error))?;
        let moment = list.next_update().map(|moment| moment.timestamp());
        due = due.into_iter().chain(moment).min();
    }
    Ok(due)
}

fn end(path: &Path, certificate: &CertificateDer<'_>) -> Result<i64, TlsError> {
    let (_, certificate) = X509Certificate::from_der(certificate).map_err(|error| TlsError::at(path, error))?;
    Ok(certificate.validity().not_after.timestamp())
}

#[cfg(test)]
mod tests {
    use std::fs;

    use rcgen::{
        BasicConstraints, CertificateParams, CertificateRevocationListParams, IsCa, Issuer, KeyIdMethod, KeyPair,
        SerialNumber, date_time_ymd,
    };

    use super::*;

    /// Midnight of 2 and 3 February 2031.
    const ENDS: [i64; 2] = [1_927_756_800, 1_927_843_200];

    fn certificate(day: u8) -> String {
        let mut parameters = CertificateParams::default();
        parameters.not_after = date_time_ymd(2031, 2, day);
        parameters.self_signed(&KeyPair::generate().unwrap()).unwrap().pem()
    }

    fn list(day: u8) -> String {
        let mut parameters = CertificateParams::default();
        parameters.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let issuer = Issuer::new(parameters, KeyPair::generate().unwrap());
        let parameters = CertificateRevocationListParams {
            this_update: date_time_ymd(2026, 1, 1),
            next_update: date_time_ymd(2031, 2, day),
            crl_number: SerialNumber::from(1),
            issuing_distribution_point: None,
            revoked_certs: Vec::new(),
            key_identifier_method: KeyIdMethod::Sha256,
        };
        parameters.signed_by(&issuer).unwrap().pem().unwrap()
    }

    #[test]
    fn a_chain_ends_with_the_first_of_its_certificates() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("chain.pem");
        for (days, expected) in [(&[3][..], ENDS[1]), (&[3, 2], ENDS[0]), (&[2, 3], ENDS[0])] {
            fs::write(&path, days.iter().map(|day| certificate(*day)).collect::<String>()).unwrap();
            assert_eq!(end_of_certificates(&path).unwrap(), expected, "{days:?}");
        }
        fs::write(&path, "").unwrap();
        assert!(end_of_certificates(&path).unwrap_err().to_string().contains("chain.pem: there is no certificate"));
    }

    #[test]
    fn the_next_list_is_due_when_the_first_one_says_so() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("list.pem");
        assert_eq!(next_list(&path).unwrap(), None, "there is no list");
        fs::write(&path, list(3) + &list(2)).unwrap();
        assert_eq!(next_list(&path).unwrap(), Some(ENDS[0]));
        fs::write(&path, certificate(2)).unwrap();
        assert!(next_list(&path).unwrap_err().to_string().contains("there is no revocation list"));
    }
}
