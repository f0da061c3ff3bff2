//! Validation of WasmPlugin, TrafficExtension and ProxyConfig.

use crate::diagnostic::FieldPath;
use crate::istio::extension::{EnvValueSource, ExtensionFilter, VmConfig};
use crate::istio::{ProxyConfig, TrafficExtension, WasmPlugin};
use crate::validate::{Report, attachment, lua};

/// URL schemes that a module can be fetched from.
const SCHEMES: [&str; 4] = ["file", "http", "https", "oci"];

/// Maximum length of a script in bytes, as in Istio.
const MAX_SCRIPT: usize = 65_536;

pub(super) fn check_plugin(r: &mut Report, spec: &WasmPlugin) {
    attachment::check(r, spec.selector.as_ref(), spec.target_ref.as_ref(), &spec.target_refs);
    module(r, &FieldPath::spec(), &spec.url, spec.vm_config.as_ref());
}

pub(super) fn check_extension(r: &mut Report, spec: &TrafficExtension) {
    let path = FieldPath::spec();
    attachment::check(r, spec.selector.as_ref(), None, &spec.target_refs);
    match &spec.filter {
        None => r.error(&path, "missing-field", "an extension requires wasm or lua"),
        Some(ExtensionFilter::Wasm(wasm)) => module(r, &path.field("wasm"), &wasm.url, wasm.vm_config.as_ref()),
        Some(ExtensionFilter::Lua(lua)) if lua.inline_code.len() > MAX_SCRIPT => {
            let message = format!("the script is longer than {MAX_SCRIPT} bytes");
            r.error(&path.field("lua").field("inlineCode"), "out-of-range", message);
        }
        Some(ExtensionFilter::Lua(lua)) => {
            if let Some(problem) = lua::problem(&lua.inline_code) {
                let at = path.field("lua").field("inlineCode");
                r.error(&at, "bad-script", format!("not a valid Lua script: {problem}"));
            }
        }
    }
}

pub(super) fn check_proxy_config(r: &mut Report, spec: &ProxyConfig) {
    attachment::selector(r, &FieldPath::spec().field("selector"), spec.selector.as_ref());
}

/// Checks the URL of a module and its environment variables.
fn module(r: &mut Report, path: &FieldPath, url: &str, vm: Option<&VmConfig>) {
    if let Some(problem) = url_problem(url) {
        r.error(
            &path.field("url"),
            "bad-value",
            format!("{url:?} is not a valid URL: {problem}"),
        );
    }
    for (index, variable) in vm.iter().flat_map(|vm| &vm.env).enumerate() {
        if variable.value_from != EnvValueSource::Inline && !variable.value.is_empty() {
            let at = path.field("vmConfig").field("env").index(index).field("value");
            r.error(&at, "exclusive-fields", "value requires valueFrom INLINE");
        }
    }
}

/// Reports why a URL cannot be fetched. An empty URL is reported as a missing field.
fn url_problem(url: &str) -> Option<String> {
    if url.contains(|c: char| c.is_ascii_control() || c == ' ') {
        return Some("it contains blanks or control characters".to_owned());
    }
    let mut percents = url.split('%').skip(1);
    if percents.any(|after| after.len() < 2 || !after.bytes().take(2).all(|b| b.is_ascii_hexdigit())) {
        return Some("a % must be followed by two hexadecimal digits".to_owned());
    }
    let (scheme, _) = url.split_once(':').filter(|(scheme, _)| is_scheme(scheme))?;
    let known = SCHEMES.contains(&&*scheme.to_ascii_lowercase());
    (!known).then(|| {
        let known = SCHEMES.join(", ");
        format!("the scheme {scheme:?} is not one of {known}; an image registry with a port requires the prefix oci://")
    })
}

fn is_scheme(text: &str) -> bool {
    let starts = text.bytes().next().is_some_and(|b| b.is_ascii_alphabetic());
    starts && text.bytes().all(|b| b.is_ascii_alphanumeric() || b"+-.".contains(&b))
}

#[cfg(test)]
mod tests {
    use super::url_problem;

    #[test]
    fn addresses() {
        for good in [
            "docker.io/a/b:v1",
            "oci://h:5000/a@sha256:0",
            "https://h/a.wasm?x=%20",
            "file:///a",
            "a/b:c",
            "",
        ] {
            assert_eq!(url_problem(good), None, "{good}");
        }
        for bad in [
            "ftp://h/a",
            "localhost:5000/a",
            "https://h/a b",
            "https://h/%zz",
            "https://h/%",
            "a\n",
        ] {
            assert!(url_problem(bad).is_some(), "{bad}");
        }
    }
}
