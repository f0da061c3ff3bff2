//! Credentials of `Gateway`s, DestinationRules and `Sidecar`s that proxies do not get: missing or invalid objects, and
//! objects without access.

use std::collections::BTreeSet;
use std::sync::Arc;

use config::core::Content;
use config::istio::{
    ClientTlsMode, ClientTlsSettings, DestinationRule, ServerTlsMode, ServerTlsSettings, Sidecar, TrafficPolicy,
};
use config::{Diagnostic, FieldPath, Kind};
use flow::Reads;
use model::audience::{Access, SecretAudience, SecretKey};
use model::service::ObjectId;
use model::tls::{AUTHORITIES_SUFFIX, Authorities, Certificate};
use registry::Gateways;
use registry::inputs::{DestinationRules, Mesh, Sidecars};

use super::diagnostic;
use super::gateways::ProxiesByGateways;
use crate::audience::Audiences;
use crate::credentials::{self, Found};

/// The audiences of proxies, without what only decides bytes.
type Readers = BTreeSet<SecretAudience>;

flow::rule! {
    /// The credentials of each `Gateway` that its proxies do not get, or of which they keep an earlier content.
    pub(super) MissingCredentials: ObjectId => Arc<[Diagnostic]> = "missing credentials of gateways", derive_of_gateway;
    /// The same of each DestinationRule.
    pub(super) MissingOfDestinationRule: ObjectId => Arc<[Diagnostic]> = "missing credentials of destination rules", derive_of_destination_rule;
    /// The same of each `Sidecar`.
    pub(super) MissingOfSidecar: ObjectId => Arc<[Diagnostic]> = "missing credentials of sidecars", derive_of_sidecar;
    /// The audiences of the connected proxies of a `Gateway`. A relation of its own, so that other changes of proxies stop
    /// here.
    CredentialReaders: ObjectId => Readers = "readers of the credentials of gateways", derive_readers;
    /// The audiences of all connected gateways.
    GatewayReaders: () => Readers = "readers of credentials", derive_gateway_readers;
}

fn derive_readers(cx: &Reads<'_>, key: &ObjectId) -> Option<Readers> {
    Some(readers(cx, |gateways| gateways.contains(key)))
}

fn derive_gateway_readers(cx: &Reads<'_>, (): &()) -> Option<Readers> {
    Some(readers(cx, |_| true))
}

fn readers(cx: &Reads<'_>, is_wanted: impl Fn(&[ObjectId]) -> bool) -> Readers {
    let sets = cx.keys::<ProxiesByGateways>();
    let wanted = sets.iter().filter(|set| is_wanted(&set.gateways));
    let proxies = wanted.filter_map(|set| cx.get::<ProxiesByGateways>(set)).flat_map(|proxies| proxies.to_vec());
    let audiences = proxies.filter_map(|token| cx.with::<Audiences, _>(&token, |row| row?.secrets.clone()));
    audiences.map(|secrets| SecretAudience { key_provider: None, ..(*secrets).clone() }).collect()
}

fn derive_of_gateway(cx: &Reads<'_>, key: &ObjectId) -> Option<Arc<[Diagnostic]>> {
    let object = cx.get::<Gateways>(key)?;
    let servers = object.spec.servers.iter().enumerate();
    let uses: Vec<Use> = servers
        .filter_map(|(index, server)| {
            let path = FieldPath::spec().field("servers").index(index).field("tls");
            Some(of_server(server.tls.as_ref()?, &path))
        })
        .flatten()
        .collect();
    if uses.is_empty() {
        return None;
    }
    let connected = cx.get::<CredentialReaders>(key).filter(|readers| !readers.is_empty());
    let places = match connected {
        Some(readers) => Places::Each((*readers).clone()),
        // Gateways are usually in the namespace of their pods, or these in the root namespace.
        None => Places::Any(of_namespaces([key.namespace.clone(), root(cx)?])),
    };
    report(cx, (Kind::Gateway, key), uses, &places, "connections to the server fail")
}

fn derive_of_destination_rule(cx: &Reads<'_>, key: &ObjectId) -> Option<Arc<[Diagnostic]>> {
    let object = cx.get::<DestinationRules>(key)?;
    let uses = of_rule(&object.spec);
    if uses.is_empty() {
        return None;
    }
    let connected = || cx.get::<GatewayReaders>(&()).filter(|readers| !readers.is_empty());
    let places = match &object.spec.workload_selector {
        Some(_) => of_namespaces([key.namespace.clone()]),
        // Without a selector, only gateways use the credentials.
        None => match connected() {
            Some(readers) => readers.iter().cloned().collect(),
            None => of_namespaces([key.namespace.clone(), root(cx)?]),
        },
    };
    report(cx, (Kind::DestinationRule, key), uses, &Places::Any(places), "connections to the host fail")
}

