//! Errors of commands, how they are printed, and exit codes.

use std::fmt;
use std::io;

use serde_json::Value as Json;

use crate::io::Io;
use crate::style::printable;

/// The exit code of a successful command.
pub const SUCCESS: u8 = 0;
/// The exit code if the server rejects a request, an object is not found, or the command fails.
pub const FAILURE: u8 = 1;
/// The exit code of an invalid command line.
pub const USAGE: u8 = 2;
/// The exit code if `--timeout` expires.
pub const TIMEOUT: u8 = 3;

/// An error response of the server (a Kubernetes `Status`).
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct StatusError {
    /// The HTTP status code.
    pub(crate) code: u16,
    /// The reason in one word: `NotFound`, `Conflict`, `Invalid`, …
    pub(crate) reason: String,
    /// The server's message.
    pub(crate) message: String,
    /// The kind and name of the object concerned, if the response has them.
    pub(crate) subject: Option<(String, String)>,
    /// The causes: field and message.
    pub(crate) causes: Vec<(String, String)>,
}

impl StatusError {
    /// Parses an error response: a `Status`, or any text.
    pub(crate) fn read(code: u16, body: &[u8]) -> StatusError {
        let status: Json = serde_json::from_slice(body).unwrap_or_default();
        if status["kind"] != "Status" {
            let text: String = String::from_utf8_lossy(body).trim().chars().take(400).collect();
            return StatusError {
                code,
                reason: reason_of(code).to_owned(),
                message: if text.is_empty() {
                    format!("HTTP status {code}")
                } else {
                    text
                },
                subject: None,
                causes: Vec::new(),
            };
        }
        StatusError::of_status(&status, code)
    }

    /// Converts a `Status` object.
    pub(crate) fn of_status(status: &Json, code: u16) -> StatusError {
        let text = |value: &Json| value.as_str().unwrap_or_default().to_owned();
        let code = status["code"]
            .as_u64()
            .and_then(|code| u16::try_from(code).ok())
            .unwrap_or(code);
        let details = &status["details"];
        let cause = |cause: &Json| (text(&cause["field"]), text(&cause["message"]));
        let name = text(&details["name"]);
        StatusError {
            code,
            reason: match text(&status["reason"]) {
                reason if reason.is_empty() => reason_of(code).to_owned(),
                reason => reason,
            },
            message: text(&status["message"]),
            subject: (!name.is_empty()).then(|| (text(&details["kind"]), name)),
            causes: details["causes"].as_array().into_iter().flatten().map(cause).collect(),
        }
    }

    /// Whether an error is a `NotFound` response.
    pub(crate) fn is_not_found(error: &anyhow::Error) -> bool {
        error
            .downcast_ref::<StatusError>()
            .is_some_and(|status_error| status_error.code == 404)
    }

    /// Advice for the user.
    pub(crate) fn hint(&self) -> Option<&'static str> {
        match (self.code, self.reason.as_str()) {
            (401, _) => Some("the server rejected the credentials: check the kubeconfig or `--token`"),
            (403, _) => {
                Some("`kubectl auth whoami` prints your identity, `kubectl auth can-i --list` your permissions")
            }
            (409, "Conflict") if self.causes.iter().any(|(field, _)| field.starts_with('.')) => {
                Some("remove the fields from the file, or take them over with --force-conflicts")
            }
            (409, "Conflict") => Some(
                "the object changed in the meantime: start from the current version (`rutter get … -o yaml`), or remove \
                 metadata.resourceVersion to overwrite it",
            ),
            (429, _) => Some("the server is busy: try again in a moment"),
            _ => None,
        }
    }
}

fn reason_of(code: u16) -> &'static str {
    match code {
        400 => "BadRequest",
        401 => "Unauthorized",
        403 => "Forbidden",
        404 => "NotFound",
        405 => "MethodNotAllowed",
        409 => "Conflict",
        410 => "Expired",
        413 => "RequestEntityTooLarge",
        415 => "UnsupportedMediaType",
        422 => "Invalid",
        429 => "TooManyRequests",
        500 => "InternalError",
        503 => "ServiceUnavailable",
        _ => "Unknown",
    }
}

impl fmt::Display for StatusError {
    /// Several lines if there are causes.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (&self.subject, self.causes.is_empty()) {
            (Some((kind, name)), false) if self.reason == "Invalid" => write!(f, "The {kind} \"{name}\" is invalid:")?,
            _ => write!(
                f,
                "Error from server ({}): {}",
                self.reason,
                printable(&self.message, true)
            )?,
        }
        for (field, message) in &self.causes {
            match field.is_empty() {
                true => write!(f, "\n* {}", printable(message, false))?,
                false => write!(f, "\n* {field}: {}", printable(message, false))?,
            }
        }
        match self.hint() {
            Some(hint) => write!(f, "\nhint: {hint}"),
            None => Ok(()),
        }
    }
}

impl std::error::Error for StatusError {}

/// A timeout expired.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct TimedOut(pub(crate) String);

impl fmt::Display for TimedOut {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "timed out: {}", self.0)
    }
}

impl std::error::Error for TimedOut {}

/// No server could be reached.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Unreachable {
    /// Whether a server is configured; otherwise no flag, variable or kubeconfig names one.
    pub(crate) named: bool,
    /// The server and the cause.
    pub(crate) message: String,
}

impl fmt::Display for Unreachable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl std::error::Error for Unreachable {}

/// An invalid command line that the flag parser cannot detect.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Usage(pub(crate) String);

impl fmt::Display for Usage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for Usage {}

/// A [`Usage`] error.
pub(crate) fn usage(message: impl Into<String>) -> anyhow::Error {
    Usage(message.into()).into()
}

/// Prints an error; returns the exit code.
pub(crate) fn report(error: &anyhow::Error, io: &mut Io) -> u8 {
    let closed = |cause: &(dyn std::error::Error + 'static)| {
        cause
            .downcast_ref::<io::Error>()
            .is_some_and(|error| error.kind() == io::ErrorKind::BrokenPipe)
    };
    // A closed pipe is not an error: `rutter get … | head`.
    if error.chain().any(closed) {
        return SUCCESS;
    }
    io.eprint(describe(error));
    match error {
        error if error.is::<TimedOut>() => TIMEOUT,
        error if error.is::<Usage>() => USAGE,
        _ => FAILURE,
    }
}

/// The error as one message.
pub(crate) fn describe(error: &anyhow::Error) -> String {
    match error.is::<StatusError>() {
        true => format!("{error:#}"),
        false => format!("error: {error:#}"),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn causes_are_printed_on_separate_lines() {
        let status = json!({"kind": "Status", "code": 422, "reason": "Invalid", "message": "long",
            "details": {"kind": "VirtualService", "name": "a", "causes": [
                {"field": "spec.hosts", "message": "Required value"}, {"message": "and more"}]}});
        let status_error = StatusError::read(422, status.to_string().as_bytes());
        assert_eq!(
            status_error.to_string(),
            "The VirtualService \"a\" is invalid:\n* spec.hosts: Required value\n* and more"
        );
    }

    #[test]
    fn responses_without_a_status_are_shortened() {
        let status_error = StatusError::read(403, b"<html>no</html>");
        assert_eq!(status_error.reason, "Forbidden");
        assert!(
            status_error
                .to_string()
                .starts_with("Error from server (Forbidden): <html>no</html>\nhint: ")
        );
        assert_eq!(StatusError::read(500, b"").message, "HTTP status 500");
    }
}
