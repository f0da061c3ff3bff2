//! Authorization of requests and connections before it is encoded: complete plain values, so that encoding makes no
//! decisions.

use std::collections::BTreeMap;
use std::sync::Arc;

use config::mesh::{ExtAuthzGrpcProvider, ExtAuthzHttpProvider};
use ipnet::IpNet;

/// The checks of a workload, in order. A request is rejected by the first check that does not let it pass.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Plan {
    /// For HTTP requests.
    pub http: Vec<Check>,
    /// For connections of other protocols.
    pub tcp: Vec<Check>,
}

/// One check.
#[derive(Clone, PartialEq, Debug)]
pub enum Check {
    /// Rules that the proxy evaluates itself.
    Local {
        /// The effect of a match.
        action: Action,
        /// The rules; none if all policies of this action are a dry run.
        enforced: Option<Rules>,
        /// The rules whose result is only counted; none without a dry run.
        dry_run: Option<Rules>,
    },
    /// An external service decides about requests that match the rules.
    External {
        /// The name of the provider.
        provider: Arc<str>,
        /// The service.
        service: Arc<ExternalService>,
        /// The rules. The beginning of their names is [`external_prefix`].
        rules: Rules,
    },
}

/// The effect of a match.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Action {
    /// Requests that match a rule are marked for audit logs.
    Audit,
    /// Requests that match a rule are denied.
    Deny,
    /// Requests that match no rule are denied.
    Allow,
}

/// Rules by name, of which one must match.
pub type Rules = BTreeMap<Arc<str>, Arc<Rule>>;

/// The beginning of the names of rules for which a provider decides.
pub fn external_prefix(provider: &str) -> String {
    format!("istio-ext-authz-{provider}-ns[")
}

/// A rule: one of the permissions and one of the principals must match.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Rule {
    /// At least one.
    pub permissions: Vec<All<Permission>>,
    /// At least one.
    pub principals: Vec<All<Principal>>,
}

/// Conditions that must all hold. Without conditions, everything matches.
pub type All<T> = Vec<Condition<T>>;

/// A condition: one of the alternatives holds, or (negated) none.
#[derive(Clone, PartialEq, Debug)]
pub struct Condition<T> {
    /// No alternative may hold.
    pub negated: bool,
    /// At least one.
    pub any: Vec<T>,
}

/// A condition on what is done.
#[derive(Clone, PartialEq, Debug)]
pub enum Permission {
    /// The `Host` header, without regard to case.
    Host(Text),
    /// The `Host` header is this host (`Exact`), or one that ends like it (`Suffix`), with a port and nothing after it, without
    /// regard to case.
    HostWithPort(Text),
    /// The HTTP method.
    Method(Text),
    /// The path, without query and fragment.
    Path(Text),
    /// The path matches a template of Envoy: `*` is one segment, `**` any number of segments.
    PathTemplate(Arc<str>),
    /// The port of the workload.
    Port(u16),
    /// The address of the workload.
    Address(IpNet),
    /// The SNI.
    ServerName(Text),
    /// Dynamic metadata of a filter.
    Metadata {
        /// The filter.
        filter: Arc<str>,
        /// The key.
        key: Arc<str>,
        /// The value, or with `list` one of the list.
        value: Text,
        /// The value is a list.
        list: bool,
    },
}

/// A condition on who does it.
#[derive(Clone, PartialEq, Debug)]
pub enum Principal {
    /// The identity in the client's certificate matches all of these.
    Identity(Vec<Text>),
    /// The address of the connection's other end.
    ConnectionAddress(IpNet),
    /// The address of the client, also behind trusted proxies.
    ClientAddress(IpNet),
    /// A request header.
    Header(Arc<str>, Text),
    /// A claim of the request's token, by the names of the objects that contain it. It may be a list that contains the
    /// text.
    Claim(Vec<Arc<str>>, Text),
    /// Issuer and subject of the request's token.
    Token(Text, Text),
}

/// A condition on a text.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Text {
    /// It is not empty.
    Present,
    /// It is this text.
    Exact(Arc<str>),
    /// It begins with this text, which is not empty.
    Prefix(Arc<str>),
    /// It ends with this text, which is not empty.
    Suffix(Arc<str>),
    /// It contains this text, which is not empty.
    Contains(Arc<str>),
    /// It begins with the first of these texts. The others follow in this order, each after any text without a slash. Any text may
    /// follow.
    Segments(Arc<[Arc<str>]>),
}

/// A service that decides about requests.
#[derive(Clone, PartialEq, Debug)]
pub struct ExternalService {
    /// The name of its cluster.
    pub cluster: Arc<str>,
    /// Its host.
    pub authority: Arc<str>,
    /// Its protocol and settings.
    pub settings: ExternalSettings,
}

/// Settings of an external service, without its address. They are valid for Envoy.
#[derive(Clone, PartialEq, Debug)]
pub enum ExternalSettings {
    /// Over HTTP.
    Http(Box<ExtAuthzHttpProvider>),
    /// Over gRPC.
    Grpc(Box<ExtAuthzGrpcProvider>),
}

impl Text {
    /// The condition that users write: `*` at the start or the end stands for any text, `*` alone for any that is not
    /// empty.
    pub fn with_wildcard(written: &str) -> Text {
        if written == "*" {
            Text::Present
        } else if let Some(suffix) = written.strip_prefix('*') {
            Text::Suffix(suffix.into())
        } else if let Some(prefix) = written.strip_suffix('*') {
            Text::Prefix(prefix.into())
        } else {
            Text::Exact(written.into())
        }
    }
}

impl<T> Condition<T> {
    /// Conditions that one of `values` and none of `not_values` holds; empty lists are no conditions.
    pub fn of(values: Vec<T>, not_values: Vec<T>) -> impl Iterator<Item = Condition<T>> {
        let conditions = [(false, values), (true, not_values)].into_iter();
        conditions.filter(|(_, any)| !any.is_empty()).map(|(negated, any)| Condition { negated, any })
    }
}
