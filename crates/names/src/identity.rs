//! Trust domains and SPIFFE identities.

use std::fmt;
use std::sync::Arc;

use crate::NameError;

/// A trust domain such as `cluster.local`: the authority of SPIFFE identities.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub struct TrustDomain(Arc<str>);

impl TrustDomain {
    /// Parses a trust domain: 1 to 255 letters, digits, `.`, `-`, `_`. An `@`, which legacy platforms use, becomes `.`.
    pub fn parse(text: &str) -> Result<TrustDomain, NameError> {
        let clean = text.replace('@', ".");
        let good = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'.' | b'-' | b'_');
        if clean.is_empty() || clean.len() > 255 || !clean.bytes().all(good) {
            return Err(NameError::new(text, "is not a trust domain: letters, digits, dots, dashes and underscores"));
        }
        Ok(TrustDomain(clean.into()))
    }

    /// The text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl Default for TrustDomain {
    /// `cluster.local`.
    fn default() -> TrustDomain {
        TrustDomain("cluster.local".into())
    }
}

impl fmt::Display for TrustDomain {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// The identity of a workload: `spiffe://TRUST_DOMAIN/ns/NAMESPACE/sa/SERVICE_ACCOUNT`.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub struct Identity {
    /// The trust domain.
    pub trust_domain: TrustDomain,
    /// The workload's namespace.
    pub namespace: Arc<str>,
    /// The workload's service account.
    pub service_account: Arc<str>,
}

impl Identity {
    /// Parses the URI form.
    pub fn parse(text: &str) -> Result<Identity, NameError> {
        let error = || NameError::new(text, "is not spiffe://TRUST_DOMAIN/ns/NAMESPACE/sa/SERVICE_ACCOUNT");
        let path = text.strip_prefix("spiffe://").ok_or_else(error)?;
        let parts: Vec<&str> = path.splitn(6, '/').collect();
        let [domain, "ns", namespace, "sa", account] = parts[..] else {
            return Err(error());
        };
        if namespace.is_empty() || account.is_empty() || domain.contains('@') {
            return Err(error());
        }
        let trust_domain = TrustDomain::parse(domain)?;
        Ok(Identity { trust_domain, namespace: namespace.into(), service_account: account.into() })
    }
}

impl fmt::Display for Identity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "spiffe://{}/ns/{}/sa/{}", self.trust_domain, self.namespace, self.service_account)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn identity_parses_back() {
        let text = "spiffe://cluster.local/ns/default/sa/bookinfo-reviews";
        assert_eq!(Identity::parse(text).unwrap().to_string(), text);
    }

    #[test]
    fn rejects_malformed_text() {
        for bad in [
            "",
            "spiffe://td",
            "http://td/ns/a/sa/b",
            "spiffe://td/ns/a/sa/b/c",
            "spiffe:///ns/a/sa/b",
            "spiffe://td/ns//sa/b",
            "spiffe://td/sa/a/ns/b",
            "spiffe://t d/ns/a/sa/b",
        ] {
            assert!(Identity::parse(bad).is_err(), "{bad}");
        }
        assert_eq!(TrustDomain::parse("a@b").unwrap().as_str(), "a.b");
    }
}
