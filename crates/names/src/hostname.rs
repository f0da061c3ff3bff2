//! Hostnames and wildcards.

use std::cmp::Ordering;
use std::fmt;
use std::net::IpAddr;
use std::sync::Arc;

use crate::{NameError, dns};

/// A lower-case DNS name, an IP address, `*`, or a wildcard such as `*.example.com`.
///
/// A wildcard covers one or more labels: `*.example.com` covers `a.b.example.com` but not `example.com`.
/// `Ord` is the order of the text; [`Hostname::by_specificity`] is the order of matching.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Hostname(Arc<str>);

impl Hostname {
    /// Parses a hostname. Converts it to lower case and removes one trailing dot.
    ///
    /// Accepts DNS names of relaxed labels (which may contain `_`), the same after `*.`, `*` alone, wildcards whose
    /// star is the first character of a label (`*-a.example.com`, as in Envoy), and IP addresses.
    pub fn parse(text: &str) -> Result<Hostname, NameError> {
        let lowered = text.strip_suffix('.').unwrap_or(text).to_ascii_lowercase();
        if lowered.len() > dns::MAX_NAME {
            return Err(NameError::new(text, "is longer than 253 characters"));
        }
        let rest = lowered.strip_prefix('*').unwrap_or(&lowered);
        let starred = rest.len() < lowered.len();
        let valid = match rest {
            "" => starred,
            _ if starred && rest.starts_with('.') => rest[1..].split('.').all(dns::is_relaxed_label),
            _ if starred => rest.trim_start_matches('-').split('.').all(dns::is_relaxed_label),
            _ => rest.split('.').all(dns::is_relaxed_label) || rest.parse::<IpAddr>().is_ok(),
        };
        if !valid {
            return Err(NameError::new(
                text,
                "is not a hostname: labels of letters, digits and dashes, '*' only in front",
            ));
        }
        Ok(Hostname(lowered.into()))
    }

    /// Returns the full name of a host as written in an object of `namespace`. A name without a dot is that of a
    /// Kubernetes service in this namespace (`reviews` → `reviews.NAMESPACE.svc.DOMAIN`); any other is already full.
    pub fn resolve(text: &str, namespace: &str, domain: &str) -> Result<Hostname, NameError> {
        if text.starts_with('*') || text.contains('.') || text.contains(':') {
            return Hostname::parse(text);
        }
        Hostname::parse(&format!("{text}.{namespace}.svc.{domain}"))
    }

    /// The hostname of a Kubernetes service: `NAME.NAMESPACE.svc.DOMAIN`.
    pub fn of_service(name: &str, namespace: &str, domain: &str) -> Result<Hostname, NameError> {
        Hostname::parse(&format!("{name}.{namespace}.svc.{domain}"))
    }

    /// The text.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// The text, to be shared.
    pub fn as_arc(&self) -> &Arc<str> {
        &self.0
    }

    /// Whether this is a wildcard.
    pub fn is_wildcard(&self) -> bool {
        self.0.starts_with('*')
    }

    /// Whether this is `*`, which covers every host.
    pub fn is_everything(&self) -> bool {
        &*self.0 == "*"
    }

    /// Whether there is a host that both cover. Symmetric.
    pub fn matches(&self, other: &Hostname) -> bool {
        self.subset_of(other) || other.subset_of(self)
    }

    /// Whether `other` covers every host that this name covers.
    pub fn subset_of(&self, other: &Hostname) -> bool {
        match (self.suffix(), other.suffix()) {
            (None, None) => self.0 == other.0,
            (None, Some(suffix)) => self.0.len() > suffix.len() && self.0.ends_with(suffix),
            (Some(mine), Some(suffix)) => mine.ends_with(suffix),
            (Some(_), None) => false,
        }
    }

    /// Orders by specificity: hosts before wildcards, then longer before shorter, then by text.
    pub fn by_specificity(&self, other: &Hostname) -> Ordering {
        (self.is_wildcard().cmp(&other.is_wildcard()))
            .then_with(|| other.0.len().cmp(&self.0.len()))
            .then_with(|| self.0.cmp(&other.0))
    }

    /// The part of a wildcard after the star.
    fn suffix(&self) -> Option<&str> {
        self.0.strip_prefix('*')
    }
}

impl fmt::Display for Hostname {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl fmt::Debug for Hostname {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&self.0, f)
    }
}

impl AsRef<str> for Hostname {
    fn as_ref(&self) -> &str {
        &self.0
    }
}

impl std::str::FromStr for Hostname {
    type Err = NameError;

    fn from_str(text: &str) -> Result<Hostname, NameError> {
        Hostname::parse(text)
    }
}

#[cfg(feature = "serde")]
impl serde::Serialize for Hostname {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&self.0)
    }
}

#[cfg(feature = "serde")]
impl<'de> serde::Deserialize<'de> for Hostname {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Hostname, D::Error> {
        let text = <std::borrow::Cow<'de, str>>::deserialize(deserializer)?;
        Hostname::parse(&text).map_err(serde::de::Error::custom)
    }
}
