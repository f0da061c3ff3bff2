//! Conditions on the identity in a client's certificate, `spiffe://TRUST-DOMAIN/ns/NAMESPACE/sa/SERVICE-ACCOUNT`.
//!
//! They are conditions on parts of the text: what a user writes is never interpreted as a pattern, whatever characters it
//! contains. A `*` stands for text without a slash, so that the path of an identity never counts as its trust domain.

use std::sync::Arc;

use model::authorization::{Principal, Text};

/// The scheme of identities.
const SCHEME: &str = "spiffe://";
/// The trust domain that stands for the mesh's, whatever its name is.
const LOCAL: &str = "cluster.local";

/// A principal, `TRUST-DOMAIN/ns/NAMESPACE/sa/NAME` with wildcards. `domains` are the mesh's trust domain and its aliases,
/// which count as the same.
pub(super) fn principal(written: &str, domains: &[Arc<str>]) -> Vec<Principal> {
    let written = written.strip_prefix(SCHEME).unwrap_or(written);
    in_domains(written, domains).iter().map(|text| Principal::Identity(of_text(text))).collect()
}

fn of_text(written: &str) -> Vec<Text> {
    match Text::with_wildcard(written) {
        Text::Suffix(suffix) => vec![Text::Prefix(SCHEME.into()), Text::Suffix(suffix)],
        Text::Prefix(prefix) => vec![Text::Prefix(format!("{SCHEME}{prefix}").into())],
        Text::Exact(text) => vec![Text::Exact(format!("{SCHEME}{text}").into())],
        other => vec![other],
    }
}

/// A principal in all trust domains of the mesh, if it names one of them.
fn in_domains(written: &str, domains: &[Arc<str>]) -> Vec<String> {
    let own = || vec![written.to_owned()];
    let Some((domain, rest)) = written.split_once('/') else {
        return own();
    };
    let is_identity = written.split('/').count() == 5;
    let known = domain == LOCAL || domains.iter().any(|known| covers(domain, known));
    if domain == "*" || !is_identity || !known {
        return own();
    }
    let mut all: Vec<String> = Vec::new();
    for known in domains {
        let text = if covers(domain, known) { written.to_owned() } else { format!("{known}/{rest}") };
        if !all.contains(&text) {
            all.push(text);
        }
    }
    all
}

/// Whether a trust domain with a wildcard covers another one.
fn covers(written: &str, domain: &str) -> bool {
    match Text::with_wildcard(written) {
        Text::Suffix(suffix) => domain.ends_with(&*suffix),
        Text::Prefix(prefix) => domain.starts_with(&*prefix),
        _ => written == domain,
    }
}

/// A namespace, in which `*` stands for any text.
pub(super) fn namespace(written: &str) -> Principal {
    let parts: Vec<&str> = written.split('*').collect();
    Principal::Identity(match &parts[..] {
        [_] => vec![Text::Contains(format!("/ns/{written}/").into())],
        [first, ""] => vec![Text::Contains(format!("/ns/{first}").into())],
        ["", last] => vec![Text::Contains("/ns/".into()), Text::Contains(format!("{last}/sa/").into())],
        [first, middle @ .., last] => {
            let begin = [SCHEME.to_owned(), format!("/ns/{first}")];
            let middle = middle.iter().filter(|part| !part.is_empty()).map(|part| (*part).to_owned());
            vec![segments(begin.into_iter().chain(middle).chain([format!("{last}/sa/")]))]
        }
        [] => Vec::new(),
    })
}

fn segments(parts: impl IntoIterator<Item = String>) -> Text {
    Text::Segments(parts.into_iter().map(Arc::from).collect())
}

/// A service account, `NAMESPACE/NAME` or `NAME` in the policy's namespace.
pub(super) fn service_account(written: &str, namespace: &str) -> Vec<Principal> {
    let (namespace, name) = written.split_once('/').unwrap_or((namespace, written));
    let account = format!("/ns/{namespace}/sa/{name}");
    let longer = Text::Contains(format!("{account}/").into());
    [Text::Suffix(account.into()), longer].map(|text| Principal::Identity(vec![text])).into()
}

/// A trust domain with a wildcard. A trust domain of the mesh stands for all of them.
pub(super) fn trust_domain(written: &str, domains: &[Arc<str>]) -> Vec<Principal> {
    if domains.iter().any(|domain| **domain == *written) {
        return domains.iter().map(|domain| of_domain(&Text::Exact(domain.clone()))).collect();
    }
    vec![of_domain(&Text::with_wildcard(written))]
}

fn of_domain(domain: &Text) -> Principal {
    let begins = |text: &str| Text::Prefix(format!("{SCHEME}{text}").into());
    Principal::Identity(match domain {
        Text::Prefix(prefix) => vec![begins(prefix)],
        Text::Suffix(suffix) => vec![segments([SCHEME.to_owned(), format!("{suffix}/")])],
        Text::Exact(domain) => vec![begins(&format!("{domain}/"))],
        Text::Present | Text::Contains(_) | Text::Segments(_) => vec![begins("")],
    })
}
