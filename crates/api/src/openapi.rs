//! OpenAPI documents, generated on first use.

use std::collections::BTreeMap;
use std::sync::LazyLock;

use bytes::Bytes;
use config::schema::openapi;
use http::header::{CACHE_CONTROL, ETAG};
use http::{HeaderMap, HeaderValue, StatusCode};
use serde_json::{Value, json};

use crate::answer::Answer;
use crate::body::Body;
use crate::discovery::{hash, tagged};
use crate::error::ApiError;
use crate::params::Params;

/// A document and its hash.
struct Document {
    text: Bytes,
    hash: String,
}

/// By the path after `/openapi/v3/`.
static DOCUMENTS: LazyLock<BTreeMap<String, Document>> = LazyLock::new(|| {
    let versions = openapi::group_versions().into_iter();
    let documents = versions.filter_map(|(group, version)| {
        let path = match group {
            "" => format!("api/{version}"),
            group => format!("apis/{group}/{version}"),
        };
        let text = openapi::document(group, version)?.to_string();
        let hash = hash(text.as_bytes());
        Some((path, Document { text: text.into(), hash }))
    });
    documents.collect()
});

/// `/openapi/v3`.
pub(crate) fn index(headers: &HeaderMap) -> Result<Answer, ApiError> {
    let paths: serde_json::Map<String, Value> = DOCUMENTS
        .iter()
        .map(|(path, document)| {
            let url = format!("/openapi/v3/{path}?hash={}", document.hash);
            (path.clone(), json!({ "serverRelativeURL": url }))
        })
        .collect();
    tagged(headers, "application/json", &json!({ "paths": paths }))
}

/// `/openapi/v2`: a document without types. All types are in version 3. Clients that fall back to version 2 for an
/// unknown type find nothing here either.
pub(crate) fn v2(headers: &HeaderMap) -> Result<Answer, ApiError> {
    /// The media type that `kubectl` requests.
    const PROTOBUF: &str = "application/com.github.proto-openapi.spec.v2@v1.0+protobuf";
    /// swagger: "2.0", info {title: "Rutter", version: "1"}, paths {}.
    const DOCUMENT: &[u8] = b"\x0a\x032.0\x12\x0b\x0a\x06Rutter\x12\x011\x42\x00";
    let accepted = headers.get_all(http::header::ACCEPT).iter();
    let protobuf = accepted.filter_map(|value| value.to_str().ok()).any(|text| text.contains(PROTOBUF));
    if protobuf {
        let media = "application/com.github.proto-openapi.spec.v2.v1.0+protobuf";
        return Ok(Answer::of(media, StatusCode::OK, Body::whole(DOCUMENT)));
    }
    let document = json!({ "swagger": "2.0", "info": { "title": "Rutter", "version": "1" }, "paths": {} });
    tagged(headers, "application/json", &document)
}

/// `/openapi/v3/…`.
pub(crate) fn document(path: &str, params: &Params) -> Result<Answer, ApiError> {
    let document = DOCUMENTS.get(path).ok_or_else(ApiError::no_such_path)?;
    let mut answer = Answer::of("application/json", StatusCode::OK, Body::whole(document.text.clone()));
    let tag = HeaderValue::from_str(&format!("\"{}\"", document.hash));
    answer.headers.insert(ETAG, tag.map_err(|error| ApiError::internal(error.to_string()))?);
    // A document requested by its hash never changes.
    if params.get("hash") == Some(&document.hash) {
        answer.headers.insert(CACHE_CONTROL, HeaderValue::from_static("public, immutable, max-age=31536000"));
    }
    Ok(answer)
}
