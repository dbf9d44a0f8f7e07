//! Folders with certificates.

use std::fs;
use std::path::{Path, PathBuf};

use rcgen::{
    BasicConstraints, CertificateParams, CertificateRevocationListParams, DnType, ExtendedKeyUsagePurpose, IsCa,
    Issuer, KeyIdMethod, KeyPair, KeyUsagePurpose, RevokedCertParams, SerialNumber, date_time_ymd,
};

use crate::tls::{Admitted, ServerTls, file};

/// The name of the server.
pub(super) const SERVER: &str = "server";

/// The name of a client, and of a server, whose certificates count no longer.
pub(super) const REVOKED: &str = "revoked";

/// An authority with a folder for each of those that it has issued certificates to.
pub(super) struct Certificates {
    folder: tempfile::TempDir,
    issuer: Issuer<'static, KeyPair>,
    authority: String,
    revoked: String,
}

impl Certificates {
    pub(super) fn new() -> Self {
        let key = KeyPair::generate().unwrap();
        let mut parameters = CertificateParams::default();
        // Each authority has a name of its own.
        let name = format!("authority {:?}", &key.public_key_raw()[..8]);
        parameters.distinguished_name.push(DnType::CommonName, name);
        parameters.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        parameters.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
        let authority = parameters.self_signed(&key).unwrap().pem();
        let issuer = Issuer::new(parameters, key);
        let list = CertificateRevocationListParams {
            this_update: date_time_ymd(2020, 1, 1),
            next_update: date_time_ymd(4000, 1, 1),
            crl_number: SerialNumber::from(1),
            issuing_distribution_point: None,
            revoked_certs: vec![RevokedCertParams {
                serial_number: serial(REVOKED),
                revocation_time: date_time_ymd(2021, 1, 1),
                reason_code: None,
                invalidity_date: None,
            }],
            key_identifier_method: KeyIdMethod::Sha256,
        };
        let revoked = list.signed_by(&issuer).unwrap().pem().unwrap();
        Self { folder: tempfile::tempdir().unwrap(), issuer, authority, revoked }
    }

    /// A new folder with the authority.
    fn folder(&self) -> PathBuf {
        let count = fs::read_dir(self.folder.path()).unwrap().count();
        let folder = self.folder.path().join(count.to_string());
        fs::create_dir(&folder).unwrap();
        fs::write(folder.join(file::AUTHORITY), &self.authority).unwrap();
        fs::write(folder.join(file::REVOKED), &self.revoked).unwrap();
        folder
    }

    fn issue(&self, folder: &Path, [certificate, key]: [&str; 2], name: &str, number: &str) {
        let own = KeyPair::generate().unwrap();
        let mut parameters = CertificateParams::new(vec![name.to_owned()]).unwrap();
        parameters.serial_number = Some(serial(number));
        parameters.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth, ExtendedKeyUsagePurpose::ClientAuth];
        let issued = parameters.signed_by(&own, &self.issuer).unwrap();
        fs::write(folder.join(certificate), issued.pem()).unwrap();
        fs::write(folder.join(key), own.serialize_pem()).unwrap();
    }

    /// The folder of a client.
    pub(super) fn client(&self, name: &str) -> PathBuf {
        let folder = self.folder();
        self.issue(&folder, file::CLIENT, name, name);
        folder
    }

    pub(super) fn client_without_certificate(&self) -> PathBuf {
        self.folder()
    }

    /// The folder of a client that trusts this authority, with a certificate of another one.
    pub(super) fn client_with_certificate_of(&self, other: &Self) -> PathBuf {
        let folder = self.folder();
        other.issue(&folder, file::CLIENT, "mallory", "mallory");
        folder
    }

    pub(super) fn server(&self, admitted: Admitted) -> ServerTls {
        let folder = self.folder();
        self.issue(&folder, file::SERVER, SERVER, SERVER);
        ServerTls::read(&folder, admitted).unwrap()
    }

    pub(super) fn server_without_authority(&self) -> ServerTls {
        let folder = self.folder();
        self.issue(&folder, file::SERVER, SERVER, SERVER);
        fs::remove_file(folder.join(file::AUTHORITY)).unwrap();
        ServerTls::read(&folder, Admitted::Proven).unwrap()
    }

    pub(super) fn revoked_server(&self) -> ServerTls {
        let folder = self.folder();
        self.issue(&folder, file::SERVER, SERVER, REVOKED);
        ServerTls::read(&folder, Admitted::Any).unwrap()
    }
}

fn serial(name: &str) -> SerialNumber {
    SerialNumber::from_slice(name.as_bytes())
}
