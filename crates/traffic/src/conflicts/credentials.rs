//! Credentials of `Gateway`s that do not exist.

use std::collections::BTreeSet;
use std::sync::Arc;

use config::istio::references::{Target, of_gateway};
use config::{Diagnostic, Kind};
use flow::Reads;
use model::audience::{SecretAudience, SecretKey};
use model::service::ObjectId;
use model::tls::{AUTHORITIES_SUFFIX, Authorities, Certificate};
use registry::Gateways;
use registry::inputs::{CredentialKey, Credentials, Mesh};

use super::diagnostic;
use super::gateways::ProxiesByGateways;
use crate::audience::Audiences;

flow::rule! {
    /// The credentials of each `Gateway` that its proxies do not find.
    pub(super) MissingCredentials: ObjectId => Arc<[Diagnostic]> = "missing credentials of gateways", derive_missing_credentials;
    /// The places where the connected proxies of a `Gateway` look for credentials. A relation of its own, so that other changes
    /// of proxies stop here.
    CredentialReaders: ObjectId => BTreeSet<(Arc<str>, Arc<str>)> = "readers of the credentials of gateways", derive_readers;
}

fn derive_readers(cx: &Reads<'_>, key: &ObjectId) -> Option<BTreeSet<(Arc<str>, Arc<str>)>> {
    let sets = cx.keys::<ProxiesByGateways>();
    let own = sets.iter().filter(|set| set.gateways.contains(key));
    let proxies = own.filter_map(|set| cx.get::<ProxiesByGateways>(set)).flat_map(|proxies| proxies.to_vec());
    let audiences = proxies.filter_map(|token| cx.with::<Audiences, _>(&token, |row| row?.secrets.clone()));
    Some(audiences.map(|secrets| (secrets.namespace.clone(), secrets.cluster.clone())).collect())
}

fn derive_missing_credentials(cx: &Reads<'_>, key: &ObjectId) -> Option<Arc<[Diagnostic]>> {
    let object = cx.get::<Gateways>(key)?;
    let mut found = Vec::new();
    for reference in of_gateway(&object.spec) {
        let Some(problem) = served_name(&reference.target).and_then(|name| problem(cx, key, &name)) else { continue };
        let hint = "connections to the server fail; create it where the gateway's pods run. Secrets are read only if \
                    --secrets-for lets proxies have them";
        found.push(diagnostic(Kind::Gateway, key, Diagnostic::MISSING_REFERENCE, reference.path, problem, hint));
    }
    (!found.is_empty()).then(|| found.into())
}

/// The resource name of a credential that the control plane serves.
fn served_name(target: &Target) -> Option<Arc<str>> {
    let Target::Credential { name, authorities } = target else { return None };
    match authorities {
        false => match Certificate::named(name) {
            Certificate::Served(name) => Some(name),
            _ => None,
        },
        true => match Authorities::named(name) {
            Authorities::Served(name) => Some(name),
            _ => None,
        },
    }
}

/// The reason why proxies of a `Gateway` do not get a credential.
fn problem(cx: &Reads<'_>, gateway: &ObjectId, name: &Arc<str>) -> Option<String> {
    let readers = cx.get::<CredentialReaders>(gateway).filter(|readers| !readers.is_empty());
    let Some(readers) = readers else {
        // No proxy is connected. Gateways are usually in the namespace of their pods, or these in the root namespace.
        let root = cx.with::<Mesh, _>(&(), |mesh| mesh.map(|mesh| mesh.config.root_namespace.clone()))?;
        let own = read(cx, (&gateway.namespace, &Arc::default()), name)?;
        return read(cx, (&root, &Arc::default()), name).map(|_| own);
    };
    readers.iter().find_map(|(namespace, cluster)| read(cx, (namespace, cluster), name))
}

/// The reason why proxies of a namespace and cluster do not get a credential.
fn read(cx: &Reads<'_>, (namespace, cluster): (&Arc<str>, &Arc<str>), name: &Arc<str>) -> Option<String> {
    let audience = SecretAudience { namespace: namespace.clone(), cluster: cluster.clone(), key_provider: None };
    let Some(key) = audience.resolve(name) else {
        return Some(format!("proxies of namespace {namespace} may not use {name}: it is in another namespace"));
    };
    let kind = if key.config_map { "ConfigMap" } else { "Secret" };
    let named = |name: &str| format!("{kind} {}/{name}", key.namespace);
    let stripped = key.object.strip_suffix(AUTHORITIES_SUFFIX);
    let (name, content) = match stripped {
        None => (&*key.object, object(cx, &key, &key.object).map(|object| object.pair().map(|pair| pair.map(drop)))),
        Some(short) => {
            let whole = object(cx, &key, &key.object).filter(|_| !key.config_map);
            (short, whole.or_else(|| object(cx, &key, short)).map(|object| object.roots().map(|roots| roots.map(drop))))
        }
    };
    match content {
        None => Some(format!("there is no {}", named(name))),
        Some(None) => Some(format!("{} has no certificate", named(name))),
        Some(Some(Err(flaw))) => Some(format!("{}: {}: {}", named(name), flaw.key, flaw.message)),
        Some(Some(Ok(()))) => None,
    }
}

fn object(cx: &Reads<'_>, key: &SecretKey, name: &str) -> Option<Arc<registry::inputs::CredentialObject>> {
    let id = ObjectId { namespace: key.namespace.clone(), name: name.into() };
    cx.get::<Credentials>(&CredentialKey { config_map: key.config_map, cluster: key.cluster.clone(), id })
}

/// Adds this module's rules.
pub(super) fn register(b: &mut flow::Builder) {
    b.view::<CredentialReaders>();
    b.view::<MissingCredentials>();
}
