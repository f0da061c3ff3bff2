//! Secrets of proxies: who may have which, and where they are.
//!
//! A proxy may have Secrets of its own namespace. If its connection proves its service account, that account must be allowed
//! to list them, or a `Gateway` that selects the proxy refers to the Secret by its full name (`kubernetes-gateway://`). Only
//! such a `Gateway` may refer to a Secret of another namespace, and only if a ReferenceGrant there allows it. Gateways of the
//! Gateway API count as well.
//!
//! ```text
//! connected proxies ─► ProxiesByReader ─► (the runtime asks the API) ─► SecretReaders ─┐
//! Gateways ─► CredentialReferences ────────────────────────────────────────────────────┼─► is_allowed
//! ReferenceGrants ─► gateway_api::Grants ──────────────────────────────────────────────┤
//! Gateways of the Gateway API ─► gateway_api::PermittedCredentials ────────────────────┘
//! ```

use std::collections::BTreeSet;
use std::sync::Arc;

use config::core::{CertificatePair, Content, Roots};
use config::istio::references::{Target, of_gateway};
use flow::Reads;
use gateway_api::certificates::PermittedCredentials;
use gateway_api::grants::{self, FromKind, Reference, ToKind};
use model::audience::{Access, Account, SecretKey};
use model::service::ObjectId;
use model::tls::{AUTHORITIES_SUFFIX, Authorities, Certificate};
use registry::Gateways;
use registry::inputs::{CredentialKey, CredentialObject, Credentials, ProxyToken, SecretReaders};

use crate::audience::{Audiences, ProxyAudiences};

flow::index! {
    /// Connected proxies whose service account must be allowed to list Secrets, by that account.
    pub ProxiesByReader: Account => members of Audiences = "proxies by reader of secrets", proxies_by_reader_keys;
}

flow::rule! {
    /// The resource names of the credentials that a `Gateway` refers to. A relation of its own, so that other changes of
    /// Gateways stop here.
    CredentialReferences: ObjectId => BTreeSet<Arc<str>> = "credentials that gateways refer to", derive_references;
}

fn proxies_by_reader_keys(_: &ProxyToken, row: &ProxyAudiences) -> Vec<Account> {
    row.reader.iter().cloned().collect()
}

fn derive_references(cx: &Reads<'_>, key: &ObjectId) -> Option<BTreeSet<Arc<str>>> {
    let object = cx.get::<Gateways>(key)?;
    let mut names = BTreeSet::new();
    for reference in of_gateway(&object.spec) {
        let Target::Credential { name, authorities } = reference.target else { continue };
        let certificate = match Certificate::named(&name) {
            Certificate::Served(name) if !authorities => Some(name),
            _ => None,
        };
        // A server that verifies clients may read the CA certificates beside its own certificate.
        let roots = if authorities { Authorities::of_credential(&name) } else { Authorities::named(&name) };
        let roots = match roots {
            Authorities::Served(name) => Some(name),
            _ => None,
        };
        names.extend(certificate.into_iter().chain(roots));
    }
    Some(names)
}

/// Whether proxies with this key may have the secret now.
pub fn is_allowed(cx: &Reads<'_>, key: &SecretKey) -> bool {
    if !key.parts.iter().all(|part| is_allowed(cx, part)) {
        return false;
    }
    let Access::If { account, gateways, kube } = &key.access else { return true };
    let refers =
        |gateway: &&ObjectId| cx.with::<CredentialReferences, _>(gateway, |names| names?.get(&key.name).map(drop));
    let granted = |gateway: &ObjectId| {
        let object = key.object.strip_suffix(AUTHORITIES_SUFFIX).unwrap_or(&key.object);
        let target = ObjectId { namespace: key.namespace.clone(), name: object.into() };
        let namespace = gateway.namespace.clone();
        grants::is_allowed(cx, &Reference { from: FromKind::Gateway, namespace, to: ToKind::Secret, target })
    };
    // Grants were asked for already.
    let permitted = |gateway: &ObjectId| {
        cx.with::<PermittedCredentials, _>(gateway, |names| names.is_some_and(|names| names.contains(&key.name)))
    };
    account.as_ref().is_some_and(|account| cx.contains::<SecretReaders>(account))
        || gateways.iter().filter(|gateway| refers(gateway).is_some()).any(granted)
        || kube.iter().any(permitted)
}

/// The result of looking for a secret.
pub enum Found<T> {
    /// There is no object.
    Nothing,
    /// An object of this name has nothing of the kind.
    Empty(Arc<str>),
    /// An object of this name has it.
    Content(Arc<str>, Content<T>),
}

impl<T: Clone> Found<T> {
    /// The one in use.
    pub fn in_use(&self) -> Option<&T> {
        match self {
            Found::Content(_, content) => content.in_use(),
            Found::Nothing | Found::Empty(_) => None,
        }
    }
}

/// The certificate with its key. Access is checked by [`is_allowed`].
pub fn pair(cx: &Reads<'_>, key: &SecretKey) -> Found<CertificatePair> {
    find(cx, key, &[&key.object], |object| object.pair().cloned())
}

/// The CA certificates. A Secret may have the requested name itself, or that without the suffix.
pub fn roots(cx: &Reads<'_>, key: &SecretKey) -> Found<Roots> {
    let stripped = key.object.strip_suffix(AUTHORITIES_SUFFIX).unwrap_or(&key.object);
    let whole = [&*key.object, stripped];
    let names = if key.config_map { &whole[1..] } else { &whole };
    find(cx, key, names, |object| object.roots().cloned())
}

/// The content of the first object with one of the names, in the cluster of the key. If that has nothing to use, the
/// configuration cluster's counts, as with istiod.
fn find<T: Clone>(
    cx: &Reads<'_>,
    key: &SecretKey,
    names: &[&str],
    of: impl Fn(&CredentialObject) -> Option<Content<T>>,
) -> Found<T> {
    let home = Arc::default();
    let clusters = [&key.cluster, &home];
    let clusters = if key.cluster.is_empty() { &clusters[1..] } else { &clusters };
    let mut first = Found::Nothing;
    for cluster in clusters {
        let object = |name: &&str| {
            let id = ObjectId { namespace: key.namespace.clone(), name: (*name).into() };
            let key = CredentialKey { config_map: key.config_map, cluster: (*cluster).clone(), id };
            Some((Arc::from(*name), cx.get::<Credentials>(&key)?))
        };
        let found = match names.iter().find_map(object) {
            None => continue,
            Some((name, object)) => match of(&object) {
                None => Found::Empty(name),
                Some(content) => Found::Content(name, content),
            },
        };
        if found.in_use().is_some() {
            return found;
        }
        if let Found::Nothing = first {
            first = found;
        }
    }
    first
}

/// Adds this module's rules.
pub(crate) fn register(b: &mut flow::Builder) {
    b.index::<ProxiesByReader>();
    b.view::<CredentialReferences>();
}
