//! Translates the rules of a policy.

use std::net::IpAddr;
use std::sync::Arc;

use config::istio::authorization_policy::{Condition as Attribute, Operation, Rule as Written, Source};
use ipnet::IpNet;
use model::authorization::{All, Condition, Permission, Principal, Rule, Text};

use super::identity;

/// The longest path template that Envoy accepts.
const MAX_TEMPLATE: usize = 256;

/// The traffic that rules are for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Traffic {
    /// HTTP requests.
    Http,
    /// Calls of a gRPC server, which verifies no tokens and knows no server names, path templates and dynamic metadata.
    Grpc,
    /// Connections, of which the proxy sees bytes only.
    Tcp,
}

/// Translates rules. `None` in a result means that a value cannot be evaluated.
pub(super) struct Translator<'a> {
    pub(super) traffic: Traffic,
    /// The action is `ALLOW`: a rule that cannot be evaluated is left out.
    pub(super) allows: bool,
    /// The policy's namespace.
    pub(super) namespace: &'a str,
    /// The mesh's trust domain and its aliases.
    pub(super) domains: &'a [Arc<str>],
}

/// The conditions of a rule under construction.
#[derive(Clone, Default)]
struct Conditions {
    permissions: All<Permission>,
    principals: All<Principal>,
}

