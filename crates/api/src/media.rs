//! Content negotiation: `Accept` and `Content-Type`.

use http::HeaderMap;
use http::header::{ACCEPT, CONTENT_TYPE, USER_AGENT};

use crate::error::ApiError;
use crate::params::Params;

/// The representation of objects in a response.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(crate) enum Form {
    /// The objects.
    Whole,
    /// Only metadata (`PartialObjectMetadata`).
    Partial,
    /// A table, with this part of each object.
    Table(Include),
}

/// The part of an object in its table row.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(crate) enum Include {
    /// Nothing.
    None,
    /// The metadata.
    Metadata,
    /// The whole object.
    Object,
}

/// The media type of aggregated discovery.
pub(crate) const AGGREGATED: &str = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList";

/// The type of a patch.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(crate) enum PatchType {
    /// RFC 6902.
    Json,
    /// RFC 7386.
    Merge,
    /// Strategic merge patch.
    Strategic,
    /// Server-side apply.
    Apply,
}

/// The media types of patches.
const PATCHES: [(&str, PatchType); 4] = [
    ("application/json-patch+json", PatchType::Json),
    ("application/merge-patch+json", PatchType::Merge),
    ("application/strategic-merge-patch+json", PatchType::Strategic),
    ("application/apply-patch+yaml", PatchType::Apply),
];

/// The representation of objects that a client prefers.
///
/// # Errors
/// The client accepts no available representation.
pub(crate) fn form(headers: &HeaderMap, params: &Params) -> Result<Form, ApiError> {
    let include = match params.get("includeObject") {
        None | Some("Metadata") => Include::Metadata,
        Some("None") => Include::None,
        Some("Object") => Include::Object,
        Some(other) => {
            return Err(crate::params::wrong("includeObject", other, "must be 'Metadata', 'Object', 'None', or empty"));
        }
    };
    choose(headers, |clause| match (clause.get("as"), clause.get("g"), clause.get("v")) {
        (None, ..) => Some(Form::Whole),
        (Some("Table"), Some("meta.k8s.io"), Some("v1" | "v1beta1")) => Some(Form::Table(include)),
        (Some("PartialObjectMetadata" | "PartialObjectMetadataList"), Some("meta.k8s.io"), Some("v1" | "v1beta1")) => {
            Some(Form::Partial)
        }
        _ => None,
    })
}

/// Whether a client prefers aggregated discovery.
///
/// # Errors
/// The client accepts no available form.
pub(crate) fn prefers_aggregated(headers: &HeaderMap) -> Result<bool, ApiError> {
    choose(headers, |clause| match (clause.get("as"), clause.get("g"), clause.get("v")) {
        (None, ..) => Some(false),
        (Some("APIGroupDiscoveryList"), Some("apidiscovery.k8s.io"), Some("v2")) => Some(true),
        _ => None,
    })
}

/// Whether to indent the response: on request, or for browsers and curl.
pub(crate) fn pretty(headers: &HeaderMap, params: &Params) -> Result<bool, ApiError> {
    if params.get("pretty").is_some() {
        return params.flag("pretty");
    }
    let agent = headers.get(USER_AGENT).and_then(|agent| agent.to_str().ok()).unwrap_or_default();
    Ok(["curl/", "Wget/", "Mozilla/5.0"].iter().any(|prefix| agent.starts_with(prefix)))
}

/// The media types of objects; the last one only for core kinds.
const OBJECTS: [&str; 3] = ["application/json", "application/yaml", "application/vnd.kubernetes.protobuf"];

/// The media types of objects of a kind.
pub(crate) fn objects(core: bool) -> &'static [&'static str] {
    if core { &OBJECTS } else { &OBJECTS[..2] }
}

/// Checks the content type of a body: JSON, YAML, or protobuf for core kinds.
///
/// # Errors
/// The content type is not supported.
pub(crate) fn object(headers: &HeaderMap, core: bool) -> Result<(), ApiError> {
    match essence(headers).as_str() {
        "" | "application/json" | "application/yaml" | "text/yaml" | "application/x-yaml" | "text/json" => Ok(()),
        protobuf if core && protobuf == OBJECTS[2] => Ok(()),
        _ => Err(ApiError::unsupported_media_type(objects(core))),
    }
}

/// The patch type of a content type.
///
/// # Errors
/// The content type is not a supported patch type.
pub(crate) fn patch(headers: &HeaderMap) -> Result<PatchType, ApiError> {
    let essence = essence(headers);
    match PATCHES.iter().find(|(name, _)| *name == essence) {
        Some((_, sort)) => Ok(*sort),
        None => Err(ApiError::unsupported_media_type(&PATCHES.map(|(name, _)| name))),
    }
}

