//! Request paths, parsed once before anything else.
//!
//! A path is split at its slashes before segments are decoded, so that an encoded slash does not add a segment. Invalid
//! segments are rejected with a message that names the segment.

use http::Method;

use crate::error::ApiError;
use crate::params::{Params, percent_decode};

/// Maximum length of a path, in bytes.
pub const PATH_LIMIT: usize = 4096;
/// Maximum length of a segment, in bytes; names have at most 253.
const SEGMENT_LIMIT: usize = 512;

/// The target of a path.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Route {
    /// `/`: the list of paths.
    Root,
    /// `/healthz`, `/readyz`.
    Health,
    /// `/livez`, which succeeds while nothing can be written: a restart does not help then.
    Live,
    /// `/version`.
    Version,
    /// `/api`: versions of the core group.
    Core,
    /// `/apis`: all groups.
    Groups,
    /// `/apis/GROUP`.
    Group(String),
    /// `/api/v1` (with an empty group) or `/apis/GROUP/VERSION`: resources.
    Resources {
        /// The group.
        group: String,
        /// The version.
        version: String,
    },
    /// `/openapi/v3`: the index.
    OpenApiIndex,
    /// `/openapi/v2`, the fallback of older clients.
    OpenApiV2,
    /// `/openapi/v3/api/v1` or `/openapi/v3/apis/GROUP/VERSION`: the path after `/openapi/v3/`.
    OpenApi(String),
    /// Objects.
    Objects(Target, Verb),
}

/// The objects that a path names.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Target {
    /// The API group; empty for the core group.
    pub group: String,
    /// The version.
    pub version: String,
    /// The namespace; none for all namespaces and for cluster-scoped types.
    pub namespace: Option<String>,
    /// The plural name.
    pub plural: String,
    /// The object's name; none for a collection.
    pub name: Option<String>,
    /// `status`, `scale`, …
    pub subresource: Option<String>,
}

/// The verb of a request for objects.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Verb {
    /// Read an object.
    Get,
    /// List objects.
    List,
    /// Watch objects.
    Watch,
    /// Create an object.
    Create,
    /// Replace an object.
    Update,
    /// Patch an object.
    Patch,
    /// Delete an object.
    Delete,
    /// Delete a collection.
    DeleteCollection,
}

impl Verb {
    /// The name of the verb in authorization.
    pub fn name(self) -> &'static str {
        match self {
            Verb::Get => "get",
            Verb::List => "list",
            Verb::Watch => "watch",
            Verb::Create => "create",
            Verb::Update => "update",
            Verb::Patch => "patch",
            Verb::Delete => "delete",
            Verb::DeleteCollection => "deletecollection",
        }
    }

    /// Whether the verb only reads.
    pub fn reads(self) -> bool {
        matches!(self, Verb::Get | Verb::List | Verb::Watch)
    }
}

/// Parses method, path and query (percent-encoded, as in the request line).
///
/// # Errors
/// The path is invalid or does not support the method.
pub fn parse(method: &Method, path: &str, params: &Params) -> Result<Route, ApiError> {
    let segments = segments(path)?;
    let parts: Vec<&str> = segments.iter().map(String::as_str).collect();
    let route = match parts[..] {
        [] => Route::Root,
        ["livez", ..] => Route::Live,
        ["healthz" | "readyz", ..] => Route::Health,
        ["version"] => Route::Version,
        ["openapi", "v2"] => Route::OpenApiV2,
        ["openapi", "v3"] => Route::OpenApiIndex,
        ["openapi", "v3", "api", version] => Route::OpenApi(format!("api/{version}")),
        ["openapi", "v3", "apis", group, version] => Route::OpenApi(format!("apis/{group}/{version}")),
        ["api"] => Route::Core,
        ["apis"] => Route::Groups,
        ["apis", group] => Route::Group(group.to_owned()),
        ["api", version] => Route::Resources { group: String::new(), version: version.to_owned() },
        ["apis", group, version] => Route::Resources { group: group.to_owned(), version: version.to_owned() },
        ["api", version, ref rest @ ..] => return objects(method, "", version, rest, params),
        ["apis", group, version, ref rest @ ..] => return objects(method, group, version, rest, params),
        _ => return Err(ApiError::no_such_path()),
    };
    if *method != Method::GET && *method != Method::HEAD {
        return Err(ApiError::method_not_allowed());
    }
    Ok(route)
}