impl Translator<'_> {
    /// The translation of a rule; none if the rule is left out.
    pub(super) fn rule(&self, rule: &Written) -> Option<Rule> {
        let mut base = Conditions::default();
        for condition in &rule.when {
            self.attribute(condition, &mut base)?;
        }
        let mut out = Rule::default();
        for from in &rule.from {
            let mut own = Vec::new();
            match &from.source {
                Some(source) => self.source(source, &mut own)?,
                // Validation refuses it.
                None if self.allows => return None,
                None => {}
            }
            out.principals.push(own.into_iter().chain(base.principals.iter().cloned()).collect());
        }
        for to in &rule.to {
            let mut own = Vec::new();
            match &to.operation {
                Some(operation) => self.operation(operation, &mut own)?,
                None if self.allows => return None,
                None => {}
            }
            out.permissions.push(own.into_iter().chain(base.permissions.iter().cloned()).collect());
        }
        if out.principals.is_empty() {
            out.principals.push(base.principals);
        }
        if out.permissions.is_empty() {
            out.permissions.push(base.permissions);
        }
        Some(out)
    }

    fn source(&self, source: &Source, out: &mut All<Principal>) -> Option<()> {
        let mut add = |values: &[Arc<str>], not_values: &[Arc<str>], make: &dyn Fn(&str) -> Option<Vec<Principal>>| {
            self.add(values, not_values, make, out)
        };
        add(&source.principals, &source.not_principals, &|text| Some(identity::principal(text, self.domains)))?;
        add(&source.request_principals, &source.not_request_principals, &|text| self.envoy_http(|| Some(token(text))))?;
        add(&source.service_accounts, &source.not_service_accounts, &|text| {
            Some(identity::service_account(text, self.namespace))
        })?;
        add(&source.trust_domains, &source.not_trust_domains, &|text| {
            Some(identity::trust_domain(text, self.domains))
        })?;
        add(&source.namespaces, &source.not_namespaces, &|text| Some(vec![identity::namespace(text)]))?;
        add(&source.remote_ip_blocks, &source.not_remote_ip_blocks, &|text| {
            Some(vec![Principal::ClientAddress(network(text)?)])
        })?;
        add(&source.ip_blocks, &source.not_ip_blocks, &|text| Some(vec![Principal::ConnectionAddress(network(text)?)]))
    }

    fn operation(&self, operation: &Operation, out: &mut All<Permission>) -> Option<()> {
        let mut add = |values: &[Arc<str>], not_values: &[Arc<str>], make: &dyn Fn(&str) -> Option<Vec<Permission>>| {
            self.add(values, not_values, make, out)
        };
        // Where a match denies, the port is not looked at: a proxy behind may read the host differently.
        let strict = self.allows;
        add(&operation.hosts, &[], &|text| self.http(|| Some(hosts(text, strict))))?;
        add(&[], &operation.not_hosts, &|text| self.http(|| Some(hosts(text, !strict))))?;
        add(&operation.methods, &operation.not_methods, &|text| {
            self.http(|| Some(vec![Permission::Method(Text::with_wildcard(text))]))
        })?;
        add(&operation.paths, &operation.not_paths, &|text| self.http(|| Some(vec![self.path(text)?])))?;
        add(&operation.ports, &operation.not_ports, &|text| Some(vec![Permission::Port(text.parse().ok()?)]))
    }

    /// Adds the condition on an attribute.
    fn attribute(&self, condition: &Attribute, out: &mut Conditions) -> Option<()> {
        let Conditions { permissions, principals } = out;
        let (values, not_values) = (&condition.values, &condition.not_values);
        let mut permission =
            |make: &dyn Fn(&str) -> Option<Vec<Permission>>| self.add(values, not_values, make, permissions);
        let mut principal =
            |make: &dyn Fn(&str) -> Option<Vec<Principal>>| self.add(values, not_values, make, principals);
        let claim = |path: Vec<Arc<str>>, text: &str| Some(vec![Principal::Claim(path, Text::with_wildcard(text))]);
        match &*condition.key {
            "destination.ip" => permission(&|text| Some(vec![Permission::Address(network(text)?)])),
            "destination.port" => permission(&|text| Some(vec![Permission::Port(text.parse().ok()?)])),
            "connection.sni" => {
                permission(&|text| self.envoy(|| Some(vec![Permission::ServerName(Text::with_wildcard(text))])))
            }
            "source.ip" => principal(&|text| Some(vec![Principal::ConnectionAddress(network(text)?)])),
            "remote.ip" => principal(&|text| Some(vec![Principal::ClientAddress(network(text)?)])),
            "source.namespace" => principal(&|text| Some(vec![identity::namespace(text)])),
            "source.principal" => principal(&|text| Some(identity::principal(text, self.domains))),
            "source.serviceAccount" => principal(&|text| Some(identity::service_account(text, self.namespace))),
            "source.trustDomain" => principal(&|text| Some(identity::trust_domain(text, self.domains))),
            "request.auth.principal" => principal(&|text| self.envoy_http(|| Some(token(text)))),
            "request.auth.audiences" => principal(&|text| self.envoy_http(|| claim(vec!["aud".into()], text))),
            "request.auth.presenter" => principal(&|text| self.envoy_http(|| claim(vec!["azp".into()], text))),
            key if key.starts_with("request.auth.claims") => {
                let path = brackets(key.trim_start_matches("request.auth.claims"));
                principal(&|text| self.envoy_http(|| claim(path.clone()?, text)))
            }
            key if key.starts_with("request.headers") => {
                let name = header(key.trim_start_matches("request.headers")).filter(|name| self.knows_header(name));
                principal(&|text| self.http(|| Some(vec![Principal::Header(name.clone()?, Text::with_wildcard(text))])))
            }
            key => {
                let named = metadata(key);
                permission(&|text| {
                    let (filter, key) = named.clone()?;
                    let inner = text.strip_prefix('[').and_then(|text| text.strip_suffix(']'));
                    let value = Text::with_wildcard(inner.unwrap_or(text));
                    self.envoy(|| Some(vec![Permission::Metadata { filter, key, value, list: inner.is_some() }]))
                })
            }
        }
    }

    /// A condition that only HTTP requests can meet. Calls of gRPC are such requests.
    fn http<T>(&self, make: impl FnOnce() -> Option<T>) -> Option<T> {
        (self.traffic != Traffic::Tcp).then(make).flatten()
    }

    /// A condition that only Envoy can evaluate.
    fn envoy<T>(&self, make: impl FnOnce() -> Option<T>) -> Option<T> {
        (self.traffic != Traffic::Grpc).then(make).flatten()
    }

    /// A condition that only Envoy can evaluate, and only for HTTP requests.
    fn envoy_http<T>(&self, make: impl FnOnce() -> Option<T>) -> Option<T> {
        self.http(|| self.envoy(make))
    }

    /// Whether the proxy matches this header. gRPC rejects rules with headers that it handles itself.
    fn knows_header(&self, name: &str) -> bool {
        self.traffic != Traffic::Grpc || !(name.starts_with("grpc-") || name == ":scheme")
    }

    /// A path, or a template of paths.
    fn path(&self, written: &str) -> Option<Permission> {
        let path = path(written)?;
        let is_template = matches!(path, Permission::PathTemplate(_));
        (!is_template || self.traffic != Traffic::Grpc).then_some(path)
    }

    /// Adds a condition that one of `values`, and none of `not_values` holds.
    fn add<T>(
        &self,
        values: &[Arc<str>],
        not_values: &[Arc<str>],
        make: &dyn Fn(&str) -> Option<Vec<T>>,
        out: &mut All<T>,
    ) -> Option<()> {
        let all = |values: &[Arc<str>]| {
            let mut alternatives = Vec::new();
            for value in values {
                match make(value) {
                    Some(made) => alternatives.extend(made),
                    None if self.allows => return None,
                    None => {}
                }
            }
            Some(alternatives)
        };
        let (any, none) = (all(values)?, all(not_values)?);
        out.extend(Condition::of(any, none));
        Some(())
    }
}

/// An address or a CIDR range.
fn network(text: &str) -> Option<IpNet> {
    text.parse().ok().or_else(|| text.parse::<IpAddr>().ok().map(IpNet::from))
}

