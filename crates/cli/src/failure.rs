//! Errors of commands, how they are printed, and exit codes.

use std::fmt;
use std::io;

use http::StatusCode;
use kube::core::Status;
use kube::core::response::StatusCause;
use serde::Deserialize;

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

/// An error response of the server.
#[derive(Clone, PartialEq, Debug)]
pub(crate) struct StatusError {
    pub(crate) status: Box<Status>,
}

impl StatusError {
    /// Parses an error response: a `Status`, or any text.
    pub(crate) fn read(code: u16, body: &[u8]) -> StatusError {
        if let Ok(Response::Status(mut status)) = serde_json::from_slice(body) {
            if status.code == 0 {
                status.code = code;
            }
            if status.reason.is_empty() {
                status.reason = reason_of(code);
            }
            return StatusError { status };
        }
        let text: String = String::from_utf8_lossy(body).trim().chars().take(400).collect();
        let message = match text.is_empty() {
            true => format!("HTTP status {code}"),
            false => text,
        };
        let status = Status::failure(&message, &reason_of(code)).with_code(code).boxed();
        StatusError { status }
    }

    /// The causes: invalid fields with messages.
    pub(crate) fn causes(&self) -> &[StatusCause] {
        self.status.details.as_ref().map_or(&[], |details| &details.causes)
    }

    /// Whether an error is a `NotFound` response.
    pub(crate) fn is_not_found(error: &anyhow::Error) -> bool {
        error.downcast_ref::<StatusError>().is_some_and(|error| error.status.code == 404)
    }

    /// Advice for the user.
    pub(crate) fn hint(&self) -> Option<&'static str> {
        match (self.status.code, self.status.reason.as_str()) {
            (401, _) => Some("the server rejected the credentials: check the kubeconfig or `--token`"),
            (403, _) => {
                Some("`kubectl auth whoami` prints your identity, `kubectl auth can-i --list` your permissions")
            }
            (409, "Conflict") if self.causes().iter().any(|cause| cause.field.starts_with('.')) => {
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

/// A response of kind `Status`.
#[derive(Deserialize)]
#[serde(tag = "kind")]
enum Response {
    Status(Box<Status>),
}

/// The reason in one word, such as `Forbidden` or `BadGateway`.
fn reason_of(code: u16) -> String {
    let reason = StatusCode::from_u16(code).ok().and_then(|code| code.canonical_reason());
    reason.unwrap_or("Unknown").replace(' ', "")
}

impl fmt::Display for StatusError {
    /// Several lines if there are causes.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Status { reason, message, details, .. } = &*self.status;
        match details {
            Some(about) if reason == "Invalid" && !about.name.is_empty() && !about.causes.is_empty() => {
                write!(f, "The {} \"{}\" is invalid:", about.kind, about.name)?;
            }
            _ => write!(f, "Error from server ({reason}): {}", printable(message, true))?,
        }
        for StatusCause { field, message, .. } in self.causes() {
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
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("timed out: {0}")]
pub(crate) struct TimedOut(pub(crate) String);

/// No server could be reached.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("{message}")]
pub(crate) struct Unreachable {
    /// Whether a server is configured; otherwise no flag, variable or kubeconfig names one.
    pub(crate) named: bool,
    /// The server and the cause.
    pub(crate) message: String,
}

/// An invalid command line that the flag parser cannot detect.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("{0}")]
pub(crate) struct Usage(pub(crate) String);

/// A [`Usage`] error.
pub(crate) fn usage(message: impl Into<String>) -> anyhow::Error {
    Usage(message.into()).into()
}

/// Prints an error; returns the exit code.
pub(crate) fn report(error: &anyhow::Error, io: &mut Io) -> u8 {
    let closed = |cause: &(dyn std::error::Error + 'static)| {
        cause.downcast_ref::<io::Error>().is_some_and(|error| error.kind() == io::ErrorKind::BrokenPipe)
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
        assert_eq!(status_error.status.reason, "Forbidden");
        assert!(status_error.to_string().starts_with("Error from server (Forbidden): <html>no</html>\nhint: "));
        assert_eq!(StatusError::read(500, b"").status.message, "HTTP status 500");
    }
}