/// The decoded segments. A trailing slash is allowed.
fn segments(path: &str) -> Result<Vec<String>, ApiError> {
    if path.len() > PATH_LIMIT {
        let text = format!("the path has {} bytes; at most {PATH_LIMIT} are allowed", path.len());
        return Err(ApiError::new(414, "RequestURITooLong", text));
    }
    let Some(rest) = path.strip_prefix('/') else {
        return Err(ApiError::bad_request("the path must begin with a slash"));
    };
    let rest = rest.strip_suffix('/').unwrap_or(rest);
    if rest.is_empty() && path.len() <= 1 {
        return Ok(Vec::new());
    }
    rest.split('/').enumerate().map(|(at, segment)| decode_segment(at + 1, segment)).collect()
}

fn decode_segment(at: usize, segment: &str) -> Result<String, ApiError> {
    let refuse = |why: &str| ApiError::bad_request(format!("segment {at} of the path {why}"));
    if segment.is_empty() {
        return Err(refuse("is empty"));
    }
    if segment.len() > SEGMENT_LIMIT {
        return Err(refuse(&format!("has {} bytes; at most {SEGMENT_LIMIT} are allowed", segment.len())));
    }
    let decoded = percent_decode(segment, false).map_err(refuse)?;
    if decoded == "." || decoded == ".." {
        return Err(refuse(&format!("may not be '{decoded}'")));
    }
    if let Some(bad) = decoded.chars().find(|c| matches!(c, '/' | '%')) {
        return Err(refuse(&format!("may not contain '{bad}'")));
    }
    if decoded.chars().any(char::is_control) {
        return Err(refuse("may not contain control characters"));
    }
    Ok(decoded)
}

/// Parses the path after the version: `[namespaces/NS/]PLURAL[/NAME[/SUBRESOURCE]]`.
fn objects(method: &Method, group: &str, version: &str, rest: &[&str], params: &Params) -> Result<Route, ApiError> {
    // Objects follow the namespace, except for subresources of the namespace itself.
    let (namespace, rest) = match rest {
        ["namespaces", _, "status" | "finalize" | "history"] if group.is_empty() => (None, rest),
        ["namespaces", namespace, rest @ ..] if !rest.is_empty() => (Some(*namespace), rest),
        ["namespaces", namespace] if !group.is_empty() => {
            let text = format!("a resource must follow the namespace {namespace:?}");
            return Err(ApiError::new(404, "NotFound", text));
        }
        rest => (None, rest),
    };
    let (plural, name, subresource) = match *rest {
        [plural] => (plural, None, None),
        [plural, name] => (plural, Some(name), None),
        [plural, name, subresource] => (plural, Some(name), Some(subresource)),
        _ => return Err(ApiError::no_such_path()),
    };
    let target = Target {
        group: group.to_owned(),
        version: version.to_owned(),
        namespace: namespace.map(str::to_owned),
        plural: plural.to_owned(),
        name: name.map(str::to_owned),
        subresource: subresource.map(str::to_owned),
    };
    let verb = verb(method, name.is_some(), params)?;
    Ok(Route::Objects(target, verb))
}

