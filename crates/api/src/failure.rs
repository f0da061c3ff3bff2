//! What a request that cannot be answered gets: a `Status` object with the texts of Kubernetes.

use serde_json::{Map, Value, json};

/// One field that is wrong.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Cause {
    /// `FieldValueInvalid`, `FieldValueRequired`, …
    pub reason: String,
    /// What is wrong, without the field.
    pub message: String,
    /// The path of the field: `spec.hosts[0]`.
    pub field: String,
}

/// Why a request was refused.
#[derive(Clone, PartialEq, Debug)]
pub struct Failure {
    /// The HTTP status.
    pub code: u16,
    /// The reason that programs read: `NotFound`, `Conflict`, …; empty if there is none.
    pub reason: &'static str,
    /// The text that people read.
    pub message: String,
    /// `details` of the status: name, group, kind, uid, causes.
    details: Map<String, Value>,
    /// `metadata.continue`, with which a list that expired can go on.
    pub token: Option<String>,
}

/// What a failure is about.
#[derive(Clone, Copy, Debug)]
pub struct About<'a> {
    /// The API group.
    pub group: &'a str,
    /// The plural name, or the kind where Kubernetes says that.
    pub kind: &'a str,
    /// The object; empty if it is not about one.
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

impl Failure {
    /// A failure that says only this.
    pub fn new(code: u16, reason: &'static str, message: impl Into<String>) -> Failure {
        Failure {
            code,
            reason,
            message: message.into(),
            details: Map::new(),
            token: None,
        }
    }

    /// The request makes no sense.
    pub fn bad_request(message: impl Into<String>) -> Failure {
        Failure::new(400, "BadRequest", message)
    }

    /// There is nothing at this path.
    pub fn no_such_path() -> Failure {
        Failure::new(404, "NotFound", "the server could not find the requested resource")
    }

    /// The object is not there.
    pub fn not_found(about: About<'_>) -> Failure {
        let message = format!("{} {:?} not found", about.qualified(), about.name);
        Failure::new(404, "NotFound", message).about(about)
    }

    /// The object is there already.
    pub fn exists(about: About<'_>) -> Failure {
        let message = format!("{} {:?} already exists", about.qualified(), about.name);
        Failure::new(409, "AlreadyExists", message).about(about)
    }

    /// The object was written meanwhile, or is not the one that was meant.
    pub fn conflict(about: About<'_>, why: &str) -> Failure {
        let message = format!(
            "Operation cannot be fulfilled on {} {:?}: {why}",
            about.qualified(),
            about.name
        );
        Failure::new(409, "Conflict", message).about(about)
    }

    /// The object was written meanwhile.
    pub fn modified(about: About<'_>) -> Failure {
        let why = "the object has been modified; please apply your changes to the latest version and try again";
        Failure::conflict(about, why)
    }

    /// The object breaks rules. `about` has the kind and not the plural name.
    pub fn invalid(about: About<'_>, causes: Vec<Cause>) -> Failure {
        let said: Vec<String> = causes.iter().map(|c| format!("{}: {}", c.field, c.message)).collect();
        let list = match &said[..] {
            [one] => one.clone(),
            many => format!("[{}]", many.join(", ")),
        };
        let message = format!("{} {:?} is invalid: {list}", about.qualified(), about.name);
        Failure::new(422, "Invalid", message).about(about).causes(causes)
    }

    /// The caller may not do that. `about` has the plural name.
    pub fn forbidden(about: About<'_>, why: &str) -> Failure {
        let message = match about.name {
            "" => format!("{} is forbidden: {why}", about.qualified()),
            name => format!("{} {name:?} is forbidden: {why}", about.qualified()),
        };
        Failure::new(403, "Forbidden", message).about(about)
    }

    /// It is not known who calls.
    pub fn unauthorized() -> Failure {
        Failure::new(401, "Unauthorized", "Unauthorized")
    }

    /// The verb does not go with the path.
    pub fn method_not_allowed() -> Failure {
        let text = "the server does not allow this method on the requested resource";
        Failure::new(405, "MethodNotAllowed", text)
    }

    /// No form that the client accepts can be made.
    pub fn not_acceptable(possible: &[&str]) -> Failure {
        let message = format!("only the following media types are accepted: {}", possible.join(", "));
        Failure::new(406, "NotAcceptable", message)
    }

    /// The body has a form that is not read.
    pub fn unsupported_media_type(possible: &[&str]) -> Failure {
        let message = format!(
            "the body of the request was in an unknown format - accepted media types include: {}",
            possible.join(", ")
        );
        Failure::new(415, "UnsupportedMediaType", message)
    }

    /// The version is no longer kept.
    pub fn expired(message: impl Into<String>) -> Failure {
        Failure::new(410, "Expired", message)
    }

    /// The version has not happened yet.
    pub fn too_large_version(requested: u64, newest: u64) -> Failure {
        let message = format!("Timeout: Too large resource version: {requested}, current: {newest}");
        let cause = Cause {
            reason: "ResourceVersionTooLarge".into(),
            message: "Too large resource version".into(),
            field: String::new(),
        };
        Failure::new(504, "Timeout", message).causes(vec![cause]).retry_after(1)
    }

