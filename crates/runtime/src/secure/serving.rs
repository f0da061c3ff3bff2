//! The certificate of the TLS ports: from files, or issued by the control plane's own authority and renewed while it is used.
//!
//! As in istiod, files that flags name go before files in istiod's mount, and those before the own authority.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use anyhow::{Context as _, Result, bail};
use ca::serving::{Names, ServingCertificate};
use ca::trust::Source;
use ca::{Authority, Certificate};
use config::MeshConfig;
use names::TrustDomain;
use rustls::crypto::aws_lc_rs;
use rustls::sign::CertifiedKey;
use rustls_pki_types::pem::PemObject as _;
use rustls_pki_types::{CertificateDer, PrivateKeyDer};
use server::signing::{Issuer, Signing, Watched};
use server::{Metric, ServingStatus};
use settings::Settings;
use tokio::sync::watch;
use tokio::task::JoinSet;

use super::{backend, reason};
use crate::authority::STARTING;
use crate::replica;

/// The directories of istiod's mounts.
const MOUNT: &str = "/var/run/secrets/istiod/tls";
const MOUNTED_ROOT: &str = "/var/run/secrets/istiod/ca/root-cert.pem";
/// The interval of looks at files.
const LOOK: Duration = Duration::from_secs(5);
/// The longest time between two looks at the clock.
const LONGEST_SLEEP: Duration = Duration::from_secs(3600);
/// The part of `/ready`.
const PART: &str = "TLS port";

/// The newest certificate of the ports.
type Current = watch::Sender<Option<Arc<CertifiedKey>>>;

/// The files of a certificate.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Files {
    certificate: PathBuf,
    key: PathBuf,
    /// The file with further roots for client certificates.
    roots: Option<PathBuf>,
}

/// The content of the files.
#[derive(Clone, PartialEq, Eq)]
struct Content {
    certificate: Vec<u8>,
    key: Vec<u8>,
    roots: Option<Vec<u8>>,
}

impl Files {
    /// The files that the settings or istiod's mount have.
    ///
    /// # Errors
    /// Only one of certificate and key is set.
    pub(super) fn of(settings: &Settings) -> Result<Option<Files>> {
        match (&settings.tls_cert_file, &settings.tls_key_file) {
            (Some(certificate), Some(key)) => Ok(Some(Files {
                certificate: certificate.clone(),
                key: key.clone(),
                roots: settings.ca_cert_file.clone(),
            })),
            (None, None) => Ok(Files::mounted(Path::new(MOUNT), Path::new(MOUNTED_ROOT))),
            _ => bail!("--tls-cert-file and --tls-key-file must be set together"),
        }
    }

    fn mounted(mount: &Path, root: &Path) -> Option<Files> {
        let (certificate, key) = (mount.join("tls.crt"), mount.join("tls.key"));
        let roots = [root.to_owned(), mount.join("ca.crt")].into_iter().find(|file| file.exists());
        (certificate.exists() && key.exists()).then_some(Files { certificate, key, roots })
    }

    /// Reads the files; blocks.
    fn read(&self) -> Result<Content> {
        let read = |path: &Path| {
            let text = fs::read(path).with_context(|| path.display().to_string())?;
            anyhow::ensure!(text.len() <= ca::certificate::MAX_PEM, "{}: the file is too large", path.display());
            Ok(text)
        };
        Ok(Content {
            certificate: read(&self.certificate)?,
            key: read(&self.key)?,
            roots: self.roots.as_deref().map(read).transpose()?,
        })
    }

    /// Parses the content. Returns the certificate, the moment at which it expires, and the further roots.
    fn parse(&self, content: &Content) -> Result<(Arc<CertifiedKey>, SystemTime, Vec<Certificate>)> {
        let named = |path: &Path| path.display().to_string();
        let chain = Certificate::list(&content.certificate).with_context(|| named(&self.certificate))?;
        let key = PrivateKeyDer::from_pem_slice(&content.key);
        // The error must not show the content.
        let key = key.map_err(|_| anyhow::anyhow!("it has no private key in PEM")).with_context(|| named(&self.key))?;
        let ders = chain.iter().map(|certificate| certificate.der().clone()).collect();
        let certified = certified(ders, &key).with_context(|| named(&self.key))?;
        let end = chain.iter().map(Certificate::not_after).min().unwrap_or(SystemTime::UNIX_EPOCH);
        let roots = match (&self.roots, &content.roots) {
            (Some(file), Some(text)) => Certificate::list(text).with_context(|| named(file))?,
            _ => Vec::new(),
        };
        Ok((certified, end, roots))
    }
}

