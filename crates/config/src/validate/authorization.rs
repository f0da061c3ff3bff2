//! Validation of AuthorizationPolicy.

use std::sync::Arc;

use crate::diagnostic::FieldPath;
use crate::istio::AuthorizationPolicy;
use crate::istio::authorization_policy::{AuthorizationAction as Action, Condition, Operation, Rule, Source};
use crate::object::Meta;
use crate::validate::{Report, attachment, attribute};

/// Annotation that enables dry-run mode.
pub(super) const DRY_RUN: &str = "istio.io/dry-run";

pub(super) fn check(r: &mut Report, meta: &Meta, spec: &AuthorizationPolicy) {
    let path = FieldPath::spec();
    attachment::check(r, spec.selector.as_ref(), spec.target_ref.as_ref(), &spec.target_refs);
    dry_run(r, meta, spec.action);
    provider(r, &path, spec);
    if spec.rules.is_empty() && matches!(spec.action, Action::Deny | Action::Custom) {
        r.error_with(
            &path.field("rules"),
            "missing-field",
            format!("a {} policy without rules has no effect", spec.action.name()),
            "use the rule {} to match all requests",
        );
    }
    for (index, rule) in spec.rules.iter().enumerate() {
        let at = path.field("rules").index(index);
        self::rule(r, &at, rule);
        if spec.action == Action::Custom {
            custom(r, &at, rule);
        }
        if spec.action == Action::Deny && is_http_only(rule) {
            r.warning_with(
                &at,
                "ambiguous",
                "the rule has HTTP conditions only, which TCP connections cannot meet: it denies all TCP traffic",
                "limit the rule to HTTP ports with to.operation.ports",
            );
        }
    }
}

/// Checks the dry-run annotation, which is supported for the actions `ALLOW` and `DENY`.
fn dry_run(r: &mut Report, meta: &Meta, action: Action) {
    let Some(value) = meta.annotation(DRY_RUN) else {
        return;
    };
    let at = FieldPath::root().field("metadata").field("annotations").key(DRY_RUN);
    let known = [
        "1", "t", "T", "TRUE", "true", "True", "0", "f", "F", "FALSE", "false", "False",
    ];
    if !matches!(action, Action::Allow | Action::Deny) {
        let message = format!(
            "dry-run is not supported with the action {}; it requires ALLOW or DENY",
            action.name()
        );
        r.error(&at, "unsupported", message);
    } else if !known.contains(&value) {
        r.error(
            &at,
            "bad-value",
            format!("expected \"true\" or \"false\", found {value:?}"),
        );
    }
}

/// Checks the provider, which the action `CUSTOM` requires and other actions do not allow.
fn provider(r: &mut Report, path: &FieldPath, spec: &AuthorizationPolicy) {
    let at = path.field("provider");
    match (&spec.provider, spec.action) {
        (Some(provider), Action::Custom) if provider.name.is_empty() => {
            r.error(&at.field("name"), "missing-field", "a provider requires a name");
        }
        (None, Action::Custom) => r.error_with(
            &at,
            "missing-field",
            "the action CUSTOM requires a provider",
            "set the name of an entry of extensionProviders in the mesh configuration",
        ),
        (Some(_), action) if action != Action::Custom => {
            let message = format!(
                "a provider requires the action CUSTOM, but the action is {}",
                action.name()
            );
            r.error(&at, "exclusive-fields", message);
        }
        _ => {}
    }
}