    /// Too much is asked at once.
    pub fn too_many_requests(seconds: u32) -> Failure {
        let text = "Too many requests, please try again later.";
        Failure::new(429, "TooManyRequests", text).retry_after(seconds)
    }

    /// The body is longer than is read.
    pub fn too_large(message: impl Into<String>) -> Failure {
        Failure::new(413, "RequestEntityTooLarge", message)
    }

    /// Something here is broken.
    pub fn internal(message: impl Into<String>) -> Failure {
        Failure::new(
            500,
            "InternalError",
            format!("Internal error occurred: {}", message.into()),
        )
    }

    /// The store does not answer now.
    pub fn unavailable(message: impl Into<String>) -> Failure {
        Failure::new(503, "ServiceUnavailable", message).retry_after(1)
    }

    /// Adds what it is about to the details.
    pub fn about(mut self, about: About<'_>) -> Failure {
        self.details.append(&mut about.details());
        self
    }

    /// Adds a detail.
    pub fn detail(mut self, name: &str, value: impl Into<Value>) -> Failure {
        self.details.insert(name.into(), value.into());
        self
    }

    /// Adds fields that are wrong.
    pub fn causes(self, causes: Vec<Cause>) -> Failure {
        let causes: Vec<Value> = causes
            .into_iter()
            .map(|cause| {
                let mut out = Map::new();
                for (name, text) in [
                    ("reason", cause.reason),
                    ("message", cause.message),
                    ("field", cause.field),
                ] {
                    if !text.is_empty() {
                        out.insert(name.into(), text.into());
                    }
                }
                Value::Object(out)
            })
            .collect();
        self.detail("causes", causes)
    }

    /// Says when it is worth to try again, in seconds.
    pub fn retry_after(self, seconds: u32) -> Failure {
        self.detail("retryAfterSeconds", seconds)
    }

    /// When it is worth to try again, in seconds.
    pub fn retry_after_seconds(&self) -> Option<u64> {
        self.details.get("retryAfterSeconds").and_then(Value::as_u64)
    }

    /// The `Status` object.
    pub fn status(&self) -> Value {
        let mut metadata = Map::new();
        if let Some(token) = &self.token {
            metadata.insert("continue".into(), token.as_str().into());
        }
        let mut status = json!({
            "kind": "Status",
            "apiVersion": "v1",
            "metadata": metadata,
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

impl From<store::Error> for Failure {
    /// For errors that are not about what a client asked for; verbs translate the others themselves.
    fn from(error: store::Error) -> Failure {
        use store::Error;
        match error {
            Error::Conflict { ref key, .. } => Failure::modified(about_key(key)),
            Error::Exists { ref key } => Failure::exists(about_key(key)),
            Error::NotFound { ref key } => Failure::not_found(about_key(key)),
            Error::Compacted { requested, oldest } => {
                Failure::expired(format!("too old resource version: {requested} ({oldest})"))
            }
            Error::Future { requested, newest } => Failure::too_large_version(requested, newest),
            Error::InvalidContinue => Failure::bad_request("continue key is not valid: it was not made by this server"),
            Error::TooLarge { .. } => Failure::too_large(format!("Request entity too large: {error}")),
            Error::Unavailable(_) | Error::Closed => Failure::unavailable(error.to_string()),
            Error::Full(_) | Error::ReadOnly(_) => Failure::new(507, "InternalError", error.to_string()),
            Error::Unknown(_) => Failure::new(504, "Timeout", error.to_string()).retry_after(1),
            error => Failure::internal(error.to_string()),
        }
    }
}

/// A failure about a stored object.
pub(crate) fn about_key(key: &store::Key) -> About<'_> {
    About {
        group: &key.resource.group,
        kind: &key.resource.plural,
        name: &key.name,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn statuses_have_the_texts_of_kubernetes() {
        let about = About {
            group: "networking.istio.io",
            kind: "virtualservices",
            name: "reviews",
        };
        let status = Failure::not_found(about).status();
        assert_eq!(
            status["message"],
            "virtualservices.networking.istio.io \"reviews\" not found"
        );
        assert_eq!(status["details"]["kind"], "virtualservices");
        assert_eq!(status["code"], 404);
        let cause = |field: &str| Cause {
            reason: "FieldValueRequired".into(),
            message: "Required value".into(),
            field: field.into(),
        };
        let kind = About {
            kind: "Service",
            group: "",
            name: "a",
        };
        let one = Failure::invalid(kind, vec![cause("spec.ports")]);
        assert_eq!(one.message, "Service \"a\" is invalid: spec.ports: Required value");
        let two = Failure::invalid(kind, vec![cause("a"), cause("b")]);
        assert_eq!(
            two.message,
            "Service \"a\" is invalid: [a: Required value, b: Required value]"
        );
        assert_eq!(two.status()["details"]["causes"][1]["field"], "b");
    }
}
