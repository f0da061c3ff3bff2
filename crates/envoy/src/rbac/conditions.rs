//! Conditions of RBAC rules.

use model::authorization::{Condition, Permission, Principal, Text};
use protos::envoy::config::rbac::v3 as rbac;
use protos::envoy::config::rbac::v3::permission::Rule;
use protos::envoy::config::rbac::v3::principal::{Authenticated, Identifier};
use protos::envoy::config::route::v3::HeaderMatcher;
use protos::envoy::config::route::v3::header_matcher::HeaderMatchSpecifier;
use protos::envoy::extensions::path::r#match::uri_template::v3::UriTemplateMatchConfig;
use protos::envoy::r#type::matcher::v3::metadata_matcher::{PathSegment, path_segment::Segment};
use protos::envoy::r#type::matcher::v3::string_matcher::MatchPattern;
use protos::envoy::r#type::matcher::v3::value_matcher::MatchPattern as ValuePattern;
use protos::envoy::r#type::matcher::v3::{
    ListMatcher, MetadataMatcher, OrMatcher, PathMatcher, StringMatcher, ValueMatcher, list_matcher, path_matcher,
};

use crate::parts::{extension, quoted, range, regex};

/// The filter that writes the content of verified tokens into metadata, and the key of it.
const TOKEN_FILTER: &str = "envoy.filters.http.jwt_authn";
const TOKEN_KEY: &str = "payload";

/// A text that is not empty.
const NOT_EMPTY: &str = ".+";

/// The forms of `Host` headers with a port: a name or an IPv4 address, and an IPv6 address.
const NAME_WITH_PORT: &str = "[^:]*:[0-9]*";
const ADDRESS_WITH_PORT: &str = r"\[[^\]]*\]:[0-9]*";

/// Permissions that must all match; without any, everything matches.
pub(super) fn permission(all: &[Condition<Permission>]) -> rbac::Permission {
    let condition = |condition: &Condition<Permission>| {
        let any = one_or(condition.any.iter().map(single_permission).collect(), or_rules);
        match condition.negated {
            true => Rule::NotRule(Box::new(permission_of(any))),
            false => any,
        }
    };
    let rules: Vec<Rule> = all.iter().map(condition).collect();
    permission_of(if rules.is_empty() { Rule::Any(true) } else { one_or(rules, and_rules) })
}

/// Principals that must all match; without any, everybody matches.
pub(super) fn principal(all: &[Condition<Principal>]) -> rbac::Principal {
    let condition = |condition: &Condition<Principal>| {
        let any = one_or(condition.any.iter().map(single_principal).collect(), or_ids);
        match condition.negated {
            true => Identifier::NotId(Box::new(principal_of(any))),
            false => any,
        }
    };
    let ids: Vec<Identifier> = all.iter().map(condition).collect();
    principal_of(if ids.is_empty() { Identifier::Any(true) } else { one_or(ids, and_ids) })
}

/// The only one, or all of them in a set. There is at least one.
fn one_or<T>(mut several: Vec<T>, set: impl FnOnce(Vec<T>) -> T) -> T {
    match several.len() {
        1 => several.remove(0),
        _ => set(several),
    }
}

fn permission_of(rule: Rule) -> rbac::Permission {
    rbac::Permission { rule: Some(rule) }
}

fn principal_of(identifier: Identifier) -> rbac::Principal {
    rbac::Principal { identifier: Some(identifier) }
}

fn and_rules(rules: Vec<Rule>) -> Rule {
    Rule::AndRules(rbac::permission::Set { rules: rules.into_iter().map(permission_of).collect() })
}

fn or_rules(rules: Vec<Rule>) -> Rule {
    Rule::OrRules(rbac::permission::Set { rules: rules.into_iter().map(permission_of).collect() })
}

fn and_ids(ids: Vec<Identifier>) -> Identifier {
    Identifier::AndIds(rbac::principal::Set { ids: ids.into_iter().map(principal_of).collect() })
}

fn or_ids(ids: Vec<Identifier>) -> Identifier {
    Identifier::OrIds(rbac::principal::Set { ids: ids.into_iter().map(principal_of).collect() })
}

#[expect(deprecated, reason = "older Envoys do not know the successor, sourced_metadata")]
fn single_permission(permission: &Permission) -> Rule {
    match permission {
        Permission::Host(text) => Rule::Header(header(":authority", text, true)),
        Permission::HostWithPort(text) => host_with_port(text),
        Permission::Method(text) => Rule::Header(header(":method", text, false)),
        Permission::Path(text) => {
            Rule::UrlPath(PathMatcher { rule: Some(path_matcher::Rule::Path(string(text, false))) })
        }
        Permission::PathTemplate(template) => {
            let config = UriTemplateMatchConfig { path_template: template.to_string() };
            Rule::UriTemplate(extension("uri-template", &config))
        }
        Permission::Port(port) => Rule::DestinationPort(u32::from(*port)),
        Permission::Address(network) => Rule::DestinationIp(range(network)),
        Permission::ServerName(text) => Rule::RequestedServerName(string(text, false)),
        Permission::Metadata { filter, key, value, list } => {
            let value = value_of(text_value(value));
            let value = if *list { value_of(in_list(value)) } else { value };
            Rule::Metadata(metadata(filter, [&**key], value))
        }
    }
}

