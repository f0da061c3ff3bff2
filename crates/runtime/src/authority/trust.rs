//! Gathers the roots of the mesh: those of the authority, of MeshConfig, and of the bundles of other trust domains.

use std::collections::BTreeMap;
use std::sync::Arc;

use ca::revocation::RevocationLists;
use ca::trust::Source;
use ca::{Certificate, TrustBundle};
use config::MeshConfig;
use config::mesh::CertificateSource;
use names::TrustDomain;

/// The roots of each bundle endpoint, by URL.
pub(super) type Bundles = BTreeMap<Arc<str>, Vec<Certificate>>;

/// The roots by trust domain and source, and the trust domains of the mesh. Equal values give equal trust bundles.
#[derive(Clone, PartialEq, Debug)]
pub(super) struct Roots {
    own: TrustDomain,
    aliases: Vec<TrustDomain>,
    entries: BTreeMap<(TrustDomain, Source), Vec<Certificate>>,
    revocation: Option<Arc<str>>,
}

impl Roots {
    /// Gathers the roots. `authority` are the roots of the issuer, and `revocation` its revocation lists. Entries that cannot be
    /// used are left out and named in the second value.
    pub(super) fn gather(
        mesh: &MeshConfig,
        authority: &[Certificate],
        revocation: Option<&str>,
        bundles: &Bundles,
    ) -> (Roots, Vec<String>) {
        let mut problems = Vec::new();
        let own = own_domain(mesh);
        let aliases = mesh.trust_domain_aliases.iter().filter_map(|alias| TrustDomain::parse(alias).ok()).collect();
        let mut roots = Roots { own, aliases, entries: BTreeMap::new(), revocation: revocation.map(Into::into) };
        roots.add(&[], Source::Authority, authority);
        for (number, entry) in mesh.ca_certificates.iter().enumerate() {
            let problem = |text: String| format!("MeshConfig.caCertificates[{number}]: {text}");
            let (mut domains, mut invalid) = (Vec::new(), false);
            for domain in &entry.trust_domains {
                match TrustDomain::parse(domain) {
                    Ok(domain) => domains.push(domain),
                    Err(error) => {
                        invalid = true;
                        problems.push(problem(format!("trustDomains: {error}")));
                    }
                }
            }
            // A root for a domain that is not valid must not become one of the mesh's own domain.
            if invalid && domains.is_empty() {
                continue;
            }
            match &entry.data {
                Some(CertificateSource::Pem(pem)) => match authorities(pem) {
                    Ok(found) => roots.add(&domains, Source::MeshConfig, &found),
                    Err(text) => problems.push(problem(format!("pem: {text}"))),
                },
                // Until the bundle is read, there are no roots.
                Some(CertificateSource::SpiffeBundleUrl(url)) => {
                    if let Some(found) = bundles.get(url) {
                        roots.add(&domains, Source::SpiffeBundle, found);
                    }
                }
                None => problems.push(problem("it has neither pem nor spiffeBundleUrl".to_owned())),
            }
        }
        (roots, problems)
    }

    /// Adds roots for trust domains; for the mesh's own without any.
    fn add(&mut self, domains: &[TrustDomain], source: Source, certificates: &[Certificate]) {
        let own = [self.own.clone()];
        let domains = if domains.is_empty() { &own } else { domains };
        for domain in domains {
            let entry = self.entries.entry((domain.clone(), source)).or_default();
            let new = certificates.iter().filter(|one| one.is_authority());
            for certificate in new {
                if !entry.contains(certificate) {
                    entry.push(certificate.clone());
                }
            }
        }
    }

    /// The trust bundle.
    pub(super) fn bundle(&self, lists: RevocationLists) -> TrustBundle {
        let mut bundle = TrustBundle::new(self.own.clone(), self.aliases.iter().cloned());
        for ((domain, source), certificates) in &self.entries {
            if let Err(error) = bundle.replace(domain, *source, certificates) {
                // They were checked before; a certificate that cannot be an anchor is left out with the others of its source.
                tracing::warn!(%domain, %error, "roots are not used");
            }
        }
        bundle.set_revocation(lists);
        bundle
    }
}

/// The trust domain of the mesh.
pub(super) fn own_domain(mesh: &MeshConfig) -> TrustDomain {
    TrustDomain::parse(&mesh.trust_domain).unwrap_or_default()
}

/// The roots of MeshConfig for a signer (`certSigners`).
pub(super) fn signer_roots(mesh: &MeshConfig, signer: &str) -> Vec<Certificate> {
    let of_signer = |signers: &[Arc<str>]| signers.iter().any(|one| **one == *signer);
    let entries = mesh.ca_certificates.iter().filter(|entry| of_signer(&entry.cert_signers));
    let found = entries.filter_map(|entry| match &entry.data {
        Some(CertificateSource::Pem(pem)) => authorities(pem).ok(),
        _ => None,
    });
    found.flatten().collect()
}