/// A certificate chain with its key.
fn certified(chain: Vec<CertificateDer<'static>>, key: &PrivateKeyDer<'_>) -> Result<Arc<CertifiedKey>> {
    let key = aws_lc_rs::sign::any_supported_type(key).context("the key is of an unsupported kind")?;
    let certified = CertifiedKey::new(chain, key);
    certified.keys_match().context("the certificate is not that of the key")?;
    Ok(Arc::new(certified))
}

/// The certificate of the ports, and what it depends on.
pub(super) struct Serving {
    files: Option<Files>,
    /// The authority.
    signing: Watched,
    /// The authority, with the roots in the file added.
    extended: watch::Sender<Arc<Signing>>,
    current: Current,
    mesh: watch::Receiver<Arc<MeshConfig>>,
    custom: String,
    namespace: String,
    revision: String,
    /// Further names and addresses.
    own_names: Vec<String>,
}

impl Serving {
    pub(super) fn new(
        settings: &Settings,
        files: Option<Files>,
        signing: Watched,
        mesh: watch::Receiver<Arc<MeshConfig>>,
    ) -> Serving {
        // On a machine, there is no Service with a name.
        let own_names = match backend::in_a_pod() {
            true => Vec::new(),
            false => vec!["localhost".to_owned(), "127.0.0.1".to_owned(), "::1".to_owned(), replica::hostname()],
        };
        let extended = watch::Sender::new(signing.borrow().clone());
        Serving {
            files,
            signing,
            extended,
            current: watch::Sender::new(None),
            mesh,
            custom: settings.custom_hosts.as_str().to_owned(),
            namespace: settings.namespace.clone(),
            revision: settings.revision.as_str().to_owned(),
            own_names,
        }
    }

    /// The authority and all roots for client certificates.
    pub(super) fn signing(&self) -> Watched {
        match &self.files {
            None => self.signing.clone(),
            Some(_) => self.extended.subscribe(),
        }
    }

    /// The certificate of the ports.
    pub(super) fn certificate(&self) -> watch::Receiver<Option<Arc<CertifiedKey>>> {
        self.current.subscribe()
    }

    /// Keeps the certificate current.
    pub(super) fn run(self, tasks: &mut JoinSet<()>, status: ServingStatus) {
        let status = Status { status, last: None };
        match self.files.clone() {
            Some(files) => drop(tasks.spawn(self.follow_files(files, status))),
            None => drop(tasks.spawn(self.issue(status))),
        }
    }

    /// Follows the files. Content that cannot be used does not replace the certificate in use.
    async fn follow_files(mut self, files: Files, mut status: Status) {
        let (mut known, mut roots) = (None, Vec::new());
        let mut published: Option<Arc<Signing>> = None;
        let mut added: Option<(Roots, Roots)> = None;
        loop {
            let (reader, before) = (files.clone(), known.clone());
            let read = tokio::task::spawn_blocking(move || {
                let content = reader.read()?;
                let parsed = match before.as_ref() == Some(&content) {
                    true => None,
                    false => Some(reader.parse(&content)?),
                };
                Ok::<_, anyhow::Error>((content, parsed))
            });
            match read.await {
                Ok(Ok((content, Some((certified, end, further))))) => {
                    known = Some(content);
                    roots = further;
                    added = None;
                    self.current.send_replace(Some(certified));
                    status.served(&format!("the certificate in {}", files.certificate.display()), end);
                }
                Ok(Ok((_, None))) => {}
                Ok(Err(error)) => status.failing(&format!("{error:#}")),
                Err(_) => return,
            }
            let now = self.signing.borrow_and_update().clone();
            let domain = super::trust_domain(&self.mesh);
            let is_same = added.as_ref().is_some_and(|(base, _)| Arc::ptr_eq(base, &now.trust));
            if !is_same {
                added = Some((now.trust.clone(), with_roots(&now, &domain, &roots)));
            }
            let is_published = published.as_ref().is_some_and(|last| is_same && Arc::ptr_eq(last, &now));
            if !is_published && let Some((_, trust)) = &added {
                let signing = Signing { issuer: now.issuer.clone(), trust: trust.clone() };
                self.extended.send_replace(Arc::new(signing));
                published = Some(now);
            }
            tokio::select! {
                () = tokio::time::sleep(LOOK) => {}
                // If the sender is gone, the last authority stays.
                Ok(()) = self.signing.changed() => {}
            }
        }
    }

