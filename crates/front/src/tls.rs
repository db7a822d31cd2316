//! TLS: who a server is, and whom it lets in.
//!
//! The files are named as QEMU and nbdkit name them, in one directory. The provider of algorithms is ring: it builds with
//! nothing but Rust and a C compiler.

mod records;

use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use mdspace_io::read_file;
use rustls::crypto::ring;
use rustls::pki_types::pem::{self, PemObject};
use rustls::pki_types::{CertificateDer, CertificateRevocationListDer, PrivateKeyDer};
use rustls::server::danger::ClientCertVerifier;
use rustls::server::{NoServerSessionStorage, VerifierBuilderError, WebPkiClientVerifier};
use rustls::{RootCertStore, ServerConfig};

pub(crate) use records::Records;

/// The certificate of who has signed clients' certificates.
const CA_CERT: &str = "ca-cert.pem";
/// What that one has revoked; it need not be there, but once it was it must stay.
const CA_CRL: &str = "ca-crl.pem";
/// The server's certificate, and those between it and one that clients trust.
const SERVER_CERT: &str = "server-cert.pem";
const SERVER_KEY: &str = "server-key.pem";
const FILES: [&str; 4] = [CA_CERT, CA_CRL, SERVER_CERT, SERVER_KEY];

/// May be read by the file's group or by all (`S_IRGRP`, `S_IROTH`).
const READABLE_BY_OTHERS: u32 = 0o044;

/// What a front end's address says of TLS.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Tls {
    /// Where keys and certificates are.
    pub directory: PathBuf,
    /// Whether clients need a certificate. By default they do where the directory has `ca-cert.pem`.
    pub verify: Option<bool>,
    /// Whether there must be a list of revoked certificates.
    pub needs_list: bool,
}

/// Keys and certificates of a server, as it has read them last.
#[derive(Debug)]
pub struct Identity {
    directory: PathBuf,
    asks_clients: bool,
    read: Mutex<ReadFiles>,
}

#[derive(Debug)]
struct ReadFiles {
    config: Arc<ServerConfig>,
    stamps: Stamps,
    key_is_open: bool,
    /// Clients' certificates were checked by a list of revoked ones.
    has_list: bool,
}

/// What tells a file from the one that it was, and from another in its place.
type Stamps = [Option<Stamp>; FILES.len()];

/// Device, inode, length, and when it was changed.
type Stamp = (u64, u64, u64, i64, i64);

/// Why there is no TLS with the files of a directory.
#[derive(Debug, thiserror::Error)]
pub enum TlsError {
    /// A file is not there.
    #[error("{0} is not there")]
    Missing(PathBuf),
    /// A file cannot be read.
    #[error("cannot read {path}: {source}")]
    Io {
        /// The file.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// Not in PEM form, or not what it should be.
    #[error("{path} has no {what} in PEM form: {why}")]
    Pem {
        /// The file.
        path: PathBuf,
        /// What it should have.
        what: &'static str,
        /// What was found instead.
        why: pem::Error,
    },
    /// The certificate and its key cannot be used, or are not of each other.
    #[error("{cert} and {key} cannot be used together: {why}")]
    Server {
        /// The certificate's file.
        cert: PathBuf,
        /// The key's.
        key: PathBuf,
        /// What is wrong.
        why: rustls::Error,
    },
    /// No client's certificate could be checked.
    #[error("clients' certificates cannot be checked by {path}: {why}")]
    Clients {
        /// The file.
        path: PathBuf,
        /// What is wrong.
        why: String,
    },
}

impl TlsError {
    /// What helps.
    pub fn cure(&self) -> &'static str {
        match self {
            TlsError::Missing(path) if path.ends_with(CA_CERT) => {
                "put the certificate there that signs those of clients, or say tls-verify=off"
            }
            TlsError::Missing(path) if path.ends_with(CA_CRL) => {
                "put it there again, or an empty list: the clients that it revoked stay refused"
            }
            TlsError::Missing(_) => {
                "make it with certtool or openssl: docs/admin.md says how, or name another directory"
            }
            TlsError::Io { .. } => "give it to the user who serves the array",
            TlsError::Pem { .. } | TlsError::Server { .. } | TlsError::Clients { .. } => {
                "make it anew with certtool or openssl: docs/admin.md says how"
            }
        }
    }
}

impl Identity {
    /// Reads the files of a directory.
    pub fn read(tls: &Tls) -> Result<Identity, TlsError> {
        let has_ca = || tls.directory.join(CA_CERT).symlink_metadata().is_ok();
        let asks_clients = tls.verify.unwrap_or_else(has_ca);
        let read = Mutex::new(ReadFiles::of(&tls.directory, asks_clients, tls.needs_list)?);
        Ok(Identity { directory: tls.directory.clone(), asks_clients, read })
    }

    /// Reads them again if they have changed since; true: they had. Clients that are connected keep what they have. After
    /// an error new ones get what was read last. Whether clients are asked for a certificate never changes, and once there was a
    /// list of revoked ones there must be one.
    pub fn renew(&self) -> Result<bool, TlsError> {
        let (known, has_list) = {
            let read = self.lock();
            (read.stamps, read.has_list)
        };
        if stamps(&self.directory) == known {
            return Ok(false);
        }
        let files = ReadFiles::of(&self.directory, self.asks_clients, has_list)?;
        *self.lock() = files;
        Ok(true)
    }

