//! The names of secrets.

use std::path::PathBuf;

/// The longest name that is accepted, in bytes: two paths.
pub(crate) const MAX_NAME: usize = 8192 + 16;
/// The name of the workload's certificate.
pub const WORKLOAD: &str = "default";
/// The name of the trust roots.
pub const ROOTS: &str = "ROOTCA";

/// Files with the roots of the operating system, by distribution.
const SYSTEM_ROOTS: &[&str] = &[
    "/etc/ssl/certs/ca-certificates.crt",
    "/etc/pki/tls/certs/ca-bundle.crt",
    "/etc/ssl/ca-bundle.pem",
    "/etc/pki/tls/cacert.pem",
    "/etc/pki/ca-trust/extracted/pem/tls-ca-bundle.pem",
    "/etc/ssl/cert.pem",
    "/usr/local/etc/ssl/cert.pem",
    "/etc/ssl/certs/ca-certificates",
];

/// A secret of files.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) enum FileName {
    /// A certificate chain and its key.
    Pair(PathBuf, PathBuf),
    /// Trust roots.
    Roots(PathBuf),
}

impl FileName {
    /// The paths of the files.
    pub(crate) fn paths(&self) -> impl Iterator<Item = &PathBuf> {
        match self {
            FileName::Pair(chain, key) => [Some(chain), Some(key)],
            FileName::Roots(path) => [Some(path), None],
        }
        .into_iter()
        .flatten()
    }
}

/// A secret that a proxy asks for.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Name {
    /// The workload's certificate.
    Workload,
    /// The trust roots of the mesh.
    Roots,
    /// Files.
    File(FileName),
    /// There is no such secret.
    Unknown,
}

impl Name {
    /// Reads a name: `default`, `ROOTCA`, `file-cert:CHAIN~KEY`, `file-root:PATH` or `file-root:system`.
    pub(crate) fn parse(text: &str) -> Name {
        let path = |text: &str| (!text.is_empty() && !text.contains(['~', '\0'])).then(|| PathBuf::from(text));
        let file = || {
            if text.len() > MAX_NAME {
                None
            } else if text == "file-root:system" {
                let found = SYSTEM_ROOTS.iter().map(PathBuf::from).find(|path| path.exists());
                Some(FileName::Roots(found.unwrap_or_else(|| SYSTEM_ROOTS[0].into())))
            } else if let Some(roots) = text.strip_prefix("file-root:") {
                Some(FileName::Roots(path(roots)?))
            } else {
                let (chain, key) = text.strip_prefix("file-cert:")?.split_once('~')?;
                Some(FileName::Pair(path(chain)?, path(key)?))
            }
        };
        match text {
            WORKLOAD => Name::Workload,
            ROOTS => Name::Roots,
            _ => file().map_or(Name::Unknown, Name::File),
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn names_are_read() {
        let pair = |chain: &str, key: &str| Name::File(FileName::Pair(chain.into(), key.into()));
        for (text, expected) in [
            ("default", Name::Workload),
            ("ROOTCA", Name::Roots),
            ("file-cert:/a/c.pem~/a/k.pem", pair("/a/c.pem", "/a/k.pem")),
            ("file-root:/a/r.pem", Name::File(FileName::Roots("/a/r.pem".into()))),
            ("file-cert:/a/c.pem", Name::Unknown),
            ("file-cert:/a~/b~/c", Name::Unknown),
            ("file-cert:~/b", Name::Unknown),
            ("file-root:", Name::Unknown),
            ("file-root:/a~/b", Name::Unknown),
            ("kubernetes://a", Name::Unknown),
            ("*", Name::Unknown),
            ("", Name::Unknown),
        ] {
            assert_eq!(Name::parse(text), expected, "{text}");
        }
        assert!(matches!(Name::parse("file-root:system"), Name::File(FileName::Roots(_))));
    }

    proptest! {
        #[test]
        fn any_text_has_a_meaning(text in "(file-cert:|file-root:|)[a-z~/\\x00]{0,20}") {
            if let Name::File(name) = Name::parse(&text) {
                let written = match &name {
                    FileName::Pair(chain, key) => format!("file-cert:{}~{}", chain.display(), key.display()),
                    FileName::Roots(path) => format!("file-root:{}", path.display()),
                };
                prop_assert_eq!(written, text);
            }
        }
    }
}