    /// Issues the certificate, and renews it.
    async fn issue(mut self, mut status: Status) {
        let mut issued: Option<ServingCertificate> = None;
        loop {
            let signing = self.signing.borrow_and_update().clone();
            let names = self.names();
            let now = SystemTime::now();
            let authority = match &signing.issuer {
                Issuer::Own(authority) => Some(authority.clone()),
                Issuer::External(external) => external.own_authority(),
                Issuer::Unavailable(_) => None,
            };
            match &authority {
                Some(authority) => {
                    let due = issued.as_ref().is_none_or(|last| last.renewal(authority, &names, now).is_some());
                    if due {
                        match issue(authority.clone(), names).await {
                            Ok((certificate, certified)) => {
                                self.current.send_replace(Some(certified));
                                status.served("a certificate of its own authority", certificate.not_after());
                                issued = Some(certificate);
                            }
                            Err(error) => status.failing(&format!("{error:#}")),
                        }
                    }
                }
                None => status.failing(
                    reason(&signing).unwrap_or("there is no own authority for the certificate of the control plane"),
                ),
            }
            let renew_at = issued.as_ref().map(ServingCertificate::renew_at);
            let left = renew_at.map_or(LONGEST_SLEEP, |at| at.duration_since(now).unwrap_or(LOOK));
            tokio::select! {
                () = tokio::time::sleep(left.clamp(LOOK, LONGEST_SLEEP)) => {}
                Ok(()) = self.signing.changed() => {}
                Ok(()) = self.mesh.changed() => {}
            }
        }
    }

    /// The names in the certificate.
    fn names(&mut self) -> Vec<String> {
        let mesh = self.mesh.borrow_and_update().clone();
        let address = &*mesh.default_config.discovery_address;
        let host = address.rsplit_once(':').map_or(address, |(host, _)| host);
        let (custom, namespace, revision) = (&*self.custom, &*self.namespace, &*self.revision);
        let names = Names { custom, discovery: host.trim_matches(['[', ']']), namespace, revision };
        let (mut valid, mut invalid) = names.list();
        let is_valid = |name: &&String| Names { custom: name.as_str(), ..names }.list().1.is_empty();
        valid.extend(self.own_names.iter().filter(is_valid).cloned());
        invalid.retain(|name| !name.is_empty());
        if !invalid.is_empty() {
            tracing::error!(
                ?invalid,
                "these names are neither DNS names nor addresses, and are not in the certificate"
            );
        }
        valid.sort_unstable();
        valid.dedup();
        valid
    }
}

/// The roots of an authority.
type Roots = Arc<ca::TrustBundle>;

/// The roots of an authority, and further ones for the mesh's trust domain.
fn with_roots(signing: &Signing, domain: &TrustDomain, roots: &[Certificate]) -> Arc<ca::TrustBundle> {
    if roots.is_empty() {
        return signing.trust.clone();
    }
    let mut trust = (*signing.trust).clone();
    if let Err(error) = trust.replace(domain, Source::File, roots) {
        tracing::error!(%error, "--ca-cert-file: not used for client certificates");
        return signing.trust.clone();
    }
    Arc::new(trust)
}

