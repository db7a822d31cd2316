//! Keys and certificates for tests, in the files that QEMU, nbdkit and libnbd look for.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use rcgen::{
    BasicConstraints, CertificateParams, CertificateRevocationListParams, ExtendedKeyUsagePurpose,
    IsCa, Issuer, KeyIdMethod, KeyPair, KeyUsagePurpose, RevokedCertParams, SerialNumber,
    date_time_ymd,
};

/// The number of each client's certificate.
const CLIENT_SERIAL: u64 = 7;

/// One who signs.
pub(crate) struct Authority {
    issuer: Issuer<'static, KeyPair>,
    pem: String,
}

impl Authority {
    pub(crate) fn new(name: &str) -> Self {
        let mut params = CertificateParams::new(Vec::new()).expect("no names");
        params.distinguished_name.push(rcgen::DnType::CommonName, name);
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
        let key = KeyPair::generate().expect("a key");
        let pem = params.self_signed(&key).expect("signed").pem();
        Self { issuer: Issuer::new(params, key), pem }
    }

    /// Its own certificate, for those who are to trust it.
    pub(crate) fn write(&self, directory: &Path) {
        fs::create_dir_all(directory).expect("a directory");
        fs::write(directory.join("ca-cert.pem"), &self.pem).expect("written");
    }

    /// `server-cert.pem` and `server-key.pem`, for this host.
    pub(crate) fn write_server(&self, directory: &Path) {
        self.write_pair(directory, "server", ExtendedKeyUsagePurpose::ServerAuth);
    }

    /// `client-cert.pem` and `client-key.pem`.
    pub(crate) fn write_client(&self, directory: &Path) {
        self.write_pair(directory, "client", ExtendedKeyUsagePurpose::ClientAuth);
    }

    /// `ca-crl.pem`: clients are revoked, or it is a list of nobody.
    pub(crate) fn write_list(&self, directory: &Path, clients_are_revoked: bool) {
        let revoked = RevokedCertParams {
            serial_number: SerialNumber::from(CLIENT_SERIAL),
            revocation_time: date_time_ymd(2025, 1, 1),
            reason_code: None,
            invalidity_date: None,
        };
        let list = CertificateRevocationListParams {
            this_update: date_time_ymd(2025, 1, 1),
            next_update: date_time_ymd(2099, 1, 1),
            crl_number: SerialNumber::from(1),
            issuing_distribution_point: None,
            revoked_certs: if clients_are_revoked { vec![revoked] } else { Vec::new() },
            key_identifier_method: KeyIdMethod::Sha256,
        };
        let list = list.signed_by(&self.issuer).expect("signed").pem().expect("text");
        fs::write(directory.join("ca-crl.pem"), list).expect("written");
    }

    fn write_pair(&self, directory: &Path, who: &str, usage: ExtendedKeyUsagePurpose) {
        fs::create_dir_all(directory).expect("a directory");
        let names = vec!["localhost".to_owned(), "127.0.0.1".to_owned()];
        let mut params = CertificateParams::new(names).expect("names of this host");
        params.distinguished_name.push(rcgen::DnType::CommonName, who);
        // QEMU wants both.
        params.key_usages =
            vec![KeyUsagePurpose::DigitalSignature, KeyUsagePurpose::KeyEncipherment];
        if usage == ExtendedKeyUsagePurpose::ClientAuth {
            params.serial_number = Some(SerialNumber::from(CLIENT_SERIAL));
        }
        params.extended_key_usages = vec![usage];
        let key = KeyPair::generate().expect("a key");
        let cert = params.signed_by(&key, &self.issuer).expect("signed");
        fs::write(directory.join(format!("{who}-cert.pem")), cert.pem()).expect("written");
        let path = directory.join(format!("{who}-key.pem"));
        fs::write(&path, key.serialize_pem()).expect("written");
        fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).expect("its mode");
    }
}