fn derive_of_sidecar(cx: &Reads<'_>, key: &ObjectId) -> Option<Arc<[Diagnostic]>> {
    let object = cx.get::<Sidecars>(key)?;
    let uses = of_sidecar(&object.spec);
    if uses.is_empty() {
        return None;
    }
    let places = Places::Any(of_namespaces([key.namespace.clone()]));
    report(cx, (Kind::Sidecar, key), uses, &places, "connections to the listener fail")
}

fn root(cx: &Reads<'_>) -> Option<Arc<str>> {
    cx.with::<Mesh, _>(&(), |mesh| mesh.map(|mesh| mesh.config.root_namespace.clone()))
}

/// The audiences of proxies in these namespaces, in the configuration cluster.
fn of_namespaces(namespaces: impl IntoIterator<Item = Arc<str>>) -> Vec<SecretAudience> {
    let audience = |namespace| SecretAudience {
        namespace,
        cluster: Arc::default(),
        account: None,
        gateways: Arc::default(),
        kube: Arc::default(),
        key_provider: None,
    };
    namespaces.into_iter().map(audience).collect()
}

/// The proxies that need a credential.
enum Places {
    /// Each of them.
    Each(Readers),
    /// Some of them: a problem is reported if it concerns all. The first one is reported.
    Any(Vec<SecretAudience>),
}

/// A field that refers to a resource.
struct Use {
    path: FieldPath,
    name: Arc<str>,
    /// The field refers to CA certificates only, or to those beside a certificate.
    roots: bool,
}

/// Adds what a field refers to, unless a file or an agent provides it.
fn add(uses: &mut Vec<Use>, path: &FieldPath, certificate: Option<Certificate>, authorities: Option<Authorities>) {
    if let Some(Certificate::Served(name)) = certificate {
        uses.push(Use { path: path.clone(), name, roots: false });
    }
    if let Some(Authorities::Served(name)) = authorities {
        uses.push(Use { path: path.clone(), name, roots: true });
    }
}

/// The uses of a server's settings. `credentialName` has no effect beside `credentialNames`.
fn of_server(tls: &ServerTlsSettings, path: &FieldPath) -> Vec<Use> {
    let mut uses = Vec::new();
    let verifies = matches!(tls.mode, ServerTlsMode::Mutual | ServerTlsMode::OptionalMutual);
    let own = tls.ca_cert_credential_name.is_empty();
    let names: Vec<(FieldPath, &Arc<str>)> = match tls.credential_names.is_empty() {
        true => vec![(path.field("credentialName"), &tls.credential_name)],
        false => {
            let all = tls.credential_names.iter().enumerate();
            all.map(|(index, name)| (path.field("credentialNames").index(index), name)).collect()
        }
    };
    for (index, (path, name)) in names.into_iter().filter(|(_, name)| !name.is_empty()).enumerate() {
        let roots = (index == 0 && verifies && own).then(|| Authorities::named(name));
        add(&mut uses, &path, Some(Certificate::named(name)), roots);
    }
    if !own {
        let roots = Authorities::of_credential(&tls.ca_cert_credential_name);
        add(&mut uses, &path.field("caCertCredentialName"), None, Some(roots));
    }
    uses
}

fn of_rule(spec: &DestinationRule) -> Vec<Use> {
    let mut uses = Vec::new();
    let mut of_tls = |tls: Option<&ClientTlsSettings>, path: FieldPath| {
        let Some(tls) = tls.filter(|tls| !tls.credential_name.is_empty()) else { return };
        let (name, path) = (&tls.credential_name, path.field("tls").field("credentialName"));
        match tls.mode {
            ClientTlsMode::Simple => add(&mut uses, &path, None, Some(Authorities::named(name))),
            ClientTlsMode::Mutual => {
                add(&mut uses, &path, Some(Certificate::named(name)), Some(Authorities::named(name)));
            }
            ClientTlsMode::Disable | ClientTlsMode::IstioMutual => {}
        }
    };
    let mut of_policy = |policy: &Option<TrafficPolicy>, path: FieldPath| {
        let Some(policy) = policy else { return };
        of_tls(policy.tls.as_ref(), path.clone());
        for (index, port) in policy.port_level_settings.iter().enumerate() {
            of_tls(port.tls.as_ref(), path.field("portLevelSettings").index(index));
        }
    };
    of_policy(&spec.traffic_policy, FieldPath::spec().field("trafficPolicy"));
    for (index, subset) in spec.subsets.iter().enumerate() {
        of_policy(&subset.traffic_policy, FieldPath::spec().field("subsets").index(index).field("trafficPolicy"));
    }
    uses
}

