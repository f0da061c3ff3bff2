//! Types of the settings for public keys of token issuers.

use clap::ValueEnum;

use crate::value::{Value, ValueError, choice, invalid};

/// The component that fetches public keys.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
pub enum JwksFetcher {
    /// The control plane.
    #[value(aliases = ["false", "istiod"])]
    ControlPlane,
    /// Proxies.
    #[value(aliases = ["true", "envoy"])]
    Proxies,
    /// Proxies for services of the mesh, the control plane for others.
    Hybrid,
}

impl Value for JwksFetcher {
    const FORM: &'static str = "control-plane, proxies or hybrid";

    fn parse(text: &str) -> Result<JwksFetcher, ValueError> {
        choice(text)
    }
}

/// Networks, addresses and hosts.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct HostPatterns(pub Vec<jwks::Pattern>);

impl Value for HostPatterns {
    const FORM: &'static str = "CIDR, ADDRESS or HOST, several with commas, or empty";

    fn parse(text: &str) -> Result<HostPatterns, ValueError> {
        let items = text.split(',').map(str::trim).filter(|item| !item.is_empty());
        let parse = |item: &str| item.parse().map_err(|_| invalid(item, "a network, an address or a host"));
        items.map(parse).collect::<Result<_, _>>().map(HostPatterns)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_names_of_istiod_are_accepted() {
        let cases = [
            ("control-plane", JwksFetcher::ControlPlane),
            ("false", JwksFetcher::ControlPlane),
            ("istiod", JwksFetcher::ControlPlane),
            ("true", JwksFetcher::Proxies),
            ("envoy", JwksFetcher::Proxies),
            ("hybrid", JwksFetcher::Hybrid),
        ];
        for (text, want) in cases {
            assert_eq!(JwksFetcher::parse(text), Ok(want));
        }
        assert!(JwksFetcher::parse("both").is_err());
    }

    #[test]
    fn patterns_are_checked() {
        assert_eq!(HostPatterns::parse(" 10.0.0.0/8, *.corp.example ,::1,").map(|list| list.0.len()), Ok(3));
        assert!(HostPatterns::parse("10.0.0.0/8,10.0.0.0/33").is_err());
    }
}