/// The roots of MeshConfig for any signer.
pub(super) fn all_signer_roots(mesh: &MeshConfig) -> Vec<Certificate> {
    let signers: std::collections::BTreeSet<&Arc<str>> =
        mesh.ca_certificates.iter().flat_map(|entry| &entry.cert_signers).collect();
    signers.into_iter().flat_map(|signer| signer_roots(mesh, signer)).collect()
}

fn authorities(pem: &str) -> Result<Vec<Certificate>, String> {
    let found = Certificate::list(pem.as_bytes()).map_err(|error| error.to_string())?;
    match found.iter().find(|certificate| !certificate.is_authority()) {
        None => Ok(found),
        Some(other) => Err(format!("{} is not a certificate authority", other.subject())),
    }
}

#[cfg(test)]
mod tests {
    use std::time::SystemTime;

    use ca::KeyKind;
    use ca::self_signed::{Settings, create};
    use config::mesh::CertificateData;

    use super::*;

    fn root(name: &str) -> Certificate {
        let settings = Settings { key: KeyKind::P256, ..Settings::new(name) };
        create(&settings, SystemTime::now()).unwrap().issuer().clone()
    }

    fn entry(data: CertificateSource, domains: &[&str]) -> CertificateData {
        let trust_domains = domains.iter().map(|domain| (*domain).into()).collect();
        CertificateData { data: Some(data), trust_domains, ..CertificateData::default() }
    }

    fn pem(certificate: &Certificate) -> CertificateSource {
        CertificateSource::Pem(certificate.pem().into())
    }

    #[test]
    fn roots_belong_to_the_domains_that_mesh_config_names() {
        let (own, more, theirs, bundled) = (root("own"), root("more"), root("theirs"), root("bundled"));
        let url: Arc<str> = "https://example.com/bundle".into();
        let mesh = MeshConfig {
            trust_domain: "new".into(),
            trust_domain_aliases: vec!["old".into()],
            ca_certificates: vec![
                entry(pem(&more), &[]),
                entry(pem(&theirs), &["theirs"]),
                entry(CertificateSource::SpiffeBundleUrl(url.clone()), &["bundled"]),
            ],
            ..MeshConfig::default()
        };
        let bundles = Bundles::from([(url, vec![bundled.clone()])]);
        let (roots, problems) = Roots::gather(&mesh, std::slice::from_ref(&own), None, &bundles);
        assert!(problems.is_empty(), "{problems:?}");
        let bundle = roots.bundle(RevocationLists::default());
        let now = SystemTime::now();
        let of = |domain: &str| bundle.pem(&TrustDomain::parse(domain).unwrap(), now);
        for domain in ["new", "old"] {
            assert!(of(domain).contains(&own.pem()) && of(domain).contains(&more.pem()), "{domain}");
            assert!(!of(domain).contains(&theirs.pem()));
        }
        assert_eq!(of("theirs"), theirs.pem());
        assert_eq!(of("bundled"), bundled.pem());
        assert_eq!(of("other"), "");
    }

    #[test]
    fn a_broken_entry_is_named_and_the_others_are_used() {
        let (own, more) = (root("own"), root("more"));
        let broken = CertificateSource::Pem("nothing".into());
        let mesh = MeshConfig {
            ca_certificates: vec![
                entry(broken, &[]),
                entry(pem(&more), &["a b"]),
                CertificateData::default(),
                entry(pem(&more), &["good"]),
            ],
            ..MeshConfig::default()
        };
        let (roots, problems) = Roots::gather(&mesh, std::slice::from_ref(&own), None, &Bundles::new());
        assert_eq!(problems.len(), 3, "{problems:?}");
        assert!(problems[0].starts_with("MeshConfig.caCertificates[0]: pem: has no certificate"), "{problems:?}");
        let bundle = roots.bundle(RevocationLists::default());
        assert_eq!(bundle.pem(&TrustDomain::default(), SystemTime::now()), own.pem());
    }

    #[test]
    fn roots_of_a_signer_are_found() {
        let gold = root("gold");
        let signers = vec!["example.com/gold".into(), "example.com/silver".into()];
        let data = CertificateData { cert_signers: signers, ..entry(pem(&gold), &[]) };
        let mesh = MeshConfig { ca_certificates: vec![data], ..MeshConfig::default() };
        assert_eq!(signer_roots(&mesh, "example.com/silver"), std::slice::from_ref(&gold));
        assert!(signer_roots(&mesh, "example.com/iron").is_empty());
        assert_eq!(all_signer_roots(&mesh), [gold.clone(), gold]);
    }
}
