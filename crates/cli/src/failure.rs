//! What can go wrong, and how it is told.

use std::fmt;
use std::io;

use serde_json::Value as Json;

use crate::io::Io;
use crate::style::printable;

/// The exit code of a command that did what it was asked for.
pub const SUCCESS: u8 = 0;
/// The exit code when something was refused, was not found, or failed.
pub const FAILURE: u8 = 1;
/// The exit code when the command line makes no sense.
pub const USAGE: u8 = 2;
/// The exit code when `--timeout` ran out.
pub const TIMEOUT: u8 = 3;

/// An answer of the server that is not success (`Status`).
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Refusal {
    /// The HTTP status.
    pub(crate) code: u16,
    /// The reason in one word: `NotFound`, `Conflict`, `Invalid`, …
    pub(crate) reason: String,
    /// What the server says.
    pub(crate) message: String,
    /// The kind and the name that it is about, where it says so.
    pub(crate) subject: Option<(String, String)>,
    /// Its causes: field and message.
    pub(crate) causes: Vec<(String, String)>,
}

impl Refusal {
    /// Reads an answer: a `Status` if it is one, any text otherwise.
    pub(crate) fn read(code: u16, body: &[u8]) -> Refusal {
        let status: Json = serde_json::from_slice(body).unwrap_or_default();
        if status["kind"] != "Status" {
            let text: String = String::from_utf8_lossy(body).trim().chars().take(400).collect();
            return Refusal {
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
        Refusal::of_status(&status, code)
    }

    /// Reads a `Status` object.
    pub(crate) fn of_status(status: &Json, code: u16) -> Refusal {
        let text = |value: &Json| value.as_str().unwrap_or_default().to_owned();
        let code = status["code"]
            .as_u64()
            .and_then(|code| u16::try_from(code).ok())
            .unwrap_or(code);
        let details = &status["details"];
        let cause = |cause: &Json| (text(&cause["field"]), text(&cause["message"]));
        let name = text(&details["name"]);
        Refusal {
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

    /// Whether an error is the server's word that something is not there.
    pub(crate) fn is_not_found(error: &anyhow::Error) -> bool {
        error
            .downcast_ref::<Refusal>()
            .is_some_and(|refusal| refusal.code == 404)
    }

    /// What might help.
    pub(crate) fn hint(&self) -> Option<&'static str> {
        match (self.code, self.reason.as_str()) {
            (401, _) => Some("the server does not know these credentials: see `rutter config view` and `--token`"),
            (403, _) => Some("`rutter auth whoami` says who you are, `rutter auth can-i VERB KIND` what you may do"),
            (409, "Conflict") if self.causes.iter().any(|(field, _)| field.starts_with('.')) => {
                Some("take the fields out of the file, or take them over with --force-conflicts")
            }
            (409, "Conflict") => Some(
                "somebody has written it since: start from what is there now (`rutter get … -o yaml`), or take \
                 metadata.resourceVersion out to overwrite it",
            ),
            (415, _) if self.message.contains("merge-patch") => {
                Some("the kind has no strategic merge patch: `rutter patch --type merge`")
            }
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

impl fmt::Display for Refusal {
    /// In several lines if there are causes.
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

impl std::error::Error for Refusal {}

/// The time that was given ran out.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct TimedOut(pub(crate) String);

impl fmt::Display for TimedOut {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "timed out: {}", self.0)
    }
}

impl std::error::Error for TimedOut {}

/// No server could be asked.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct NoServer {
    /// Whether there is one that should have answered; otherwise none is named anywhere.
    pub(crate) named: bool,
    /// Which, and why not.
    pub(crate) what: String,
}

impl fmt::Display for NoServer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.what)
    }
}

impl std::error::Error for NoServer {}

/// The command line makes no sense, for reasons that the parser of flags cannot know.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Usage(pub(crate) String);

impl fmt::Display for Usage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for Usage {}

/// A [`Usage`] error.
pub(crate) fn usage(what: impl Into<String>) -> anyhow::Error {
    Usage(what.into()).into()
}

/// Tells what went wrong; returns the exit code.
pub(crate) fn report(error: &anyhow::Error, io: &mut Io) -> u8 {
    let closed = |cause: &(dyn std::error::Error + 'static)| {
        cause
            .downcast_ref::<io::Error>()
            .is_some_and(|error| error.kind() == io::ErrorKind::BrokenPipe)
    };
    // `rutter get … | head` has what it wanted.
    if error.chain().any(closed) {
        return SUCCESS;
    }
    io.tell(describe(error));
    match error {
        error if error.is::<TimedOut>() => TIMEOUT,
        error if error.is::<Usage>() => USAGE,
        _ => FAILURE,
    }
}

/// The error in words.
pub(crate) fn describe(error: &anyhow::Error) -> String {
    match error.is::<Refusal>() {
        // It names its own origin.
        true => format!("{error:#}"),
        false => format!("error: {error:#}"),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn causes_stand_on_lines_of_their_own() {
        let status = json!({"kind": "Status", "code": 422, "reason": "Invalid", "message": "long",
            "details": {"kind": "VirtualService", "name": "a", "causes": [
                {"field": "spec.hosts", "message": "Required value"}, {"message": "and more"}]}});
        let refusal = Refusal::read(422, status.to_string().as_bytes());
        assert_eq!(
            refusal.to_string(),
            "The VirtualService \"a\" is invalid:\n* spec.hosts: Required value\n* and more"
        );
    }

    #[test]
    fn answers_that_are_no_status_are_shown_in_short() {
        let refusal = Refusal::read(403, b"<html>no</html>");
        assert_eq!(refusal.reason, "Forbidden");
        assert!(
            refusal
                .to_string()
                .starts_with("Error from server (Forbidden): <html>no</html>\nhint: ")
        );
        assert_eq!(Refusal::read(500, b"").message, "HTTP status 500");
    }
}