#[expect(deprecated, reason = "older Envoys do not know the successor, sourced_metadata")]
fn single_principal(principal: &Principal) -> Identifier {
    match principal {
        Principal::Identity(texts) => one_or(texts.iter().map(authenticated).collect(), and_ids),
        Principal::ConnectionAddress(network) => Identifier::DirectRemoteIp(range(network)),
        Principal::ClientAddress(network) => Identifier::RemoteIp(range(network)),
        Principal::Header(name, text) => Identifier::Header(header(name, text, false)),
        Principal::Claim(path, text) => {
            let value = value_of(text_value(text));
            let either = OrMatcher { value_matchers: vec![value_of(in_list(value.clone())), value] };
            Identifier::Metadata(claim(path.iter().map(|name| &**name), value_of(ValuePattern::OrMatch(either))))
        }
        Principal::Token(issuer, subject) => {
            let texts = [("iss", issuer), ("sub", subject)];
            let claims = texts.map(|(name, text)| Identifier::Metadata(claim([name], value_of(text_value(text)))));
            and_ids(claims.into())
        }
    }
}

fn authenticated(text: &Text) -> Identifier {
    Identifier::Authenticated(Authenticated { principal_name: Some(string(text, false)) })
}

fn header(name: &str, text: &Text, ignore_case: bool) -> HeaderMatcher {
    let specifier = match text {
        Text::Present => HeaderMatchSpecifier::PresentMatch(true),
        text => HeaderMatchSpecifier::StringMatch(string(text, ignore_case)),
    };
    HeaderMatcher { name: name.to_owned(), header_match_specifier: Some(specifier), ..Default::default() }
}

/// Both conditions hold only if nothing but a port is after the host. The regular expressions do not grow with the host, because
/// Envoy rejects large ones.
fn host_with_port(host: &Text) -> Rule {
    let (start, is_address) = match host {
        Text::Suffix(host) => (Text::Contains(format!("{host}:").into()), host.ends_with(']')),
        Text::Exact(host) | Text::Prefix(host) | Text::Contains(host) => {
            (Text::Prefix(format!("{host}:").into()), host.ends_with(']'))
        }
        Text::Present | Text::Segments(_) => (Text::Present, false),
    };
    let form = if is_address { ADDRESS_WITH_PORT } else { NAME_WITH_PORT };
    let form = MatchPattern::SafeRegex(regex(form));
    let form = HeaderMatcher {
        name: ":authority".to_owned(),
        header_match_specifier: Some(HeaderMatchSpecifier::StringMatch(StringMatcher {
            match_pattern: Some(form),
            ignore_case: false,
        })),
        ..Default::default()
    };
    and_rules(vec![Rule::Header(header(":authority", &start, true)), Rule::Header(form)])
}

fn string(text: &Text, ignore_case: bool) -> StringMatcher {
    let pattern = match text {
        // Case makes no difference.
        Text::Present => {
            let pattern = MatchPattern::SafeRegex(regex(NOT_EMPTY));
            return StringMatcher { match_pattern: Some(pattern), ignore_case: false };
        }
        Text::Exact(text) => MatchPattern::Exact(text.to_string()),
        Text::Prefix(text) => MatchPattern::Prefix(text.to_string()),
        Text::Suffix(text) => MatchPattern::Suffix(text.to_string()),
        Text::Contains(text) => MatchPattern::Contains(text.to_string()),
        Text::Segments(parts) => {
            let parts: Vec<String> = parts.iter().map(|part| quoted(part)).collect();
            MatchPattern::SafeRegex(regex(&format!("{}.*", parts.join("[^/]*"))))
        }
    };
    StringMatcher { match_pattern: Some(pattern), ignore_case }
}

/// The condition on a claim of the request's token.
fn claim<'a>(path: impl IntoIterator<Item = &'a str>, value: ValueMatcher) -> MetadataMatcher {
    metadata(TOKEN_FILTER, [TOKEN_KEY].into_iter().chain(path), value)
}

/// The condition on dynamic metadata of a filter.
pub(super) fn metadata<'a>(
    filter: &str,
    path: impl IntoIterator<Item = &'a str>,
    value: ValueMatcher,
) -> MetadataMatcher {
    let segment = |key: &str| PathSegment { segment: Some(Segment::Key(key.to_owned())) };
    MetadataMatcher {
        filter: filter.to_owned(),
        path: path.into_iter().map(segment).collect(),
        value: Some(value),
        ..Default::default()
    }
}

/// A text that begins like this.
pub(super) fn prefix_value(prefix: String) -> ValueMatcher {
    value_of(text_value(&Text::Prefix(prefix.into())))
}

fn text_value(text: &Text) -> ValuePattern {
    ValuePattern::StringMatch(string(text, false))
}

fn in_list(value: ValueMatcher) -> ValuePattern {
    let one = list_matcher::MatchPattern::OneOf(Box::new(value));
    ValuePattern::ListMatch(Box::new(ListMatcher { match_pattern: Some(one) }))
}

fn value_of(pattern: ValuePattern) -> ValueMatcher {
    ValueMatcher { match_pattern: Some(pattern) }
}