async fn issue(authority: Authority, names: Vec<String>) -> Result<(ServingCertificate, Arc<CertifiedKey>)> {
    let issued = tokio::task::spawn_blocking(move || {
        let certificate = ServingCertificate::issue(&authority, &names, SystemTime::now())?;
        let key = PrivateKeyDer::from_pem_slice(certificate.key.expose_pem().as_bytes());
        let key = key.map_err(|_| anyhow::anyhow!("the new key cannot be read"))?;
        let certified = certified(certificate.chain.clone(), &key)?;
        Ok((certificate, certified))
    });
    issued.await?
}

/// Shows in `/ready`, in `/metrics` and in the log whether there is a certificate.
struct Status {
    status: ServingStatus,
    /// The last line of the log.
    last: Option<String>,
}

impl Status {
    fn served(&mut self, what: &str, end: SystemTime) {
        self.last = None;
        let expiry = end.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default().as_secs_f64();
        let gauge = Metric::gauge(
            "rutter_tls_certificate_expiry_timestamp",
            "The time at which the certificate of the TLS ports expires, in seconds since 1970",
            expiry,
        );
        self.status.set(PART, Vec::new(), vec![gauge]);
        tracing::info!("the TLS ports use {what}");
    }

    fn failing(&mut self, why: &str) {
        if self.last.as_deref() != Some(why) {
            match why == STARTING {
                true => {
                    tracing::info!("the TLS ports get their certificate when the certificate authority has started")
                }
                false => {
                    tracing::error!(reason = why, "the TLS ports have no new certificate; one that is in use stays")
                }
            }
            self.status.set(PART, vec![format!("the TLS ports have no new certificate: {why}")], Vec::new());
            self.last = Some(why.to_owned());
        }
    }
}

#[cfg(test)]
mod tests {
    use ca::KeyKind;
    use ca::self_signed::{Settings as RootSettings, create};

    use super::*;

    fn authority() -> Authority {
        let settings = RootSettings { key: KeyKind::P256, ..RootSettings::new("cluster.local") };
        create(&settings, SystemTime::now()).expect("a root")
    }

    #[test]
    fn files_in_the_mount_are_found_and_checked() {
        let directory = tempfile::tempdir().expect("a directory");
        let root = directory.path().join("root-cert.pem");
        let find = || Files::mounted(directory.path(), &root);
        assert_eq!(find(), None);
        let (one, two) = (authority(), authority());
        let names = ["istiod.istio-system.svc".to_owned()];
        let issued = |authority| ServingCertificate::issue(authority, &names, SystemTime::now()).expect("issued");
        let (first, second) = (issued(&one), issued(&two));
        let put = |name: &str, text: &str| fs::write(directory.path().join(name), text).expect("written");
        put("tls.crt", &first.chain_pem());
        assert_eq!(find(), None, "the key is missing");
        put("tls.key", first.key.expose_pem());
        put("ca.crt", one.roots_pem());
        let files = find().expect("found");
        assert_eq!(files.roots, Some(directory.path().join("ca.crt")));
        let (_, _, roots) = files.parse(&files.read().expect("read")).expect("parsed");
        assert_eq!(roots, one.roots());
        put("tls.key", second.key.expose_pem());
        let error = format!("{:#}", files.parse(&files.read().expect("read")).expect_err("another key"));
        assert!(error.contains("is not that of the key") && error.contains("tls.key"), "{error}");
        put("tls.key", "nothing");
        let error = format!("{:#}", files.parse(&files.read().expect("read")).expect_err("no key"));
        assert!(error.contains("no private key") && !error.contains("nothing"), "{error}");
    }

    #[test]
    fn roots_in_the_file_verify_clients_of_the_mesh() {
        let (own, file) = (authority(), authority());
        let domain = TrustDomain::default();
        let mut trust = ca::TrustBundle::new(domain.clone(), []);
        trust.replace(&domain, Source::Authority, own.roots()).expect("roots");
        let signing = Signing { issuer: Issuer::Own(own), trust: Arc::new(trust) };
        let same = with_roots(&signing, &domain, &[]);
        assert!(Arc::ptr_eq(&same, &signing.trust), "open connections are not verified again");
        let more = with_roots(&signing, &domain, file.roots());
        assert_eq!(more.all_pem(SystemTime::now()).matches("BEGIN CERTIFICATE").count(), 2);
    }
}
