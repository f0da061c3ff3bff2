//! CA certificates that Gateways and policies refer to, in ConfigMaps and Secrets.
//!
//! Envoy verifies certificates with one list of CA certificates. Several objects are therefore one secret for it, whose name has
//! the names of all, and whose content is theirs.

use std::sync::Arc;

use config::core::Content;
use flow::Reads;
use model::service::ObjectId;
use model::tls::{self, AUTHORITIES_SUFFIX, Authorities, CONFIG_MAP, GATEWAY_SECRET};
use registry::inputs::{CredentialKey, CredentialObject, Credentials};

use crate::grants::ToKind;

/// CA certificates in an object.
pub(crate) struct Found {
    /// The name of the object, as in `caCertCredentialName`.
    pub(crate) name: Arc<str>,
    /// Why the object as it is cannot be used. One that became invalid stays in use as it was.
    pub(crate) flaw: Option<String>,
}

/// The CA certificates in a ConfigMap or Secret, or why there are none.
pub(crate) fn find(cx: &Reads<'_>, kind: ToKind, target: &ObjectId) -> Result<Found, String> {
    let prefix = if kind == ToKind::ConfigMap { CONFIG_MAP } else { GATEWAY_SECRET };
    let kind_name = kind.name();
    let object = object(cx, kind, target).ok_or_else(|| format!("{kind_name} {target} not found"))?;
    let content = object.roots().ok_or_else(|| format!("{kind_name} {target} has no ca.crt"))?;
    let flaw = content.flaw().map(|flaw| format!("{}: {}", flaw.key, flaw.message));
    match Content::in_use(content) {
        Some(_) => Ok(Found { name: format!("{prefix}{target}").into(), flaw }),
        None => Err(flaw.unwrap_or_else(|| format!("{kind_name} {target} has no CA certificates"))),
    }
}

/// The object that SDS would take the CA certificates from. Those beside a Secret, in one with a suffix, come first there.
fn object(cx: &Reads<'_>, kind: ToKind, target: &ObjectId) -> Option<CredentialObject> {
    let beside = || ObjectId {
        namespace: target.namespace.clone(),
        name: format!("{}{AUTHORITIES_SUFFIX}", target.name).into(),
    };
    let config_map = kind == ToKind::ConfigMap;
    let ids = (!config_map).then(beside).into_iter().chain([target.clone()]);
    ids.into_iter().find_map(|id| {
        let key = CredentialKey { config_map, cluster: Arc::default(), id };
        cx.get::<Credentials>(&key).map(|object| (*object).clone())
    })
}

/// One name for the CA certificates of several objects; that of the only one stays as it is.
pub(crate) fn joined(names: &[Arc<str>]) -> Option<Arc<str>> {
    match names {
        [] => None,
        [only] => Some(only.clone()),
        several => {
            let served = several.iter().filter_map(|name| match Authorities::of_credential(name) {
                Authorities::Served(name) => Some(name),
                Authorities::Agent(_) | Authorities::File(_) => None,
            });
            Some(tls::bundle(served))
        }
    }
}
