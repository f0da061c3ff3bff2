//! Content types.

use crate::DecodeError;

/// Supported media types, for messages.
pub(super) const ACCEPTED: &str = "application/json, application/yaml, application/vnd.kubernetes.protobuf";

/// The format of a body.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Format {
    Json,
    Yaml,
    /// Kubernetes protobuf, in an envelope with the type.
    Protobuf,
}

/// The format of a content type, by its suffix: patches are JSON or YAML, too.
pub(super) fn format(content_type: Option<&str>) -> Result<Format, DecodeError> {
    let Some(full) = content_type.map(str::trim).filter(|text| !text.is_empty()) else {
        return Ok(Format::Json);
    };
    let unknown = || DecodeError::UnsupportedMediaType(full.to_owned());
    let mut parts = full.split(';');
    let media = parts.next().unwrap_or_default().trim().to_ascii_lowercase();
    for parameter in parts {
        let (name, value) = parameter.split_once('=').unwrap_or((parameter, ""));
        let value = value.trim().trim_matches('"');
        if name.trim().eq_ignore_ascii_case("charset")
            && !["utf-8", "utf8", "us-ascii"].iter().any(|known| value.eq_ignore_ascii_case(known))
        {
            return Err(unknown());
        }
    }
    match media.as_str() {
        "application/json" | "text/json" => Ok(Format::Json),
        "application/vnd.kubernetes.protobuf" => Ok(Format::Protobuf),
        "application/yaml" | "application/x-yaml" | "text/yaml" | "text/x-yaml" => Ok(Format::Yaml),
        other if other.starts_with("application/") && other.ends_with("+json") => Ok(Format::Json),
        other if other.starts_with("application/") && other.ends_with("+yaml") => Ok(Format::Yaml),
        _ => Err(unknown()),
    }
}