    /// Where the files are.
    pub fn directory(&self) -> &Path {
        &self.directory
    }

    /// Whether a client is served only with a certificate that `ca-cert.pem` has signed.
    pub fn asks_clients(&self) -> bool {
        self.asks_clients
    }

    /// Whether clients' certificates are checked by a list of revoked ones.
    pub fn has_list(&self) -> bool {
        self.lock().has_list
    }

    /// The key's file, if others than its owner may read it.
    pub fn open_key(&self) -> Option<PathBuf> {
        let is_open = self.lock().key_is_open;
        is_open.then(|| self.directory.join(SERVER_KEY))
    }

    /// For one more client.
    pub(crate) fn config(&self) -> Arc<ServerConfig> {
        self.lock().config.clone()
    }

    /// What was read is whole, whatever panicked.
    fn lock(&self) -> std::sync::MutexGuard<'_, ReadFiles> {
        self.read.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl ReadFiles {
    /// With `needs_list` there must be a list of revoked certificates.
    fn of(directory: &Path, asks_clients: bool, needs_list: bool) -> Result<ReadFiles, TlsError> {
        // Before they are read: a change meanwhile is seen at the next look.
        let stamps = stamps(directory);
        let (verifier, has_list) = if asks_clients {
            verifier(directory, needs_list)?
        } else {
            (WebPkiClientVerifier::no_client_auth(), false)
        };
        let (cert, key) = (directory.join(SERVER_CERT), directory.join(SERVER_KEY));
        let chain = certificates(&cert)?;
        let (bytes, mode) = read(&key)?;
        let private = PrivateKeyDer::from_pem_slice(&bytes).map_err(|why| TlsError::Pem {
            path: key.clone(),
            what: "private key",
            why,
        })?;
        let builder = ServerConfig::builder_with_provider(ring::default_provider().into())
            .with_safe_default_protocol_versions()
            .and_then(|builder| {
                builder.with_client_cert_verifier(verifier).with_single_cert(chain, private)
            });
        let mut config = builder.map_err(|why| TlsError::Server { cert, key, why })?;
        // Who comes again is asked again: nothing of a connection outlives it.
        config.session_storage = Arc::new(NoServerSessionStorage {});
        config.send_tls13_tickets = 0;
        let key_is_open = mode & READABLE_BY_OTHERS != 0;
        Ok(ReadFiles { config: Arc::new(config), stamps, key_is_open, has_list })
    }
}

/// What checks clients' certificates: signed by the CA, in time, and not revoked. True: by a list, however old it is. With
/// `needs_list` there must be one.
fn verifier(
    directory: &Path,
    needs_list: bool,
) -> Result<(Arc<dyn ClientCertVerifier>, bool), TlsError> {
    let (path, crl) = (directory.join(CA_CERT), directory.join(CA_CRL));
    let mut roots = RootCertStore::empty();
    for certificate in certificates(&path)? {
        let added = roots.add(certificate);
        added.map_err(|why| TlsError::Clients { path: path.clone(), why: why.to_string() })?;
    }
    let provider = Arc::new(ring::default_provider());
    let builder = WebPkiClientVerifier::builder_with_provider(roots.into(), provider);
    let (builder, has_list) = match read(&crl) {
        Err(TlsError::Missing(_)) if !needs_list => (builder, false),
        Err(error) => return Err(error),
        Ok((bytes, _)) => {
            let what = "list of revoked certificates";
            let lists = all_of::<CertificateRevocationListDer<'_>>(&crl, &bytes, what)?;
            (builder.with_crls(lists).only_check_end_entity_revocation(), true)
        }
    };
    let built = builder.build().map_err(|why| match why {
        VerifierBuilderError::InvalidCrl(why) => {
            let why = rustls::Error::InvalidCertRevocationList(why).to_string();
            TlsError::Clients { path: crl, why }
        }
        why => TlsError::Clients { path, why: why.to_string() },
    });
    Ok((built?, has_list))
}

fn certificates(path: &Path) -> Result<Vec<CertificateDer<'static>>, TlsError> {
    all_of(path, &read(path)?.0, "certificate")
}

/// All items of one kind, at least one.
fn all_of<T: PemObject>(path: &Path, bytes: &[u8], what: &'static str) -> Result<Vec<T>, TlsError> {
    let items: Result<Vec<T>, pem::Error> = T::pem_slice_iter(bytes).collect();
    let items = items.and_then(|items| match items.is_empty() {
        true => Err(pem::Error::NoItemsFound),
        false => Ok(items),
    });
    items.map_err(|why| TlsError::Pem { path: path.to_path_buf(), what, why })
}

/// The bytes of a file, and its mode.
fn read(path: &Path) -> Result<(Vec<u8>, u32), TlsError> {
    let read = read_file(path).map(|(bytes, metadata)| (bytes, metadata.mode()));
    read.map_err(|source| match source.kind() {
        io::ErrorKind::NotFound => TlsError::Missing(path.to_path_buf()),
        _ => TlsError::Io { path: path.to_path_buf(), source },
    })
}

fn stamps(directory: &Path) -> Stamps {
    FILES.map(|name| {
        let it = directory.join(name).metadata().ok()?;
        Some((it.dev(), it.ino(), it.len(), it.ctime(), it.ctime_nsec()))
    })
}

#[cfg(test)]
pub(crate) mod tests;