fn verb(method: &Method, named: bool, params: &Params) -> Result<Verb, ApiError> {
    Ok(match (method.as_str(), named) {
        // A watch of one object by its path is the deprecated form of a field selector.
        ("GET", _) if params.flag("watch")? => Verb::Watch,
        ("GET" | "HEAD", true) => Verb::Get,
        ("GET" | "HEAD", false) => Verb::List,
        ("POST", false) => Verb::Create,
        ("PUT", true) => Verb::Update,
        ("PATCH", true) => Verb::Patch,
        ("DELETE", true) => Verb::Delete,
        ("DELETE", false) => Verb::DeleteCollection,
        _ => return Err(ApiError::method_not_allowed()),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn get(path: &str) -> Result<Route, ApiError> {
        let (path, query) = path.split_once('?').unwrap_or((path, ""));
        parse(&Method::GET, path, &Params::parse(query).unwrap())
    }

    fn target(path: &str) -> (Target, Verb) {
        match get(path) {
            Ok(Route::Objects(target, verb)) => (target, verb),
            other => panic!("{path}: {other:?}"),
        }
    }

    #[test]
    fn paths_name_objects() {
        let (t, verb) = target("/apis/networking.istio.io/v1/namespaces/default/virtualservices/a/status");
        assert_eq!(verb, Verb::Get);
        assert_eq!((t.group.as_str(), t.version.as_str()), ("networking.istio.io", "v1"));
        assert_eq!(t.namespace.as_deref(), Some("default"));
        assert_eq!((t.plural.as_str(), t.name.as_deref()), ("virtualservices", Some("a")));
        assert_eq!(t.subresource.as_deref(), Some("status"));
        let (t, verb) = target("/api/v1/services?watch=true");
        assert_eq!((t.namespace, t.plural.as_str(), verb), (None, "services", Verb::Watch));
        let (t, _) = target("/api/v1/namespaces/default");
        assert_eq!((t.namespace, t.plural.as_str(), t.name.as_deref()), (None, "namespaces", Some("default")));
        let (t, _) = target("/api/v1/namespaces/default/status");
        assert_eq!((t.plural.as_str(), t.subresource.as_deref()), ("namespaces", Some("status")));
        let (t, _) = target("/api/v1/namespaces/a%2Eb/pods");
        assert_eq!(t.namespace.as_deref(), Some("a.b"));
        assert_eq!(get("/api/"), Ok(Route::Core));
    }

    #[test]
    fn invalid_paths_are_rejected() {
        let long = format!("/api/v1/{}", "a".repeat(600));
        let huge = format!("/{}", "a/".repeat(4000));
        for (path, code, text) in [
            ("/api/v1/../secrets", 400, "segment 3 of the path may not be '..'"),
            ("/api/v1/%2e%2e/secrets", 400, "segment 3 of the path may not be '..'"),
            ("/api/v1/pods%2fa", 400, "segment 3 of the path may not contain '/'"),
            ("/api/v1/a%25b", 400, "segment 3 of the path may not contain '%'"),
            ("/api//v1", 400, "segment 2 of the path is empty"),
            ("//", 400, "segment 1 of the path is empty"),
            ("/api/%zz", 400, "percent sign"),
            ("/api/%ff", 400, "is not UTF-8"),
            ("/api/%00", 400, "control characters"),
            ("api", 400, "must begin with a slash"),
            (&long, 400, "at most 512 are allowed"),
            (&huge, 414, "at most 4096 are allowed"),
            ("/nothing", 404, "could not find"),
            ("/api/v1/a/b/c/d/e", 404, "could not find"),
        ] {
            let failure = get(path).unwrap_err();
            assert_eq!(failure.code, code, "{path}");
            assert!(failure.message.contains(text), "{path}: {}", failure.message);
        }
        let post = parse(&Method::POST, "/api/v1/namespaces/default", &Params::default()).unwrap_err();
        assert_eq!(post.code, 405);
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(256))]

        #[test]
        fn any_text_is_answered(path in "[/a-z%0-9.\\u{0}-\\u{ff}]{0,60}") {
            let _ = parse(&Method::GET, &path, &Params::default());
        }

        #[test]
        fn encoded_names_are_decoded(name in "[a-z0-9 é:.~+-]{1,40}") {
            prop_assume!(name != "." && name != "..");
            let encoded: String = name.bytes().map(|b| format!("%{b:02x}")).collect();
            let (t, _) = target(&format!("/api/v1/namespaces/n/pods/{encoded}"));
            prop_assert_eq!(t.name, Some(name));
        }
    }
}