/// A host. Unless it has a port, it matches with every port, and with a dot at the end, which means the same host. With `strict`,
/// a port has digits only: `a.com:x` is not `a.com`.
fn hosts(written: &str, strict: bool) -> Vec<Permission> {
    let text = Text::with_wildcard(written.strip_suffix('.').unwrap_or(written));
    let (Text::Exact(host) | Text::Suffix(host)) = &text else { return vec![Permission::Host(text)] };
    if has_port(host) {
        return vec![Permission::Host(text)];
    }
    let is_exact = matches!(text, Text::Exact(_));
    let dotted = format!("{host}.");
    let like = |host: &str| if is_exact { Text::Exact(host.into()) } else { Text::Suffix(host.into()) };
    let with_port = |host: &str| match (strict, is_exact) {
        (true, _) => Permission::HostWithPort(like(host)),
        (false, true) => Permission::Host(Text::Prefix(format!("{host}:").into())),
        (false, false) => Permission::Host(Text::Contains(format!("{host}:").into())),
    };
    let names = [&**host, &dotted];
    names.into_iter().map(|name| Permission::Host(like(name))).chain(names.into_iter().map(with_port)).collect()
}

fn has_port(host: &str) -> bool {
    host.rsplit_once(':').is_some_and(|(_, port)| !port.is_empty() && port.bytes().all(|byte| byte.is_ascii_digit()))
}

/// A path. With `{*}` or `{**}`, it is a template; none if Envoy would reject it.
fn path(written: &str) -> Option<Permission> {
    if !written.contains("{*}") && !written.contains("{**}") {
        return Some(Permission::Path(Text::with_wildcard(written)));
    }
    let mut rest_seen = false;
    let mut template = String::new();
    let path = written.strip_prefix('/')?;
    let segments = path.strip_suffix('/').unwrap_or(path);
    for segment in segments.split('/') {
        let segment = match segment {
            "{*}" | "{**}" if rest_seen => return None,
            "{*}" => "*",
            "{**}" => {
                rest_seen = true;
                "**"
            }
            literal if is_literal(literal) => literal,
            _ => return None,
        };
        template.push('/');
        template.push_str(segment);
    }
    if segments.len() < path.len() {
        template.push('/');
    }
    (template.len() <= MAX_TEMPLATE).then(|| Permission::PathTemplate(template.into()))
}

/// Whether Envoy accepts a segment of a path template.
fn is_literal(segment: &str) -> bool {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-._~%!$&'()+,;:@=".contains(&byte);
    !segment.is_empty() && segment.bytes().all(plain)
}

/// The issuer and subject of a token, `ISSUER/SUBJECT`. The last slash divides them, also in text with a wildcard: `https://a/*` are
/// the subjects of the issuer `https://a`, and not those of `https://a/b`.
fn token(written: &str) -> Vec<Principal> {
    let exact = |text: &str| Text::Exact(text.into());
    let (issuer, subject) = match (Text::with_wildcard(written), written.rsplit_once('/')) {
        (Text::Suffix(_), Some((issuer, subject))) => (Text::with_wildcard(issuer), exact_or_any(subject)),
        (Text::Prefix(_), Some((issuer, subject))) => (exact(issuer), Text::with_wildcard(subject)),
        (Text::Suffix(suffix), None) => (Text::Present, Text::Suffix(suffix)),
        (Text::Prefix(prefix), None) => (Text::Prefix(prefix), Text::Present),
        (Text::Exact(_), Some((issuer, subject))) => (exact(issuer), exact(subject)),
        (Text::Exact(issuer), None) => (Text::Exact(issuer), exact("")),
        (any, _) => (any, Text::Present),
    };
    vec![Principal::Token(issuer, subject)]
}

fn exact_or_any(text: &str) -> Text {
    if text == "*" { Text::Present } else { Text::Exact(text.into()) }
}

/// The name in `[NAME]`, if it is a name of a header.
fn header(key: &str) -> Option<Arc<str>> {
    let name = key.strip_prefix('[')?.strip_suffix(']')?;
    config::is_header_name(name.strip_prefix(':').unwrap_or(name)).then(|| name.into())
}

/// The names in `[A][B]`. Other brackets are part of a single name.
fn brackets(key: &str) -> Option<Vec<Arc<str>>> {
    let inner = key.strip_prefix('[')?.strip_suffix(']')?;
    let names: Vec<&str> = inner.split("][").collect();
    let nested = names.iter().all(|name| !name.contains(['[', ']']));
    let names = if nested { names } else { vec![inner] };
    names.iter().all(|name| !name.is_empty()).then(|| names.into_iter().map(Arc::from).collect())
}

/// The filter and key in `experimental.envoy.filters.a.b[KEY]`.
fn metadata(key: &str) -> Option<(Arc<str>, Arc<str>)> {
    let (filter, key) = key.strip_prefix("experimental.")?.strip_suffix(']')?.split_once('[')?;
    (filter.starts_with("envoy.filters.") && !key.is_empty()).then(|| (filter.into(), key.into()))
}