fn rule(r: &mut Report, path: &FieldPath, rule: &Rule) {
    for (index, from) in rule.from.iter().enumerate() {
        let at = path.field("from").index(index);
        match &from.source {
            None => r.error(&at, "missing-field", "source is required"),
            Some(source) => self::source(r, &at.field("source"), source),
        }
    }
    for (index, to) in rule.to.iter().enumerate() {
        let at = path.field("to").index(index);
        match &to.operation {
            None => r.error(&at, "missing-field", "operation is required"),
            Some(operation) => self::operation(r, &at.field("operation"), operation),
        }
    }
    for (index, condition) in rule.when.iter().enumerate() {
        self::condition(r, &path.field("when").index(index), condition);
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

fn source(r: &mut Report, path: &FieldPath, source: &Source) {
    let lists = source_lists(source);
    if lists.iter().all(|(_, values)| values.is_empty()) {
        return r.error_with(
            path,
            "missing-field",
            "a source must not be empty",
            "omit from to match all sources",
        );
    }
    let has = |names: &[&str]| {
        lists
            .iter()
            .any(|(name, values)| names.contains(name) && !values.is_empty())
    };
    if has(&["serviceAccounts", "notServiceAccounts"])
        && has(&["principals", "notPrincipals", "namespaces", "notNamespaces"])
    {
        let message = "serviceAccounts cannot be combined with principals or namespaces";
        r.error(path, "exclusive-fields", message);
    }
    for (name, values) in lists {
        let at = path.field(name);
        match name {
            "serviceAccounts" | "notServiceAccounts" => attribute::service_accounts(r, &at, values),
            "trustDomains" | "notTrustDomains" => attribute::trust_domains(r, &at, values),
            name if name.ends_with("Blocks") => attribute::addresses(r, &at, values),
            _ => attachment::not_empty(r, &at, values),
        }
    }
}

fn operation(r: &mut Report, path: &FieldPath, operation: &Operation) {
    let lists: [(&str, &[Arc<str>]); 8] = [
        ("hosts", &operation.hosts),
        ("notHosts", &operation.not_hosts),
        ("ports", &operation.ports),
        ("notPorts", &operation.not_ports),
        ("methods", &operation.methods),
        ("notMethods", &operation.not_methods),
        ("paths", &operation.paths),
        ("notPaths", &operation.not_paths),
    ];
    if lists.iter().all(|(_, values)| values.is_empty()) {
        return r.error_with(
            path,
            "missing-field",
            "an operation must not be empty",
            "omit to to match all operations",
        );
    }
    for (name, values) in lists {
        let at = path.field(name);
        match name {
            "ports" | "notPorts" => attribute::ports(r, &at, values),
            "paths" | "notPaths" => {
                attachment::not_empty(r, &at, values);
                attribute::path_templates(r, &at, values);
            }
            _ => attachment::not_empty(r, &at, values),
        }
    }
}

fn condition(r: &mut Report, path: &FieldPath, condition: &Condition) {
    // A missing key is reported by the schema.
    if condition.key.is_empty() {
        return;
    }
    if condition.values.is_empty() && condition.not_values.is_empty() {
        return r.error(path, "missing-field", "a condition requires values or notValues");
    }
    if !attribute::key(r, &path.field("key"), &condition.key) {
        return;
    }
    attribute::values(r, &path.field("values"), &condition.key, &condition.values);
    attribute::values(r, &path.field("notValues"), &condition.key, &condition.not_values);
}

/// Reports conditions that the action `CUSTOM` does not support.
fn custom(r: &mut Report, path: &FieldPath, rule: &Rule) {
    for (index, from) in rule.from.iter().enumerate() {
        let Some(source) = &from.source else {
            continue;
        };
        let at = path.field("from").index(index).field("source");
        let lists = source_lists(source).into_iter();
        for (name, _) in lists.filter(|(name, values)| !name.ends_with("Blocks") && !values.is_empty()) {
            let message = format!("{name} is not supported with the action CUSTOM");
            r.error(&at.field(name), "unsupported", message);
        }
    }
    for (index, condition) in rule.when.iter().enumerate() {
        let sender = [
            "source.namespace",
            "source.serviceAccount",
            "source.trustDomain",
            "source.principal",
        ];
        if sender.contains(&&*condition.key) || condition.key.starts_with("request.auth.") {
            let message = format!("{} is not supported with the action CUSTOM", condition.key);
            r.error(&path.field("when").index(index).field("key"), "unsupported", message);
        }
    }
}

/// Whether a rule has HTTP conditions only. For TCP connections, a `DENY` rule ignores its HTTP conditions, so such a
/// rule denies all of them.
fn is_http_only(rule: &Rule) -> bool {
    let sources: Vec<&Source> = rule.from.iter().filter_map(|from| from.source.as_ref()).collect();
    let operations: Vec<&Operation> = rule.to.iter().filter_map(|to| to.operation.as_ref()).collect();
    let tcp_source = sources.iter().any(|source| {
        let lists = source_lists(source).into_iter();
        let http_only = [
            "requestPrincipals",
            "notRequestPrincipals",
            "trustDomains",
            "notTrustDomains",
        ];
        let mut lists = lists.filter(|(name, _)| !http_only.contains(name));
        lists.any(|(_, values)| !values.is_empty())
    });
    let tcp_operation = operations
        .iter()
        .any(|operation| !operation.ports.is_empty() || !operation.not_ports.is_empty());
    match (sources.is_empty(), operations.is_empty()) {
        (_, false) => !tcp_operation,
        (false, true) => !tcp_source,
        (true, true) => false,
    }
}
