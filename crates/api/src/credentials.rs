//! Credentials of the embedded server: a certificate authority, a server certificate, an administrator token and a
//! kubeconfig. They are generated once, stored in files that only the owner can read, and renewed before they expire.

use std::fmt;
use std::fs;
use std::io;
use std::io::Write as _;
use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _, OpenOptionsExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use rcgen::{
    BasicConstraints, CertificateParams, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair, KeyUsagePurpose,
};
use rustls_pki_types::CertificateDer;
use rustls_pki_types::pem::PemObject as _;
use x509_parser::extensions::GeneralName;
use x509_parser::prelude::{FromDer as _, X509Certificate};

use crate::access::{MASTERS, Role, Token};
use crate::server::Tls;

const DAY: Duration = Duration::from_secs(86_400);
/// Validity of the CA certificate, and the time before expiry at which it is renewed.
const AUTHORITY: (Duration, Duration) = (DAY.saturating_mul(3650), DAY.saturating_mul(400));
/// Validity and renewal time of the server certificate.
const SERVER: (Duration, Duration) = (DAY.saturating_mul(365), DAY.saturating_mul(30));
/// Certificates are valid from a little before now, to tolerate clock skew.
const BACK: Duration = Duration::from_secs(3600);

/// The error of loading or generating credentials.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum CredentialsError {
    /// A file cannot be read or written.
    #[error("{}: {error}", path.display())]
    File {
        /// The file.
        path: PathBuf,
        /// The error of the operating system.
        error: io::Error,
    },
    /// Others could have read or written a secret.
    #[error(
        "{}: {problem}; if you trust its content, run `chmod 600` and make it yours, otherwise delete it: a new one is generated at the start",
        path.display()
    )]
    Exposed {
        /// The file.
        path: PathBuf,
        /// The problem.
        problem: String,
    },
    /// A certificate cannot be generated.
    #[error("cannot generate a certificate: {0}")]
    Certificate(#[from] rcgen::Error),
}

/// The credentials in a directory.
#[derive(Clone)]
pub struct Credentials {
    /// The CA certificate in PEM, which clients trust.
    pub authority: String,
    certificate: String,
    key: String,
    token: String,
}

impl fmt::Debug for Credentials {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Credentials").finish_non_exhaustive()
    }
}

impl Credentials {
    /// Loads the credentials in a directory. Generates those that are missing, expire soon or do not match `names`, the
    /// host names and addresses of the server.
    ///
    /// # Errors
    /// A file cannot be read or written.
    pub fn prepare(directory: &Path, names: &[String], now: SystemTime) -> Result<Credentials, CredentialsError> {
        let made = fs::DirBuilder::new().recursive(true).mode(0o700).create(directory);
        made.map_err(|error| file_error(directory, error))?;
        let mut names: Vec<String> = names.to_vec();
        names.extend(["localhost", "127.0.0.1", "::1"].map(str::to_owned));
        names.sort();
        names.dedup();
        let (ca_file, ca_key_file) = (directory.join("ca.crt"), directory.join("ca.key"));
        let mut ca_key = read_secret(&ca_key_file)?.and_then(|pem| KeyPair::from_pem(&pem).ok());
        let old = read(&ca_file)?.filter(|pem| lasts(pem, AUTHORITY.1, now) && ca_key.is_some());
        let renewed = old.is_none();
        let authority = match old {
            Some(pem) => pem,
            None => {
                let key = KeyPair::generate()?;
                let pem = authority(now)?.self_signed(&key)?.pem();
                write(&ca_key_file, &key.serialize_pem())?;
                write(&ca_file, &pem)?;
                ca_key = Some(key);
                pem
            }
        };
        let (file, key_file) = (directory.join("server.crt"), directory.join("server.key"));
        let old = read(&file)?.filter(|pem| !renewed && lasts(pem, SERVER.1, now) && names_of(pem) == names);
        let (certificate, key) = match (old, read_secret(&key_file)?, ca_key) {
            (Some(certificate), Some(key), _) => (certificate, key),
            (_, _, Some(ca_key)) => {
                let key = KeyPair::generate()?;
                let issuer = Issuer::new(authority_names(), ca_key);
                let certificate = server(&names, now)?.signed_by(&key, &issuer)?.pem();
                write(&key_file, &key.serialize_pem())?;
                write(&file, &certificate)?;
                (certificate, key.serialize_pem())
            }
            // The CA was generated above if its key did not exist.
            (_, _, None) => return Err(file_error(&ca_key_file, io::ErrorKind::InvalidData.into())),
        };
        Ok(Credentials { authority, certificate, key, token: token(&directory.join("admin.token"))? })
    }

    /// The TLS material of the server. Clients may use certificates that the CA signed.
    pub fn tls(&self) -> Tls {
        Tls {
            certificates: format!("{}{}", self.certificate, self.authority),
            key: self.key.clone(),
            client_roots: Some(self.authority.clone()),
        }
    }

