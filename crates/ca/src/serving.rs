//! The certificate of the control plane's own ports 15012 and 15017, issued by its own authority.

use std::collections::BTreeSet;
use std::net::IpAddr;
use std::time::{Duration, SystemTime};

use names::dns::is_subdomain;
use rustls_pki_types::CertificateDer;

use crate::authority::{Authority, IssueError};
use crate::certificate::{Certificate, pem};
use crate::der::AlternativeName;
use crate::key::{KeyKind, PrivateKey};

/// The lifetime of the certificate. istiod uses that of its root, 10 years; Rutter renews it while it serves.
pub const LIFETIME: Duration = Duration::from_secs(90 * 86_400);

/// The facts that decide about the names of the certificate.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Names<'a> {
    /// `ISTIOD_CUSTOM_HOST`: a list with commas.
    pub custom: &'a str,
    /// The host of `defaultConfig.discoveryAddress` in MeshConfig.
    pub discovery: &'a str,
    /// The namespace of the control plane.
    pub namespace: &'a str,
    /// The revision; empty or `default` has no name of its own.
    pub revision: &'a str,
}

impl Names<'_> {
    /// The names, sorted as istiod sorts them. The second list has entries that are neither names nor addresses; they are
    /// left out.
    pub fn list(&self) -> (Vec<String>, Vec<String>) {
        let own = |name: &str| format!("{name}.{}.svc", self.namespace);
        let mut names: BTreeSet<String> = ["istiod", "istiod-remote", "istio-pilot"].map(own).into();
        if !matches!(self.revision, "" | "default") {
            names.insert(own(&format!("istiod-{}", self.revision)));
        }
        let configured = self.custom.split(',').chain([self.discovery]).map(str::trim);
        names.extend(configured.filter(|name| !name.is_empty()).map(str::to_owned));
        names.into_iter().partition(|name| alternative_name(name).is_some())
    }
}

/// A certificate of the control plane, with its key.
#[derive(Clone, Debug)]
pub struct ServingCertificate {
    /// The certificates to present, leaf first.
    pub chain: Vec<CertificateDer<'static>>,
    /// The private key.
    pub key: PrivateKey,
    names: Vec<String>,
    issued: SystemTime,
    not_after: SystemTime,
    issuer: Certificate,
}

/// A reason to renew the certificate.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Renewal {
    /// The authority has another issuing certificate: it was rotated or replaced.
    Issuer,
    /// The names differ.
    Names,
    /// Half of the life is over.
    HalfLife,
}

impl ServingCertificate {
    /// Issues a certificate for names and addresses with a new key of the authority's kind, as istiod does.
    ///
    /// # Errors
    /// The issuer has expired, a name is not valid, or the key cannot be generated.
    pub fn issue(authority: &Authority, names: &[String], now: SystemTime) -> Result<ServingCertificate, IssueError> {
        if names.is_empty() {
            return Err(IssueError::Name(String::new()));
        }
        let alternative = |name: &String| alternative_name(name).ok_or_else(|| IssueError::Name(name.clone()));
        let alternatives = names.iter().map(alternative).collect::<Result<Vec<_>, _>>()?;
        let key = PrivateKey::generate(match authority.key().kind() {
            KeyKind::Rsa(_) => KeyKind::default(),
            curve => curve,
        })?;
        let issued = authority.leaf(&key.public_key(), None, &alternatives, LIFETIME, now)?;
        Ok(ServingCertificate {
            chain: issued.presented(),
            key,
            names: names.to_vec(),
            issued: now,
            not_after: issued.not_after,
            issuer: authority.issuer().clone(),
        })
    }

    /// The certificates to present in PEM.
    pub fn chain_pem(&self) -> String {
        self.chain.iter().map(|certificate| pem("CERTIFICATE", certificate)).collect()
    }

    /// The moment at which the certificate expires.
    pub fn not_after(&self) -> SystemTime {
        self.not_after
    }

    /// The moment at which half of the life is over.
    pub fn renew_at(&self) -> SystemTime {
        self.issued + self.not_after.duration_since(self.issued).unwrap_or_default() / 2
    }