fn essence(headers: &HeaderMap) -> String {
    let text = headers.get(CONTENT_TYPE).and_then(|value| value.to_str().ok()).unwrap_or_default();
    text.split(';').next().unwrap_or_default().trim().to_ascii_lowercase()
}

/// One media range of an `Accept` header.
struct Clause<'a> {
    media: &'a str,
    params: Vec<(&'a str, &'a str)>,
}

impl<'a> Clause<'a> {
    fn parse(text: &'a str) -> Clause<'a> {
        let mut parts = text.split(';').map(str::trim);
        Clause {
            media: parts.next().unwrap_or_default(),
            params: parts.filter_map(|part| part.split_once('=')).collect(),
        }
    }

    fn get(&self, name: &str) -> Option<&'a str> {
        self.params.iter().find(|(n, _)| *n == name).map(|(_, value)| value.trim_matches('"'))
    }

    /// The weight in thousandths.
    fn weight(&self) -> u32 {
        let weight = self.get("q").and_then(|q| q.parse::<f32>().ok()).unwrap_or(1.0);
        // Weights are clamped to the range from 0 to 1.
        (weight.clamp(0.0, 1.0) * 1000.0) as u32
    }
}

/// The first representation, by weight, that is available.
fn choose<T>(headers: &HeaderMap, read: impl Fn(&Clause<'_>) -> Option<T>) -> Result<T, ApiError> {
    let texts: Vec<&str> = headers.get_all(ACCEPT).iter().filter_map(|value| value.to_str().ok()).collect();
    let all = texts.join(",");
    let mut clauses: Vec<Clause<'_>> = all.split(',').filter(|t| !t.trim().is_empty()).map(Clause::parse).collect();
    if clauses.is_empty() {
        clauses.push(Clause::parse("*/*"));
    }
    clauses.sort_by_key(|clause| std::cmp::Reverse(clause.weight()));
    clauses
        .iter()
        .filter(|clause| matches!(clause.media, "application/json" | "*/*" | "application/*") && clause.weight() > 0)
        .find_map(read)
        .ok_or_else(ApiError::not_acceptable)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn accept(text: &str) -> Result<Form, ApiError> {
        let mut headers = HeaderMap::new();
        headers.insert(ACCEPT, text.parse().unwrap());
        form(&headers, &Params::default())
    }

    #[test]
    fn the_first_form_that_there_is_wins() {
        let table = Ok(Form::Table(Include::Metadata));
        let kubectl = "application/json;as=Table;v=v1;g=meta.k8s.io,application/json;as=Table;v=v1beta1;g=meta.k8s.io,application/json";
        assert_eq!(accept(kubectl), table);
        assert_eq!(accept("application/vnd.kubernetes.protobuf,application/json"), Ok(Form::Whole));
        assert_eq!(accept("application/json;q=0.5, application/json;as=Table;g=meta.k8s.io;v=v1"), table);
        assert_eq!(accept("application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1"), Ok(Form::Partial));
        assert_eq!(accept("application/json;as=Other;g=a;v=v1").unwrap_err().code, 406);
        assert_eq!(accept("application/vnd.kubernetes.protobuf").unwrap_err().code, 406);
        assert_eq!(form(&HeaderMap::new(), &Params::default()), Ok(Form::Whole));
    }

    #[test]
    fn only_the_core_is_read_in_protobuf() {
        let mut headers = HeaderMap::new();
        for (media, core, others) in [
            ("application/json; charset=utf-8", true, true),
            ("application/vnd.kubernetes.protobuf", true, false),
            ("application/cbor", false, false),
            ("text/plain", false, false),
        ] {
            headers.insert(CONTENT_TYPE, media.parse().unwrap());
            assert_eq!(object(&headers, true).is_ok(), core, "{media}");
            assert_eq!(object(&headers, false).is_ok(), others, "{media}");
        }
        let error = object(&headers, true).unwrap_err();
        assert_eq!(error.code, 415);
        assert!(error.message.ends_with("application/yaml, application/vnd.kubernetes.protobuf"));
    }

    #[test]
    fn patches_are_told_apart() {
        let mut headers = HeaderMap::new();
        headers.insert(CONTENT_TYPE, "application/apply-patch+yaml; charset=utf-8".parse().unwrap());
        assert_eq!(patch(&headers), Ok(PatchType::Apply));
        headers.insert(CONTENT_TYPE, "application/apply-patch+cbor".parse().unwrap());
        assert_eq!(patch(&headers).unwrap_err().code, 415);
    }
}
