//! AuthorizationPolicy, PeerAuthentication and the targets of policies.

use std::sync::Arc;

use protos::parse_bool;

use crate::decode::{Relations, Report};
use crate::form::{self, Form};
use crate::istio::authorization_policy::{AuthorizationAction as Action, Condition, Operation, Rule, Source};
use crate::istio::{AuthorizationPolicy, PeerAuthentication, PolicyTargetReference};
use crate::object::Meta;
use crate::problem::FieldPath;

/// Annotation that enables dry-run mode.
pub(super) const DRY_RUN: &str = "istio.io/dry-run";

/// Checks the dry-run annotation, which is supported for the actions `ALLOW` and `DENY`.
pub(super) fn dry_run(r: &mut Report, meta: &Meta, spec: &AuthorizationPolicy) {
    let Some(value) = meta.annotation(DRY_RUN) else {
        return;
    };
    let at = FieldPath::root().field("metadata").field("annotations").key(DRY_RUN);
    if !matches!(spec.action, Action::Allow | Action::Deny) {
        let action = spec.action.name();
        let message = format!("dry-run is not supported with the action {action}; it requires ALLOW or DENY");
        r.error(&at, "unsupported", message);
    } else if parse_bool(value).is_none() {
        let message = format!("expected \"true\" or \"false\", found {value:?}");
        r.error(&at, "bad-value", message);
    }
}

impl Relations for AuthorizationPolicy {
    fn check(&self, r: &mut Report, path: &FieldPath) {
        self.provider(r, &path.field("provider"));
        if self.rules.is_empty() && matches!(self.action, Action::Deny | Action::Custom) {
            let message = format!("a {} policy without rules has no effect", self.action.name());
            let hint = "use the rule {} to match all requests";
            r.error_with(&path.field("rules"), "missing-field", message, hint);
        }
        for (index, rule) in self.rules.iter().enumerate() {
            let at = path.field("rules").index(index);
            if self.action == Action::Custom {
                custom(r, &at, rule);
            }
            if self.action == Action::Deny && is_http_only(rule) {
                r.warning_with(
                    &at,
                    "ambiguous",
                    "the rule has HTTP conditions only, which TCP connections cannot meet: it denies all TCP traffic",
                    "limit the rule to HTTP ports with to.operation.ports",
                );
            }
        }
    }
}

impl AuthorizationPolicy {
    /// Checks the provider, which the action `CUSTOM` requires and other actions do not allow.
    fn provider(&self, r: &mut Report, path: &FieldPath) {
        match (&self.provider, self.action) {
            (None, Action::Custom) => r.error_with(
                path,
                "missing-field",
                "the action CUSTOM requires a provider",
                "set the name of an entry of extensionProviders in the mesh configuration",
            ),
            (Some(_), action) if action != Action::Custom => {
                let action = action.name();
                let message = format!("a provider requires the action CUSTOM, but the action is {action}");
                r.error(path, "exclusive-fields", message);
            }
            _ => {}
        }
    }
}