    /// The administrator token, as the server stores it.
    pub fn admin(&self) -> Token {
        Token::new(&self.token, "rutter:admin", [MASTERS], [Role::Admin])
    }

    /// A kubeconfig with the administrator token for a server URL such as `https://127.0.0.1:6443`.
    pub fn kubeconfig(&self, server: &str) -> String {
        let authority = STANDARD.encode(&self.authority);
        format!(
            "apiVersion: v1\nkind: Config\ncurrent-context: rutter\n\
             clusters:\n- name: rutter\n  cluster:\n    server: {server}\n    certificate-authority-data: {authority}\n\
             contexts:\n- name: rutter\n  context:\n    cluster: rutter\n    user: rutter-admin\n    namespace: default\n\
             users:\n- name: rutter-admin\n  user:\n    token: {}\n",
            self.token
        )
    }

    /// Writes the kubeconfig, readable only by its owner.
    ///
    /// # Errors
    /// The file cannot be written.
    pub fn write_kubeconfig(&self, path: &Path, server: &str) -> Result<(), CredentialsError> {
        let text = self.kubeconfig(server);
        // Nothing is written needlessly: the disk may be full.
        match read_secret(path) {
            Ok(Some(present)) if present == text => Ok(()),
            _ => write(path, &text),
        }
    }
}

fn authority_names() -> CertificateParams {
    let mut params = CertificateParams::default();
    params.distinguished_name = rcgen::DistinguishedName::new();
    params.distinguished_name.push(DnType::CommonName, "rutter-ca");
    params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
    params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign, KeyUsagePurpose::DigitalSignature];
    params
}

fn authority(now: SystemTime) -> Result<CertificateParams, rcgen::Error> {
    let mut params = authority_names();
    params.not_before = (now - BACK).into();
    params.not_after = (now + AUTHORITY.0).into();
    Ok(params)
}

fn server(names: &[String], now: SystemTime) -> Result<CertificateParams, rcgen::Error> {
    let mut params = CertificateParams::new(names)?;
    params.distinguished_name = rcgen::DistinguishedName::new();
    params.distinguished_name.push(DnType::CommonName, "rutter-api");
    params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
    params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
    params.use_authority_key_identifier_extension = true;
    params.not_before = (now - BACK).into();
    params.not_after = (now + SERVER.0).into();
    Ok(params)
}

/// Whether a certificate is valid now and for longer than this.
fn lasts(pem: &str, reserve: Duration, now: SystemTime) -> bool {
    let seconds = |time: SystemTime| {
        let since = time.duration_since(SystemTime::UNIX_EPOCH).map_or(0, |since| since.as_secs());
        i64::try_from(since).unwrap_or(i64::MAX)
    };
    let validity = certificate(pem, |certificate| {
        let validity = certificate.validity();
        (validity.not_before.timestamp(), validity.not_after.timestamp())
    });
    validity.is_some_and(|(start, end)| start <= seconds(now) && end > seconds(now + reserve))
}

