//! Problems of RequestAuthentications: keys that cannot be fetched, and rules of other objects for the same issuer.

use std::collections::BTreeSet;
use std::sync::Arc;

use config::istio::{JwtRule, RequestAuthentication};
use config::{Diagnostic, FieldPath, Kind, Object};
use flow::Reads;
use model::jwt::KeySource;
use model::proxy::{Labels, selects};
use model::service::ObjectId;
use registry::inputs::{FetchedKeys, KeyFailures, Mesh, RequestAuthentications};
use security::request_authentication::is_unknown_to_proxies;
use security::selection::Targeted as _;

use super::{Conflicts, conflict, diagnostic, row, targets};

flow::rule! {
    /// The conflicts of each RequestAuthentication.
    pub RequestAuthenticationConflicts: ObjectId => Conflicts = "conflicts on request authentications", derive_request_authentication_conflicts;
}

flow::index! {
    /// RequestAuthentications by issuer.
    PoliciesByIssuer: Arc<str> => members of RequestAuthentications = "request authentications by issuer", policies_by_issuer_keys;
}

fn policies_by_issuer_keys(_: &ObjectId, row: &Arc<Object<RequestAuthentication>>) -> Vec<Arc<str>> {
    let issuers = row.spec.jwt_rules.iter().map(|rule| rule.issuer.clone()).filter(|issuer| !issuer.is_empty());
    let issuers: BTreeSet<Arc<str>> = issuers.collect();
    issuers.into_iter().collect()
}

fn derive_request_authentication_conflicts(cx: &Reads<'_>, key: &ObjectId) -> Option<Conflicts> {
    let own = cx.get::<RequestAuthentications>(key)?;
    let root = cx.get::<Mesh>(&())?.config.root_namespace.clone();
    let mut found = targets::problems::<RequestAuthentication>(cx, Kind::RequestAuthentication, key, &own.spec);
    for (index, rule) in own.spec.jwt_rules.iter().enumerate() {
        let path = FieldPath::spec().field("jwtRules").index(index);
        found.extend(unfetched(cx, key, &path, rule));
        found.extend(rival(cx, (key, &own.spec, index), &root, &path));
    }
    row(found)
}

/// Adds this module's rules.
pub(super) fn register(b: &mut flow::Builder) {
    b.index::<PoliciesByIssuer>();
    b.view::<RequestAuthenticationConflicts>();
}

/// The reason why a rule has no keys, or old ones.
fn unfetched(cx: &Reads<'_>, key: &ObjectId, path: &FieldPath, rule: &JwtRule) -> Option<Diagnostic> {
    let source = KeySource::of(rule)?;
    let path = path.field(match source {
        KeySource::Uri(_) => "jwksUri",
        KeySource::Issuer(_) => "issuer",
    });
    let report = |message, hint| {
        Some(diagnostic(Kind::RequestAuthentication, key, Diagnostic::MISSING_REFERENCE, path, message, hint))
    };
    if is_unknown_to_proxies(cx, &source) {
        let message =
            "proxies fetch the keys, but the host is no service of the mesh: tokens of the issuer are rejected";
        return report(message.to_owned(), "define it with a ServiceEntry, or set jwks-fetcher to hybrid");
    }
    let failure = cx.get::<KeyFailures>(&source)?;
    let effect = match cx.get::<FetchedKeys>(&source).is_some() {
        true => "the last known keys stay in use",
        false => "tokens of the issuer are rejected",
    };
    let message = format!(
        "the keys cannot be fetched from {source}: {}; {effect}; the next attempt is at {}",
        failure.reason, failure.next
    );
    report(message, "make the URL reachable for the control plane, or write the keys into jwks")
}

/// Another rule for the issuer and the same workloads, with other keys.
fn rival(
    cx: &Reads<'_>,
    (key, own, index): (&ObjectId, &RequestAuthentication, usize),
    root: &Arc<str>,
    path: &FieldPath,
) -> Option<Diagnostic> {
    let rule = own.jwt_rules.get(index)?;
    if rule.issuer.is_empty() {
        return None;
    }
    let differs = |other: &JwtRule| {
        other.issuer == rule.issuer && (&other.jwks, KeySource::of(other)) != (&rule.jwks, KeySource::of(rule))
    };
    let whose = if own.jwt_rules.iter().take(index).any(differs) {
        "an earlier rule".to_owned()
    } else {
        let policies = cx.get::<PoliciesByIssuer>(&rule.issuer)?;
        let meets = |id: &&ObjectId| {
            let near = id.namespace == key.namespace || id.namespace == *root || key.namespace == *root;
            near && *id != key
                && cx.with::<RequestAuthentications, _>(id, |other| {
                    let spec = other.map(|other| &other.spec);
                    spec.is_some_and(|spec| spec.jwt_rules.iter().any(differs) && overlap(spec, own))
                })
        };
        let other = policies.iter().find(meets)?;
        format!("RequestAuthentication {}/{}", other.namespace, other.name)
    };
    let message = format!(
        "{whose} names other keys for the issuer {} and the same workloads: a token that is valid for either is accepted",
        rule.issuer
    );
    let hint = "name an issuer once for each workload, with all its audiences and token locations";
    Some(conflict(Kind::RequestAuthentication, key, path.clone(), message, hint))
}

/// Whether all workloads that one of the policies selects are selected by the other.
fn overlap(a: &RequestAuthentication, b: &RequestAuthentication) -> bool {
    if !a.targets().is_empty() || !b.targets().is_empty() {
        return a.targets() == b.targets();
    }
    let none = Labels::new();
    let (a, b) = (a.labels().unwrap_or(&none), b.labels().unwrap_or(&none));
    selects(a, b) || selects(b, a)
}
