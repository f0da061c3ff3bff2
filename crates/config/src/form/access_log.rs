//! Files and formats of access logs.

use serde_json::Value as Json;

use crate::form::{Fault, good, header};

/// Maximum lengths of a file name and of a path in Linux, in bytes.
const MAX_FILE_NAME: usize = 255;
const MAX_PATH: usize = 4095;

/// The path of a file that Envoy writes logs to. If Envoy cannot open it, it rejects every listener that logs to it.
pub(crate) fn file(path: &str) -> Result<(), Fault> {
    let (directory, name) = path.rsplit_once('/').unwrap_or(("", path));
    let long = |name: &str| name.len() > MAX_FILE_NAME;
    let message = if ["", ".", ".."].contains(&name) {
        format!("{path:?} is a directory, not a file")
    } else if path.len() > MAX_PATH || long(name) || directory.split('/').any(long) {
        format!("the path must not exceed {MAX_PATH} bytes, and each name in it must not exceed {MAX_FILE_NAME} bytes")
    } else if path.contains('\0') {
        "the path must not contain NUL characters".to_owned()
    } else {
        return Ok(());
    };
    Err(Fault::new("bad-value", message).hint("set the path of a file, such as /dev/stdout"))
}

/// A text with command operators.
pub(crate) fn format(text: &str) -> Result<(), Fault> {
    let problem = header::format_problem(text);
    good(problem.is_none(), || format!("invalid format: {}", problem.unwrap_or_default()))
}

/// A JSON object whose texts have command operators, written as JSON.
pub(crate) fn fields(text: &str) -> Result<(), Fault> {
    match serde_json::from_str(text) {
        Ok(fields @ Json::Object(_)) => texts(&fields),
        _ => Err(Fault::warning(
            "bad-value",
            "the format is not a JSON object: Istio's default fields are logged instead",
        )),
    }
}

fn texts(value: &Json) -> Result<(), Fault> {
    match value {
        Json::String(text) => format(text),
        Json::Array(items) => items.iter().try_for_each(texts),
        Json::Object(fields) => fields.values().try_for_each(texts),
        _ => Ok(()),
    }
}
