//! The objects of the bank: a service that is called through sidecars with certificates, and the policies that protect it.

use std::net::{Ipv4Addr, SocketAddr};

use crate::config::Manifest;

/// The namespace.
pub(crate) const BANK: &str = "bank";
/// The host name of the service.
pub(crate) const LEDGER: &str = "ledger.bank.svc.cluster.local";
/// The issuer of tokens.
pub(crate) const ISSUER: &str = "https://issuer.example";
/// The identities of workloads, without `spiffe://`: the trust domain, the namespace, and the service account.
const IDENTITIES: &str = "cluster.local/ns/bank/sa";

const NETWORKING: &str = "networking.istio.io";
const SECURITY: &str = "security.istio.io";

/// The namespace, the service at `port` with its only instance behind `entrance`, and what each sidecar listens on.
pub(crate) fn service(
    port: u16,
    entrance: SocketAddr,
    application: SocketAddr,
    callers: &[(&str, Ipv4Addr)],
) -> Vec<Manifest> {
    let object = |plural, singular, kind: &str, name: &str, spec: &str| {
        Manifest::new(BANK, (NETWORKING, plural), singular, (kind, name), spec)
    };
    let entry = format!(
        "\
spec:
  hosts: [{LEDGER}]
  exportTo: [.]
  location: MESH_INTERNAL
  resolution: STATIC
  ports: [{{ number: {port}, name: http, protocol: HTTP }}]
  workloadSelector: {{ labels: {{ app: ledger }} }}
"
    );
    let instance = format!(
        "\
spec:
  address: {}
  ports: {{ http: {} }}
  serviceAccount: ledger
  # Its sidecar accepts mutual TLS.
  labels: {{ app: ledger, security.istio.io/tlsMode: istio }}
",
        entrance.ip(),
        entrance.port()
    );
    let inbound = format!(
        "\
spec:
  workloadSelector: {{ labels: {{ app: ledger }} }}
  egress: [{{ hosts: [nowhere/*] }}]
  ingress:
  - port: {{ number: {}, name: http, protocol: HTTP }}
    bind: {}
    captureMode: NONE
    defaultEndpoint: {application}
",
        entrance.port(),
        entrance.ip()
    );
    // Each caller's sidecar has an address of its own, because all of them run on one machine.
    let outbound = callers.iter().map(|(name, ip)| {
        let spec = format!(
            "\
spec:
  workloadSelector: {{ labels: {{ app: {name} }} }}
  egress:
  - port: {{ number: {port}, name: http, protocol: HTTP }}
    bind: {ip}
    captureMode: NONE
    hosts: [./*]
"
        );
        object("sidecars", "sidecar", "Sidecar", name, &spec)
    });
    let mut all = vec![
        Manifest::namespace(BANK),
        object("serviceentries", "serviceentry", "ServiceEntry", "ledger", &entry),
        object("workloadentries", "workloadentry", "WorkloadEntry", "ledger", &instance),
        object("sidecars", "sidecar", "Sidecar", "ledger", &inbound),
    ];
    all.extend(outbound);
    all
}

/// Workloads of the namespace accept mutual TLS only.
pub(crate) fn strict() -> Manifest {
    let spec = "spec: { mtls: { mode: STRICT } }\n";
    let kind = ("PeerAuthentication", "default");
    Manifest::new(BANK, (SECURITY, "peerauthentications"), "peerauthentication", kind, spec)
}

/// The ledger accepts requests of this service account only, and with `tokens` only those with a token of the issuer.
pub(crate) fn allow(account: &str, tokens: bool) -> Manifest {
    let more = if tokens { format!(", requestPrincipals: [\"{ISSUER}/*\"]") } else { String::new() };
    let spec = format!(
        "\
spec:
  selector: {{ matchLabels: {{ app: ledger }} }}
  action: ALLOW
  rules:
  - from: [{{ source: {{ principals: [{IDENTITIES}/{account}]{more} }} }}]
"
    );
    let kind = ("AuthorizationPolicy", "ledger");
    Manifest::new(BANK, (SECURITY, "authorizationpolicies"), "authorizationpolicy", kind, &spec)
}

/// The ledger verifies tokens of the issuer with these keys.
pub(crate) fn tokens(keys: &str) -> Manifest {
    let spec = format!(
        "\
spec:
  selector: {{ matchLabels: {{ app: ledger }} }}
  jwtRules:
  - issuer: {ISSUER}
    audiences: [ledger]
    jwks: '{keys}'
"
    );
    let kind = ("RequestAuthentication", "ledger");
    Manifest::new(BANK, (SECURITY, "requestauthentications"), "requestauthentication", kind, &spec)
}