/// Lists of a source with their field names.
fn source_lists(source: &Source) -> [(&'static str, &[Arc<str>]); 14] {
    [
        ("principals", &source.principals),
        ("notPrincipals", &source.not_principals),
        ("requestPrincipals", &source.request_principals),
        ("notRequestPrincipals", &source.not_request_principals),
        ("namespaces", &source.namespaces),
        ("notNamespaces", &source.not_namespaces),
        ("serviceAccounts", &source.service_accounts),
        ("notServiceAccounts", &source.not_service_accounts),
        ("trustDomains", &source.trust_domains),
        ("notTrustDomains", &source.not_trust_domains),
        ("ipBlocks", &source.ip_blocks),
        ("notIpBlocks", &source.not_ip_blocks),
        ("remoteIpBlocks", &source.remote_ip_blocks),
        ("notRemoteIpBlocks", &source.not_remote_ip_blocks),
    ]
}

impl Relations for Source {
    fn check(&self, r: &mut Report, path: &FieldPath) {
        if *self == Source::default() {
            let hint = "omit from to match all sources";
            return r.error_with(path, "missing-field", "a source must not be empty", hint);
        }
        let used = |names: &[&str]| {
            let mut lists = source_lists(self).into_iter();
            lists.any(|(name, values)| names.contains(&name) && !values.is_empty())
        };
        if used(&["serviceAccounts", "notServiceAccounts"])
            && used(&["principals", "notPrincipals", "namespaces", "notNamespaces"])
        {
            let message = "serviceAccounts cannot be combined with principals or namespaces";
            r.error(path, "exclusive-fields", message);
        }
    }
}

impl Relations for Operation {
    fn check(&self, r: &mut Report, path: &FieldPath) {
        if *self == Operation::default() {
            let hint = "omit to to match all operations";
            r.error_with(path, "missing-field", "an operation must not be empty", hint);
        }
    }
}

/// Maximum number of service accounts in a list, as in Istio.
const MAX_SERVICE_ACCOUNTS: usize = 16;

impl Relations for Condition {
    fn check(&self, r: &mut Report, path: &FieldPath) {
        if form::attribute(&self.key).is_err() {
            return;
        }
        let form: Form = match &*self.key {
            "source.ip" | "remote.ip" | "destination.ip" => form::subnet,
            "destination.port" => form::port_or_zero,
            "source.serviceAccount" => form::service_account,
            "source.trustDomain" => form::wildcard,
            _ => form::text,
        };
        for (field, values) in [("values", &self.values), ("notValues", &self.not_values)] {
            let at = path.field(field);
            if &*self.key == "source.serviceAccount" && values.len() > MAX_SERVICE_ACCOUNTS {
                let message = format!("at most {MAX_SERVICE_ACCOUNTS} service accounts are supported");
                r.error(&at, "out-of-range", message);
            }
            for (index, value) in values.iter().enumerate() {
                r.form(&at.index(index), form, value);
            }
        }
    }
}

/// Reports conditions that the action `CUSTOM` does not support.
fn custom(r: &mut Report, path: &FieldPath, rule: &Rule) {
    let message = |name: &str| format!("{name} is not supported with the action CUSTOM");
    for (index, from) in rule.from.iter().enumerate() {
        let at = path.field("from").index(index).field("source");
        let lists = from.source.iter().flat_map(source_lists);
        for (name, _) in lists.filter(|(name, values)| !name.ends_with("Blocks") && !values.is_empty()) {
            r.error(&at.field(name), "unsupported", message(name));
        }
    }
    for (index, condition) in rule.when.iter().enumerate() {
        let sender = ["source.namespace", "source.serviceAccount", "source.trustDomain", "source.principal"];
        if sender.contains(&&*condition.key) || condition.key.starts_with("request.auth.") {
            let at = path.field("when").index(index).field("key");
            r.error(&at, "unsupported", message(&condition.key));
        }
    }
}

/// Whether a rule has HTTP conditions only. For TCP connections, a `DENY` rule ignores its HTTP conditions, so such a
/// rule denies all of them.
fn is_http_only(rule: &Rule) -> bool {
    // The trust domain is that of the client's certificate, so TCP connections have it, too.
    const HTTP: [&str; 2] = ["requestPrincipals", "notRequestPrincipals"];
    let mut sources = rule.from.iter().filter_map(|from| from.source.as_ref()).peekable();
    let mut operations = rule.to.iter().filter_map(|to| to.operation.as_ref()).peekable();
    if operations.peek().is_some() {
        return !operations.any(|operation| !operation.ports.is_empty() || !operation.not_ports.is_empty());
    }
    let is_tcp = |(name, values): (&str, &[Arc<str>])| !HTTP.contains(&name) && !values.is_empty();
    sources.peek().is_some() && !sources.flat_map(source_lists).any(is_tcp)
}

impl Relations for PeerAuthentication {
    fn check(&self, r: &mut Report, path: &FieldPath) {
        let selects = self.selector.as_ref().is_some_and(|s| !s.match_labels.is_empty());
        if !self.port_level_mtls.is_empty() && !selects {
            r.error_with(
                &path.field("portLevelMtls"),
                "exclusive-fields",
                "portLevelMtls requires a selector with labels",
                "create a policy with a selector for these workloads",
            );
        }
    }
}

/// Groups and kinds that a policy can be attached to.
const TARGETS: [(&str, &str); 4] = [
    ("", "Service"),
    ("networking.istio.io", "ServiceEntry"),
    ("gateway.networking.k8s.io", "Gateway"),
    ("gateway.networking.k8s.io", "GatewayClass"),
];

impl Relations for PolicyTargetReference {
    fn check(&self, r: &mut Report, path: &FieldPath) {
        let group = if &*self.group == "core" { "" } else { &self.group };
        // A missing kind is reported by the schema.
        if self.kind.is_empty() || TARGETS.contains(&(group, &self.kind)) {
            return;
        }
        let qualified = |group: &str, kind: &str| format!("{kind}.{group}").trim_end_matches('.').to_owned();
        let known = TARGETS.map(|(group, kind)| qualified(group, kind));
        let message = format!(
            "a policy cannot be attached to a {}; supported kinds are {}",
            qualified(group, &self.kind),
            known.join(", ")
        );
        match TARGETS.iter().find(|(_, kind)| *kind == &*self.kind) {
            Some((group, _)) => r.error_with(path, "bad-value", message, format!("use the group {group:?}")),
            None => r.error(path, "bad-value", message),
        }
    }
}
