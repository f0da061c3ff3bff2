//! Parameters in the path of the webhook: `/inject/cluster/ID/net/NETWORK/…`.

use std::collections::BTreeMap;

/// The separator of the older form, `/inject/:ENV:NAME=VALUE:ENV:…`.
const OLD: &str = ":ENV:";
/// Stands for a slash in a value.
const SLASH: &str = "--slash--";

/// The environment variables of the sidecar in a path. A key without a value is ignored.
pub fn parameters(path: &str) -> BTreeMap<String, String> {
    let path = path.strip_suffix('/').unwrap_or(path);
    // The first part is empty and the second one `inject`.
    let Some(rest) = path.splitn(3, '/').nth(2) else {
        return BTreeMap::new();
    };
    if let Some(rest) = rest.strip_prefix(OLD) {
        let pairs = rest.split(OLD).filter_map(|pair| pair.split_once('='));
        return pairs.filter(|(name, _)| !name.is_empty()).map(|(name, value)| entry(name, value.to_owned())).collect();
    }
    let parts: Vec<&str> = rest.split('/').collect();
    let pairs = parts.chunks_exact(2).map(|pair| entry(pair[0], pair[1].replace(SLASH, "/")));
    pairs.filter(|(name, _)| !name.is_empty()).collect()
}

fn entry(key: &str, value: String) -> (String, String) {
    let name = match key {
        "cluster" => "ISTIO_META_CLUSTER_ID".to_owned(),
        "net" => "ISTIO_META_NETWORK".to_owned(),
        key => key.to_uppercase(),
    };
    (name, value)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shown(path: &str) -> String {
        let pairs: Vec<String> = parameters(path).iter().map(|(name, value)| format!("{name}={value}")).collect();
        pairs.join(" ")
    }

    #[test]
    fn paths() {
        assert_eq!(shown("/inject"), "");
        assert_eq!(shown("/inject/"), "");
        assert_eq!(shown("/inject/cluster/west/net/n1/"), "ISTIO_META_CLUSTER_ID=west ISTIO_META_NETWORK=n1");
        assert_eq!(shown("/inject/my_env/a--slash--b"), "MY_ENV=a/b");
        assert_eq!(shown("/inject/cluster/west/net"), "ISTIO_META_CLUSTER_ID=west");
        assert_eq!(shown("/inject/:ENV:cluster=west:ENV:A=:ENV:=x"), "A= ISTIO_META_CLUSTER_ID=west");
        assert_eq!(shown("/inject//x/cluster/"), "");
    }
}
