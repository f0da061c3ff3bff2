//! Error responses: `Status` objects with the messages of Kubernetes.

use serde_json::{Map, Value, json};

/// An invalid field.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Cause {
    /// `FieldValueInvalid`, `FieldValueRequired`, …
    pub reason: String,
    /// The problem, without the field.
    pub message: String,
    /// The path of the field: `spec.hosts[0]`.
    pub field: String,
}

/// An error response.
#[derive(Clone, PartialEq, Debug, thiserror::Error)]
#[error("{message}")]
pub struct ApiError {
    /// The HTTP status code.
    pub code: u16,
    /// The machine-readable reason: `NotFound`, `Conflict`, …; may be empty.
    pub reason: &'static str,
    /// The human-readable message.
    pub message: String,
    /// `details` of the status: name, group, kind, uid, causes.
    details: Map<String, Value>,
}

/// The object or type that an error concerns.
#[derive(Clone, Copy, Debug)]
pub struct About<'a> {
    /// The API group.
    pub group: &'a str,
    /// The plural name, or the kind where Kubernetes uses the kind.
    pub kind: &'a str,
    /// The object's name; empty if the error does not concern an object.
    pub name: &'a str,
}

impl About<'_> {
    /// `virtualservices.networking.istio.io`, `pods`.
    fn qualified(&self) -> String {
        match self.group {
            "" => self.kind.to_owned(),
            group => format!("{}.{group}", self.kind),
        }
    }

    fn details(&self) -> Map<String, Value> {
        let mut details = Map::new();
        for (field, value) in [("name", self.name), ("group", self.group), ("kind", self.kind)] {
            if !value.is_empty() {
                details.insert(field.into(), value.into());
            }
        }
        details
    }
}

impl ApiError {
    /// An error with code, reason and message.
    pub fn new(code: u16, reason: &'static str, message: impl Into<String>) -> ApiError {
        ApiError { code, reason, message: message.into(), details: Map::new() }
    }

    /// 400: the request is invalid.
    pub fn bad_request(message: impl Into<String>) -> ApiError {
        ApiError::new(400, "BadRequest", message)
    }

    /// 404: nothing is served at this path.
    pub fn no_such_path() -> ApiError {
        ApiError::new(404, "NotFound", "the server could not find the requested resource")
    }

    /// 404: the object does not exist.
    pub fn not_found(about: About<'_>) -> ApiError {
        let message = format!("{} {:?} not found", about.qualified(), about.name);
        ApiError::new(404, "NotFound", message).about(about)
    }

    /// 409: the object already exists.
    pub fn exists(about: About<'_>) -> ApiError {
        let message = format!("{} {:?} already exists", about.qualified(), about.name);
        ApiError::new(409, "AlreadyExists", message).about(about)
    }

    /// 409: the object has changed or is not the expected one.
    pub fn conflict(about: About<'_>, why: &str) -> ApiError {
        let message = format!("Operation cannot be fulfilled on {} {:?}: {why}", about.qualified(), about.name);
        ApiError::new(409, "Conflict", message).about(about)
    }

    /// 409: the object has changed.
    pub fn modified(about: About<'_>) -> ApiError {
        let why = "the object has been modified; please apply your changes to the latest version and try again";
        ApiError::conflict(about, why)
    }

    /// 422: the object is invalid. `about` has the kind, not the plural name.
    pub fn invalid(about: About<'_>, causes: Vec<Cause>) -> ApiError {
        let reasons: Vec<String> = causes.iter().map(|c| format!("{}: {}", c.field, c.message)).collect();
        let list = match &reasons[..] {
            [one] => one.clone(),
            many => format!("[{}]", many.join(", ")),
        };
        let message = format!("{} {:?} is invalid: {list}", about.qualified(), about.name);
        ApiError::new(422, "Invalid", message).about(about).causes(causes)
    }

    /// 403: the user may not do this. `about` has the plural name.
    pub fn forbidden(about: About<'_>, why: &str) -> ApiError {
        let message = match about.name {
            "" => format!("{} is forbidden: {why}", about.qualified()),
            name => format!("{} {name:?} is forbidden: {why}", about.qualified()),
        };
        ApiError::new(403, "Forbidden", message).about(about)
    }

    /// 401: the user is unknown.
    pub fn unauthorized() -> ApiError {
        ApiError::new(401, "Unauthorized", "Unauthorized")
    }

    /// 405: the path does not support the method.
    pub fn method_not_allowed() -> ApiError {
        let text = "the server does not allow this method on the requested resource";
        ApiError::new(405, "MethodNotAllowed", text)
    }

    /// 405: clients may only read.
    pub fn read_only(why: &str) -> ApiError {
        ApiError::new(405, "MethodNotAllowed", format!("the API is read-only: {why}"))
    }

    /// 406: the client does not accept JSON.
    pub fn not_acceptable() -> ApiError {
        ApiError::new(406, "NotAcceptable", "only the following media types are accepted: application/json")
    }

    /// 415: the body's media type is not supported.
    pub fn unsupported_media_type(possible: &[&str]) -> ApiError {
        let message = format!(
            "the body of the request was in an unknown format - accepted media types include: {}",
            possible.join(", ")
        );
        ApiError::new(415, "UnsupportedMediaType", message)
    }

    /// 410: the version is no longer available.
    pub fn expired(message: impl Into<String>) -> ApiError {
        ApiError::new(410, "Expired", message)
    }