/// Reads a certificate; `None` if it is invalid.
fn certificate<T>(pem: &str, read: impl FnOnce(&X509Certificate<'_>) -> T) -> Option<T> {
    let der = CertificateDer::from_pem_slice(pem.as_bytes()).ok()?;
    let (_, certificate) = X509Certificate::from_der(&der).ok()?;
    Some(read(&certificate))
}

/// The subject alternative names of a certificate, sorted.
fn names_of(pem: &str) -> Vec<String> {
    certificate(pem, alternative_names).unwrap_or_default()
}

fn alternative_names(certificate: &X509Certificate<'_>) -> Vec<String> {
    let extension = certificate.subject_alternative_name().ok().flatten();
    let mut names: Vec<String> = extension
        .iter()
        .flat_map(|extension| &extension.value.general_names)
        .filter_map(|name| match name {
            GeneralName::DNSName(name) => Some((*name).to_owned()),
            GeneralName::IPAddress(bytes) => {
                let four = <[u8; 4]>::try_from(*bytes).map(|b| std::net::IpAddr::from(b).to_string());
                four.or_else(|_| <[u8; 16]>::try_from(*bytes).map(|b| std::net::IpAddr::from(b).to_string())).ok()
            }
            _ => None,
        })
        .collect();
    names.sort();
    names
}

/// Reads the token from a file, or generates it.
fn token(path: &Path) -> Result<String, CredentialsError> {
    if let Some(token) = read_secret(path)?.map(|token| token.trim().to_owned()).filter(|token| token.len() >= 32) {
        return Ok(token);
    }
    // Two random UUIDs: 244 bits.
    let token = format!("{}{}", uuid::Uuid::new_v4().simple(), uuid::Uuid::new_v4().simple());
    write(path, &token)?;
    Ok(token)
}

/// Reads a file that only its owner may read and write, and that this user or root owns. Another one may have been planted.
fn read_secret(path: &Path) -> Result<Option<String>, CredentialsError> {
    let metadata = match fs::symlink_metadata(path) {
        Ok(metadata) => metadata,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(file_error(path, error)),
    };
    let (mode, owner) = (metadata.permissions().mode() & 0o777, metadata.uid());
    let own = rustix::process::geteuid().as_raw();
    let problem = if !metadata.is_file() {
        "it is not a regular file".to_owned()
    } else if owner != own && owner != 0 {
        format!("it belongs to user {owner}, and this process runs as user {own}")
    } else if mode & 0o077 != 0 {
        format!("other users have access to it (mode {mode:03o})")
    } else {
        return read(path);
    };
    Err(CredentialsError::Exposed { path: path.to_owned(), problem })
}

fn read(path: &Path) -> Result<Option<String>, CredentialsError> {
    match fs::read_to_string(path) {
        Ok(text) => Ok(Some(text)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(file_error(path, error)),
    }
}

/// Writes a file atomically, readable only by its owner.
fn write(path: &Path, text: &str) -> Result<(), CredentialsError> {
    let mut name = path.as_os_str().to_owned();
    name.push(".new");
    let new = PathBuf::from(name);
    let write = || {
        match fs::remove_file(&new) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            _ => {}
        }
        let mut file = fs::OpenOptions::new().write(true).create_new(true).mode(0o600).open(&new)?;
        file.write_all(text.as_bytes())?;
        file.sync_all()?;
        fs::rename(&new, path)
    };
    write().map_err(|error| file_error(path, error))
}

fn file_error(path: &Path, error: io::Error) -> CredentialsError {
    CredentialsError::File { path: path.to_owned(), error }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn secrets_that_others_can_read_or_replace_are_refused() {
        let directory = tempfile::tempdir().unwrap();
        let prepare = || Credentials::prepare(directory.path(), &[], SystemTime::UNIX_EPOCH + DAY * 20_000);
        let planted = directory.path().join("admin.token");
        fs::write(&planted, "0123456789abcdef0123456789abcdef").unwrap();
        fs::set_permissions(&planted, fs::Permissions::from_mode(0o644)).unwrap();
        let error = prepare().unwrap_err().to_string();
        assert!(error.contains("admin.token: other users have access to it (mode 644)"), "{error}");
        assert!(!error.contains("0123456789abcdef"), "{error}");
        fs::set_permissions(&planted, fs::Permissions::from_mode(0o600)).unwrap();
        let token = prepare().unwrap().token;
        assert_eq!(token, "0123456789abcdef0123456789abcdef");
        fs::rename(&planted, directory.path().join("elsewhere")).unwrap();
        std::os::unix::fs::symlink(directory.path().join("elsewhere"), &planted).unwrap();
        assert!(prepare().unwrap_err().to_string().contains("it is not a regular file"));
        fs::remove_file(&planted).unwrap();
        assert_ne!(prepare().unwrap().token, token);
    }

    #[test]
    fn they_are_made_once_and_renewed_in_time() {
        let directory = tempfile::tempdir().unwrap();
        let now = SystemTime::UNIX_EPOCH + DAY * 20_000;
        let prepare = |names: &[&str], now| {
            let names: Vec<String> = names.iter().map(|name| (*name).to_owned()).collect();
            Credentials::prepare(&directory.path().join("c"), &names, now).unwrap()
        };
        let first = prepare(&["10.0.0.1"], now);
        for file in ["ca.key", "server.key", "admin.token"] {
            let meta = fs::metadata(directory.path().join("c").join(file)).unwrap();
            assert_eq!(meta.permissions().mode() & 0o777, 0o600, "{file}");
        }
        first.tls().config().unwrap();
        let again = prepare(&["10.0.0.1"], now + DAY);
        assert_eq!((&again.certificate, &again.token), (&first.certificate, &first.token));
        let renamed = prepare(&["mesh.example"], now + DAY);
        assert_ne!(renamed.certificate, first.certificate);
        assert_eq!(renamed.authority, first.authority);
        let later = prepare(&["mesh.example"], now + DAY * 340);
        assert_ne!(later.certificate, renamed.certificate);
        let much_later = prepare(&["mesh.example"], now + DAY * 3300);
        assert_ne!(much_later.authority, first.authority);
        assert_eq!(much_later.token, first.token);
        // The clock was wrong when they were generated.
        let earlier = prepare(&["mesh.example"], now + DAY * 3000);
        assert_ne!(earlier.authority, much_later.authority);
        assert_ne!(earlier.certificate, much_later.certificate);
        assert!(!format!("{first:?} {:?} {:?}", first.tls(), first.admin()).contains(&first.token));
        assert!(first.kubeconfig("https://127.0.0.1:1").contains(&first.token));
        let file = directory.path().join("c/kubeconfig");
        let written = |server: &str| {
            first.write_kubeconfig(&file, server).unwrap();
            fs::metadata(&file).unwrap().ino()
        };
        let inode = written("https://127.0.0.1:1");
        assert_eq!(written("https://127.0.0.1:1"), inode, "it is not written again");
        assert_ne!(written("https://127.0.0.1:2"), inode);
    }
}
