//! References to images.

use std::net::IpAddr;

/// The registry of images without one.
const DEFAULT_REGISTRY: &str = "index.docker.io";

/// A reference to an image: `[REGISTRY/]REPOSITORY[:TAG][@DIGEST]`.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Reference {
    /// The host, and the port if there is one.
    pub(super) registry: String,
    pub(super) repository: String,
    pub(super) tag: Option<String>,
    /// The digest of the manifest, with its algorithm.
    pub(super) digest: Option<String>,
}

impl Reference {
    /// Parses a reference.
    pub(super) fn parse(text: &str) -> Option<Reference> {
        let (text, digest) = text.split_once('@').map_or((text, None), |(text, digest)| (text, Some(digest)));
        let (text, tag) = match text.rsplit_once(':') {
            Some((before, tag)) if !tag.contains('/') => (before, Some(tag)),
            _ => (text, None),
        };
        let is_host = |host: &str| host.contains(['.', ':']) || host == "localhost";
        let (registry, repository) = match text.split_once('/') {
            Some((host, repository)) if is_host(host) => (host, repository.to_owned()),
            Some(_) => (DEFAULT_REGISTRY, text.to_owned()),
            None => (DEFAULT_REGISTRY, format!("library/{text}")),
        };
        let registry = if registry == "docker.io" { DEFAULT_REGISTRY } else { registry };
        let word = |text: &str, more: &str| {
            !text.is_empty() && text.len() <= 255 && text.chars().all(|c| c.is_ascii_alphanumeric() || more.contains(c))
        };
        let is_valid = word(registry, ".-:[]")
            && word(&repository, "._-/")
            && repository.split('/').all(|part| !part.trim_matches('.').is_empty())
            && tag.is_none_or(|tag| word(tag, "._-"))
            && digest.is_none_or(is_digest);
        is_valid.then(|| Reference {
            registry: registry.to_owned(),
            repository,
            tag: tag.map(str::to_owned),
            digest: digest.map(str::to_owned),
        })
    }

    /// The name without tag and digest.
    pub(super) fn name(&self) -> String {
        format!("oci://{}/{}", self.registry, self.repository)
    }

    /// The tag or digest by which the manifest is requested.
    pub(super) fn identifier(&self) -> &str {
        self.digest.as_deref().or(self.tag.as_deref()).unwrap_or("latest")
    }

    /// Whether the registry is on this machine or in a private network, where plain HTTP is usual.
    pub(super) fn is_local(&self) -> bool {
        let host = self.registry.rsplit_once(':').map_or(&*self.registry, |(host, _)| host);
        match host.trim_matches(['[', ']']).parse::<IpAddr>() {
            Ok(IpAddr::V4(ip)) => ip.is_loopback() || ip.is_private(),
            Ok(IpAddr::V6(ip)) => ip.is_loopback(),
            Err(_) => host == "localhost" || host.ends_with(".local"),
        }
    }
}

/// Whether this is a SHA-256 digest: the only algorithm that registries use.
pub(super) fn is_digest(text: &str) -> bool {
    text.strip_prefix("sha256:").is_some_and(|sum| sum.len() == 64 && sum.bytes().all(|b| b.is_ascii_hexdigit()))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn references_are_parsed() {
        let digest = format!("sha256:{}", "0".repeat(64));
        for (text, registry, repository, identifier) in [
            ("ghcr.io/a/b:v1", "ghcr.io", "a/b", "v1"),
            ("localhost:5000/a", "localhost:5000", "a", "latest"),
            ("a/b", DEFAULT_REGISTRY, "a/b", "latest"),
            ("docker.io/a/b", DEFAULT_REGISTRY, "a/b", "latest"),
            ("a", DEFAULT_REGISTRY, "library/a", "latest"),
            (&*format!("r.io:1/a:t@{digest}"), "r.io:1", "a", &*digest),
        ] {
            let found = Reference::parse(text).unwrap();
            assert_eq!((&*found.registry, &*found.repository, found.identifier()), (registry, repository, identifier));
        }
        for wrong in ["", "r.io/", "r.io/a b", "r.io/../a", "r.io/a@sha256:1", "r.io/a@md5:0", "r.io/a:b c", "r\n.io/a"]
        {
            assert_eq!(Reference::parse(wrong), None, "{wrong:?}");
        }
    }

    #[test]
    fn local_registries_may_use_plain_http() {
        for (text, local) in [
            ("127.0.0.1:5000/a", true),
            ("[::1]:5000/a", true),
            ("10.1.2.3/a", true),
            ("r.local/a", true),
            ("8.8.8.8/a", false),
            ("r.io/a", false),
        ] {
            assert_eq!(Reference::parse(text).unwrap().is_local(), local, "{text}");
        }
    }

    proptest! {
        #[test]
        fn parsed_references_are_safe_in_a_url(text in "[a-z./:@%?# -]{0,30}") {
            if let Some(found) = Reference::parse(&text) {
                let url = format!("https://{}/v2/{}/manifests/{}", found.registry, found.repository, found.identifier());
                prop_assert!(!url.contains(['?', '#', '%', ' ']) && !url.contains("/../"), "{}", url);
            }
        }
    }
}