fn of_sidecar(spec: &Sidecar) -> Vec<Use> {
    let listeners = spec.ingress.iter().enumerate();
    let each = listeners.filter_map(|(index, listener)| {
        let path = FieldPath::spec().field("ingress").index(index).field("tls");
        Some(of_server(listener.tls.as_ref()?, &path))
    });
    each.flatten().collect()
}

fn report(
    cx: &Reads<'_>,
    (kind, key): (Kind, &ObjectId),
    uses: Vec<Use>,
    places: &Places,
    effect: &str,
) -> Option<Arc<[Diagnostic]>> {
    let mut found: Vec<Diagnostic> = Vec::new();
    for Use { path, name, roots } in uses {
        let problem = |audience: &SecretAudience| problem(cx, audience, &name, roots);
        let problem = match places {
            Places::Each(readers) => readers.iter().find_map(problem),
            Places::Any(readers) => {
                let problems: Option<Vec<Problem>> = readers.iter().map(problem).collect();
                problems.and_then(|problems| problems.into_iter().next())
            }
        };
        let Some(Problem { message, kept, hint }) = problem else { continue };
        let hint = match kept {
            true => "correct the object; until then the last valid content stays in use".to_owned(),
            false => format!("{effect}; {hint}"),
        };
        // One object may be reported for its certificate and its CA certificates.
        if !found.iter().any(|one| one.path == path && one.message == message) {
            found.push(diagnostic(kind, key, Diagnostic::MISSING_REFERENCE, path, message, &hint));
        }
    }
    (!found.is_empty()).then(|| found.into())
}

/// The reason why proxies do not get a credential.
struct Problem {
    message: String,
    /// They have an earlier content.
    kept: bool,
    hint: &'static str,
}

/// The remedy if an object is missing or invalid.
const CREATE: &str =
    "create it where the proxy's pods run. Secrets are read only if --secrets-for lets proxies have them";

/// The reason why proxies of an audience do not get a credential.
fn problem(cx: &Reads<'_>, audience: &SecretAudience, name: &Arc<str>, roots: bool) -> Option<Problem> {
    let namespace = &audience.namespace;
    let problem = |message, hint| Some(Problem { message, kept: false, hint });
    let Some(key) = audience.resolve(name) else {
        let message = format!("proxies of namespace {namespace} may not use {name}: it is in another namespace");
        return problem(message, CREATE);
    };
    if !credentials::is_allowed(cx, &key) {
        return match &key.access {
            Access::If { account: Some(account), .. } => problem(
                format!("the service account {namespace}/{} may not use {name}", account.name),
                "allow it to list secrets in its namespace with a Role and a RoleBinding",
            ),
            _ => problem(
                format!("proxies of namespace {namespace} may not use {name}: it is in another namespace"),
                "allow Gateways of their namespace to refer to it with a ReferenceGrant there",
            ),
        };
    }
    let kind = if key.config_map { "ConfigMap" } else { "Secret" };
    let named = |name: &str| format!("{kind} {}/{name}", key.namespace);
    let (message, kept) = match state(cx, &key, roots) {
        State::Good => return None,
        State::Missing => (
            format!("there is no {}", named(key.object.strip_suffix(AUTHORITIES_SUFFIX).unwrap_or(&key.object))),
            false,
        ),
        State::Empty(name) if roots => (format!("{} has no CA certificates", named(&name)), false),
        State::Empty(name) => (format!("{} has no certificate", named(&name)), false),
        State::Invalid { name, flaw, kept } => (format!("{}: {flaw}", named(&name)), kept),
    };
    Some(Problem { message, kept, hint: CREATE })
}

/// The state of a credential that proxies may have.
enum State {
    Good,
    Missing,
    Empty(Arc<str>),
    Invalid { name: Arc<str>, flaw: String, kept: bool },
}

fn state(cx: &Reads<'_>, key: &SecretKey, roots: bool) -> State {
    match roots {
        true => state_of(credentials::roots(cx, key)),
        false => state_of(credentials::pair(cx, key)),
    }
}

fn state_of<T>(found: Found<T>) -> State {
    match found {
        Found::Nothing => State::Missing,
        Found::Empty(name) => State::Empty(name),
        Found::Content(_, Content::Valid(_)) => State::Good,
        Found::Content(name, Content::Invalid { flaw, last }) => {
            State::Invalid { name, flaw: format!("{}: {}", flaw.key, flaw.message), kept: last.is_some() }
        }
    }
}

/// Adds this module's rules.
pub(super) fn register(b: &mut flow::Builder) {
    b.view::<CredentialReaders>();
    b.view::<GatewayReaders>();
    b.view::<MissingCredentials>();
    b.view::<MissingOfDestinationRule>();
    b.view::<MissingOfSidecar>();
}
