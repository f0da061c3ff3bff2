//! Audiences and keys of secrets.

use std::sync::Arc;

use crate::service::ObjectId;
use crate::tls::{self, KeyProvider};

/// A service account.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub struct Account {
    /// Its cluster; empty for the configuration cluster.
    pub cluster: Arc<str>,
    /// Its namespace.
    pub namespace: Arc<str>,
    /// Its name.
    pub name: Arc<str>,
}

/// The most secrets in a bundle.
const MOST_PARTS: usize = 64;

/// Decides the secrets of a proxy.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub struct SecretAudience {
    /// Its namespace.
    pub namespace: Arc<str>,
    /// The cluster whose secrets it gets; empty for the configuration cluster.
    pub cluster: Arc<str>,
    /// The service account that must be allowed to list Secrets; none if the proof of the namespace is enough.
    pub account: Option<Arc<str>>,
    /// The Gateways of its namespace that select it.
    pub gateways: Arc<[ObjectId]>,
    /// The Gateways of the Gateway API that it serves, all of its namespace.
    pub kube: Arc<[ObjectId]>,
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
    /// The cluster where the object is looked for first, before the configuration cluster; empty for only that one.
    pub cluster: Arc<str>,
    /// Its namespace.
    pub namespace: Arc<str>,
    /// Its name, with the suffix `-cacert` if only the CA certificates are requested.
    pub object: Arc<str>,
    /// The condition of access.
    pub access: Access,
    /// The provider of private key operations, for Secrets that are requested with their keys.
    pub key_provider: Option<KeyProvider>,
    /// The secrets of which it is the bundle; then it has no object of its own.
    pub parts: Arc<[SecretKey]>,
}

/// The condition under which a proxy may have a secret.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub enum Access {
    /// None: the object is public, or in the proxy's namespace.
    Open,
    /// One of these.
    If {
        /// The service account may list Secrets.
        account: Option<Account>,
        /// One of these Gateways refers to the secret, and, if the secret is in another namespace, a ReferenceGrant allows that.
        gateways: Arc<[ObjectId]>,
        /// One of these Gateways of the Gateway API refers to the secret, and may do so.
        kube: Arc<[ObjectId]>,
    },
}

impl SecretAudience {
    /// Resolves a resource name; none if proxies of this audience never have access. CA certificates in ConfigMaps are public:
    /// a client needs those of servers in other namespaces.
    pub fn resolve(&self, name: &Arc<str>) -> Option<SecretKey> {
        if name.starts_with(tls::BUNDLE) {
            return self.bundle(name);
        }
        let whole = |path: &&str| path.contains('/');
        if let Some(path) = name.strip_prefix(tls::SECRET) {
            return self.key(name, path, &self.cluster, |own| own.then(|| self.access(false))?);
        }
        let home = Arc::default();
        if let Some(path) = name.strip_prefix(tls::GATEWAY_SECRET).filter(whole) {
            return self.key(name, path, &home, |own| match own {
                true => self.access(true),
                false if self.gateways.is_empty() && self.kube.is_empty() => None,
                false => Some(self.by_gateways(None)),
            });
        }
        let path = name.strip_prefix(tls::CONFIG_MAP).filter(whole)?;
        let key = self.key(name, path, &home, |_| Some(Access::Open))?;
        Some(SecretKey { config_map: true, key_provider: None, ..key })
    }

    /// The key of an object: `NAME` or `NAMESPACE/NAME`. `access` says whether it is accessible, given whether it is in the
    /// proxy's namespace.
    fn key(
        &self,
        name: &Arc<str>,
        path: &str,
        cluster: &Arc<str>,
        access: impl FnOnce(bool) -> Option<Access>,
    ) -> Option<SecretKey> {
        let (namespace, object) = path.split_once('/').unwrap_or((&*self.namespace, path));
        let sound = !namespace.is_empty() && !object.is_empty() && !object.contains('/');
        let access = access(*namespace == *self.namespace).filter(|_| sound)?;
        Some(SecretKey {
            name: name.clone(),
            config_map: false,
            cluster: cluster.clone(),
            namespace: namespace.into(),
            object: object.into(),
            access,
            key_provider: self.key_provider,
            parts: Arc::default(),
        })
    }

    /// The key of a bundle: none unless all of its parts are accessible.
    fn bundle(&self, name: &Arc<str>) -> Option<SecretKey> {
        let part = |part: &str| match part.starts_with(tls::BUNDLE) {
            true => None,
            false => self.resolve(&part.into()),
        };
        let parts: Vec<SecretKey> = tls::parts(name).take(MOST_PARTS + 1).map(part).collect::<Option<_>>()?;
        let first = parts.first().filter(|_| parts.len() <= MOST_PARTS)?;
        Some(SecretKey {
            name: name.clone(),
            config_map: true,
            key_provider: None,
            access: Access::Open,
            parts: parts.clone().into(),
            ..first.clone()
        })
    }

    /// The condition for secrets of its own namespace. Gateways only count for names of the Gateway API.
    fn access(&self, by_gateway: bool) -> Option<Access> {
        let Some(account) = &self.account else { return Some(Access::Open) };
        let (cluster, namespace, name) = (self.cluster.clone(), self.namespace.clone(), account.clone());
        let account = Some(Account { cluster, namespace, name });
        Some(match by_gateway {
            true => self.by_gateways(account),
            false => Access::If { account, gateways: Arc::default(), kube: Arc::default() },
        })
    }

    fn by_gateways(&self, account: Option<Account>) -> Access {
        Access::If { account, gateways: self.gateways.clone(), kube: self.kube.clone() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn audience(account: Option<&str>, gateways: &[&str]) -> SecretAudience {
        let id = |name: &&str| ObjectId { namespace: "shop".into(), name: (*name).into() };
        SecretAudience {
            namespace: "shop".into(),
            cluster: "west".into(),
            account: account.map(Arc::from),
            gateways: gateways.iter().map(id).collect(),
            kube: Arc::default(),
            key_provider: None,
        }
    }

    #[test]
    fn a_proven_account_must_be_allowed_and_gateways_refer_by_full_names() {
        let access = |audience: &SecretAudience, name: &str| match audience.resolve(&name.into()).map(|key| key.access)
        {
            None => "never".to_owned(),
            Some(Access::Open) => "open".to_owned(),
            Some(Access::If { account, gateways, kube }) => {
                let account =
                    account.map(|account| format!("{}/{}/{}", account.cluster, account.namespace, account.name));
                format!("{} or {} gateways", account.unwrap_or_default(), gateways.len() + kube.len())
            }
        };
        let names = [
            "kubernetes://web",
            "kubernetes-gateway://shop/web",
            "kubernetes-gateway://bank/web",
            "configmap://bank/web",
        ];
        let all = |audience: &SecretAudience| names.map(|name| access(audience, name));
        assert_eq!(all(&audience(None, &[])), ["open", "open", "never", "open"]);
        assert_eq!(all(&audience(None, &["gw"])), ["open", "open", " or 1 gateways", "open"]);
        let proven = audience(Some("edge"), &["gw"]);
        let own = "west/shop/edge or 0 gateways";
        assert_eq!(all(&proven), [own, "west/shop/edge or 1 gateways", " or 1 gateways", "open"]);
        assert_eq!(all(&audience(Some("edge"), &[])), [own, own, "never", "open"]);
        let kube = SecretAudience { kube: proven.gateways.clone(), ..audience(Some("edge"), &[]) };
        assert_eq!(all(&kube), all(&proven));
    }

    #[test]
    fn secrets_of_other_namespaces_do_not_resolve() {
        let audience = audience(None, &[]);
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
