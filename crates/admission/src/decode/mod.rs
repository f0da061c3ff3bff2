//! Decoding of request bodies.

mod json;
mod media;
mod protobuf;

use config::parse_yaml_json;
use serde_json::Value as Json;

use media::Format;

/// Limits of a body.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Limits {
    /// Size in bytes.
    pub bytes: usize,
    /// Nesting of lists and objects.
    pub depth: usize,
    /// Number of values.
    pub nodes: usize,
}

impl Default for Limits {
    /// 3 MiB, as in Kubernetes; 64 levels; 200,000 values.
    fn default() -> Limits {
        Limits { bytes: 3 << 20, depth: 64, nodes: 200_000 }
    }
}

/// A decoded body.
#[derive(Clone, PartialEq, Debug)]
pub struct Decoded {
    /// The value. One of the values of a duplicate key is used.
    pub object: Json,
    /// Paths of duplicate fields, for example `spec.hosts`.
    pub duplicates: Vec<String>,
}

impl From<Json> for Decoded {
    /// Wraps a value that does not come from a body.
    fn from(object: Json) -> Decoded {
        Decoded { object, duplicates: Vec::new() }
    }
}

/// The error of decoding a body. The text is suitable as the `message` of a `Status`.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum DecodeError {
    /// The content type is not supported (status 415).
    #[error("the body of the request was in an unknown format - accepted media types include: {}", media::ACCEPTED)]
    UnsupportedMediaType(String),
    /// The body exceeds a limit (status 413).
    #[error("{0}")]
    TooLarge(String),
    /// The body does not match its content type (status 400).
    #[error("{0}")]
    Malformed(String),
}

/// Decodes a body of this content type; JSON if there is none. Accepts any value, because patches are decoded here, too.
///
/// # Errors
/// The content type is unknown, the body exceeds a limit, is not UTF-8, is not one JSON or YAML document, or is not a
/// core kind in Kubernetes protobuf.
pub fn decode(body: &[u8], content_type: Option<&str>, limits: &Limits) -> Result<Decoded, DecodeError> {
    let format = media::format(content_type)?;
    if body.len() > limits.bytes {
        let text = format!("Request entity too large: limit is {}", limits.bytes);
        return Err(DecodeError::TooLarge(text));
    }
    // JSON is valid YAML but much cheaper to parse as JSON; clients send JSON under both types.
    let looks_like_json = body.iter().find(|byte| !byte.is_ascii_whitespace()).is_some_and(|byte| b"{[".contains(byte));
    match format {
        Format::Protobuf => protobuf::read(body, limits),
        Format::Json => json::read(body, limits),
        Format::Yaml if looks_like_json => match json::read(body, limits) {
            Err(DecodeError::Malformed(_)) => yaml(body, limits),
            read => read,
        },
        Format::Yaml => yaml(body, limits),
    }
}

fn yaml(body: &[u8], limits: &Limits) -> Result<Decoded, DecodeError> {
    let limits = config::Limits {
        file_bytes: limits.bytes,
        document_bytes: limits.bytes,
        documents: 2,
        depth: limits.depth,
        nodes: limits.nodes,
        repeated: limits.nodes.min(config::Limits::default().repeated),
        ..config::Limits::default()
    };
    let read = parse_yaml_json(body, "", &limits);
    if let Some(error) = read.errors.first() {
        let place = format!("line {}, column {}", error.line, error.column);
        return Err(DecodeError::Malformed(format!("error converting YAML to JSON: {place}: {}", error.message)));
    }
    let mut documents = read.documents.into_iter();
    match (documents.next(), documents.next()) {
        (Some(document), None) => Ok(Decoded {
            object: document.value,
            duplicates: document.duplicates.iter().map(|found| found.path.to_string()).collect(),
        }),
        (None, _) => Err(DecodeError::Malformed("the body of the request is empty".into())),
        (Some(_), Some(second)) => {
            let text = format!("the body has a second document at line {}: send one object a request", second.line);
            Err(DecodeError::Malformed(text))
        }
    }
}
