//! Audiences and keys of secrets.

use std::sync::Arc;

use crate::tls::{self, KeyProvider};

/// Decides the secrets of a proxy.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub struct SecretAudience {
    /// Its namespace; it gets secrets of this namespace only.
    pub namespace: Arc<str>,
    /// The cluster whose secrets it gets; empty for the configuration cluster.
    pub cluster: Arc<str>,
    /// The provider of private key operations; none for Envoy's own implementation.
    pub key_provider: Option<KeyProvider>,
}

/// Decides one secret.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub struct SecretKey {
    /// The resource name.
    pub name: Arc<str>,
    /// It is in a ConfigMap, of which only CA certificates are used; else in a Secret.
    pub config_map: bool,
    /// The cluster of the object; empty for the configuration cluster.
    pub cluster: Arc<str>,
    /// Its namespace.
    pub namespace: Arc<str>,
    /// Its name, with the suffix `-cacert` if only the CA certificates are requested.
    pub object: Arc<str>,
    /// The provider of private key operations, for Secrets that are requested with their keys.
    pub key_provider: Option<KeyProvider>,
}

impl SecretAudience {
    /// Resolves a resource name; none if proxies of this audience have no access. CA certificates in ConfigMaps are public:
    /// a client needs those of servers in other namespaces.
    pub fn resolve(&self, name: &Arc<str>) -> Option<SecretKey> {
        let key = |config_map, cluster: &Arc<str>, path: &str| {
            let (namespace, object) = match path.split_once('/') {
                Some((namespace, object)) => (namespace, object),
                None => (&*self.namespace, path),
            };
            let sound = !namespace.is_empty() && !object.is_empty() && !object.contains('/');
            let allowed = config_map || *namespace == *self.namespace;
            (sound && allowed).then(|| SecretKey {
                name: name.clone(),
                config_map,
                cluster: cluster.clone(),
                namespace: namespace.into(),
                object: object.into(),
                key_provider: self.key_provider.filter(|_| !config_map),
            })
        };
        let home = Arc::default();
        if let Some(path) = name.strip_prefix(tls::SECRET) {
            return key(false, &self.cluster, path);
        }
        let whole = |path: &&str| path.contains('/');
        if let Some(path) = name.strip_prefix(tls::GATEWAY_SECRET).filter(whole) {
            return key(false, &home, path);
        }
        name.strip_prefix(tls::CONFIG_MAP).filter(whole).and_then(|path| key(true, &home, path))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn secrets_of_other_namespaces_do_not_resolve() {
        let audience = SecretAudience { namespace: "shop".into(), cluster: "west".into(), key_provider: None };
        let resolved = |name: &str| {
            let key = audience.resolve(&name.into())?;
            Some(format!("{} {}/{}/{}", key.config_map, key.cluster, key.namespace, key.object))
        };
        assert_eq!(resolved("kubernetes://web").as_deref(), Some("false west/shop/web"));
        assert_eq!(resolved("kubernetes://shop/web-cacert").as_deref(), Some("false west/shop/web-cacert"));
        assert_eq!(resolved("kubernetes-gateway://shop/web").as_deref(), Some("false /shop/web"));
        assert_eq!(resolved("configmap://other/roots-cacert").as_deref(), Some("true /other/roots-cacert"));
        for name in [
            "kubernetes://other/web",
            "kubernetes-gateway://other/web",
            "kubernetes-gateway://web",
            "configmap://web",
            "configmap:///web",
            "kubernetes://",
            "kubernetes:///web",
            "kubernetes://shop/",
            "kubernetes://shop/a/b",
            "default",
            "",
        ] {
            assert_eq!(resolved(name), None, "{name}");
        }
    }
}