    /// Decides whether the certificate must be replaced.
    pub fn renewal(&self, authority: &Authority, names: &[String], now: SystemTime) -> Option<Renewal> {
        if self.issuer != *authority.issuer() {
            Some(Renewal::Issuer)
        } else if self.names != names {
            Some(Renewal::Names)
        } else {
            (now >= self.renew_at()).then_some(Renewal::HalfLife)
        }
    }
}

fn alternative_name(name: &str) -> Option<AlternativeName> {
    if let Ok(address) = name.parse::<IpAddr>() {
        return Some(AlternativeName::Ip(address.to_canonical()));
    }
    let lower = name.to_ascii_lowercase();
    let is_name = is_subdomain(lower.strip_prefix("*.").unwrap_or(&lower));
    is_name.then_some(AlternativeName::Dns(lower))
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use rustls::RootCertStore;
    use rustls::client::WebPkiServerVerifier;
    use rustls::client::danger::ServerCertVerifier as _;
    use rustls_pki_types::{ServerName, UnixTime};

    use super::*;
    use crate::self_signed::rotate;
    use crate::tests::{DAY, now, root};

    const NAMES: Names<'_> =
        Names { custom: "", discovery: "istiod.istio-system.svc", namespace: "istio-system", revision: "" };

    #[test]
    fn the_names_are_those_of_istiod() {
        let names = |names: Names<'_>| names.list().0;
        let plain = ["istio-pilot.istio-system.svc", "istiod-remote.istio-system.svc", "istiod.istio-system.svc"];
        assert_eq!(names(NAMES), plain);
        assert_eq!(names(Names { revision: "default", ..NAMES }), plain);
        let all = names(Names { revision: "canary", custom: "Mesh.example.com, 10.0.0.1", ..NAMES });
        for name in ["istiod-canary.istio-system.svc", "Mesh.example.com", "10.0.0.1"] {
            assert!(all.contains(&name.to_owned()), "{all:?}");
        }
        assert_eq!(Names { custom: "a b,c", ..NAMES }.list().1, ["a b"]);
    }

    #[test]
    fn clients_accept_the_certificate_for_its_names_only() {
        let authority = root("cluster.local", now());
        let names = ["istiod.istio-system.svc".to_owned(), "10.0.0.1".to_owned()];
        let certificate = ServingCertificate::issue(&authority, &names, now()).unwrap();
        let mut store = RootCertStore::empty();
        store.add(authority.roots()[0].der().clone()).unwrap();
        let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
        let verifier = WebPkiServerVerifier::builder_with_provider(Arc::new(store), provider).build().unwrap();
        let time = UnixTime::since_unix_epoch(now().duration_since(SystemTime::UNIX_EPOCH).unwrap());
        let verify = |name: &str| {
            let name = ServerName::try_from(name.to_owned()).unwrap();
            verifier.verify_server_cert(&certificate.chain[0], &certificate.chain[1..], &name, &[], time).is_ok()
        };
        assert!(verify("istiod.istio-system.svc") && verify("10.0.0.1"));
        assert!(!verify("istiod.other.svc") && !verify("10.0.0.2"));
        assert!(!format!("{certificate:?}").contains("PRIVATE"));
    }

    #[test]
    fn it_is_renewed_for_a_new_issuer_new_names_or_after_half_of_its_life() {
        let authority = root("cluster.local", now());
        let names = NAMES.list().0;
        let certificate = ServingCertificate::issue(&authority, &names, now()).unwrap();
        assert_eq!(certificate.renewal(&authority, &names, now() + DAY * 44), None);
        assert_eq!(certificate.renewal(&authority, &names, now() + DAY * 45), Some(Renewal::HalfLife));
        assert_eq!(certificate.renewal(&authority, &names[1..], now()), Some(Renewal::Names));
        let settings = crate::self_signed::Settings::new("cluster.local");
        let rotated = rotate(&authority, &settings, now() + DAY).unwrap();
        assert_eq!(certificate.renewal(&rotated, &names, now()), Some(Renewal::Issuer));
        assert!(ServingCertificate::issue(&authority, &[], now()).is_err());
        assert!(ServingCertificate::issue(&authority, &["a b".to_owned()], now()).is_err());
        let end = authority.issuer().not_after();
        let last = ServingCertificate::issue(&authority, &names, end - DAY).unwrap();
        assert_eq!(last.not_after, end);
    }
}