    /// 504: the version does not exist yet.
    pub fn too_large_version(requested: u64, newest: u64) -> ApiError {
        let message = format!("Timeout: Too large resource version: {requested}, current: {newest}");
        let cause = Cause {
            reason: "ResourceVersionTooLarge".into(),
            message: "Too large resource version".into(),
            field: String::new(),
        };
        ApiError::new(504, "Timeout", message).causes(vec![cause]).retry_after(1)
    }

    /// 429: too many requests.
    pub fn too_many_requests(seconds: u32) -> ApiError {
        let text = "Too many requests, please try again later.";
        ApiError::new(429, "TooManyRequests", text).retry_after(seconds)
    }

    /// 413: the body is too large.
    pub fn too_large(message: impl Into<String>) -> ApiError {
        ApiError::new(413, "RequestEntityTooLarge", message)
    }

    /// 500: an internal error.
    pub fn internal(message: impl Into<String>) -> ApiError {
        ApiError::new(500, "InternalError", format!("Internal error occurred: {}", message.into()))
    }

    /// 503: the store is unavailable.
    pub fn unavailable(message: impl Into<String>) -> ApiError {
        ApiError::new(503, "ServiceUnavailable", message).retry_after(1)
    }

    /// Adds the object concerned to the details.
    pub fn about(mut self, about: About<'_>) -> ApiError {
        self.details.append(&mut about.details());
        self
    }

    /// Adds a detail.
    pub fn detail(mut self, name: &str, value: impl Into<Value>) -> ApiError {
        self.details.insert(name.into(), value.into());
        self
    }

    /// Adds invalid fields.
    pub fn causes(self, causes: Vec<Cause>) -> ApiError {
        let causes: Vec<Value> = causes
            .into_iter()
            .map(|cause| {
                let mut out = Map::new();
                for (name, text) in [("reason", cause.reason), ("message", cause.message), ("field", cause.field)] {
                    if !text.is_empty() {
                        out.insert(name.into(), text.into());
                    }
                }
                Value::Object(out)
            })
            .collect();
        self.detail("causes", causes)
    }

    /// Sets the delay before a retry, in seconds.
    pub fn retry_after(self, seconds: u32) -> ApiError {
        self.detail("retryAfterSeconds", seconds)
    }

    /// The delay before a retry, in seconds.
    pub fn retry_after_seconds(&self) -> Option<u64> {
        self.details.get("retryAfterSeconds").and_then(Value::as_u64)
    }

    /// The `Status` object.
    pub fn status(&self) -> Value {
        let mut status = json!({
            "kind": "Status",
            "apiVersion": "v1",
            "metadata": {},
            "status": "Failure",
            "message": self.message,
            "code": self.code,
        });
        if !self.reason.is_empty() {
            status["reason"] = self.reason.into();
        }
        if !self.details.is_empty() {
            status["details"] = Value::Object(self.details.clone());
        }
        status
    }
}

impl From<store::Error> for ApiError {
    /// For errors that do not concern the client's input; verbs translate the other errors.
    fn from(error: store::Error) -> ApiError {
        use store::Error;
        match error {
            Error::Conflict { ref key, .. } => ApiError::modified(about_key(key)),
            Error::Exists { ref key } => ApiError::exists(about_key(key)),
            Error::NotFound { ref key } => ApiError::not_found(about_key(key)),
            Error::Compacted { requested, oldest } => {
                ApiError::expired(format!("too old resource version: {requested} ({oldest})"))
            }
            Error::Future { requested, newest } => ApiError::too_large_version(requested, newest),
            Error::InvalidContinue => ApiError::bad_request("continue key is not valid: it is not from this server"),
            Error::TooLarge { .. } => ApiError::too_large(format!("Request entity too large: {error}")),
            Error::Unavailable(_) | Error::Closed => ApiError::unavailable(error.to_string()),
            Error::Full(_) | Error::ReadOnly(_) => ApiError::new(507, "InternalError", error.to_string()),
            Error::Unknown(_) => ApiError::new(504, "Timeout", error.to_string()).retry_after(1),
            error => ApiError::internal(error.to_string()),
        }
    }
}

/// An error that concerns a stored object.
pub(crate) fn about_key(key: &store::Key) -> About<'_> {
    About { group: &key.resource.group, kind: &key.resource.plural, name: &key.name }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn statuses_have_the_texts_of_kubernetes() {
        let about = About { group: "networking.istio.io", kind: "virtualservices", name: "reviews" };
        let status = ApiError::not_found(about).status();
        assert_eq!(status["message"], "virtualservices.networking.istio.io \"reviews\" not found");
        assert_eq!(status["details"]["kind"], "virtualservices");
        assert_eq!(status["code"], 404);
        let cause = |field: &str| Cause {
            reason: "FieldValueRequired".into(),
            message: "Required value".into(),
            field: field.into(),
        };
        let kind = About { kind: "Service", group: "", name: "a" };
        let one = ApiError::invalid(kind, vec![cause("spec.ports")]);
        assert_eq!(one.message, "Service \"a\" is invalid: spec.ports: Required value");
        let two = ApiError::invalid(kind, vec![cause("a"), cause("b")]);
        assert_eq!(two.message, "Service \"a\" is invalid: [a: Required value, b: Required value]");
        assert_eq!(two.status()["details"]["causes"][1]["field"], "b");
    }
}
