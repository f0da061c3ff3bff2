//! Calls of admission webhooks (`AdmissionReview`, versions `v1` and `v1beta1`), and the validation webhook.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use config::schema::find_kind;
use config::{Diagnostic, ParseOptions, Severity, read_object};
use serde_json::{Value as Json, json};

/// The annotation of objects with which a control plane finds out whether the webhook refuses.
const ALWAYS_REJECT: &str = "internal.istio.io/webhook-always-reject";
/// Maximum number of warnings, and of errors in a message.
const MAX_SHOWN: usize = 20;
/// Fields of an object.
const FIELDS: [&str; 5] = ["apiVersion", "kind", "metadata", "spec", "status"];

/// A call of an admission webhook.
#[derive(Clone, PartialEq, Debug)]
pub struct Call {
    api_version: String,
    uid: String,
    /// `CREATE`, `UPDATE`, `DELETE` or `CONNECT`.
    pub operation: String,
    /// The namespace of the request; empty for objects of the whole cluster.
    pub namespace: String,
    /// Group, version and plural of the resource.
    pub resource: [String; 3],
    /// Whether nothing is stored.
    pub dry_run: bool,
    /// The object; null if there is none.
    pub object: Json,
}

/// The error of decoding a call.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum CallError {
    /// The body is not JSON.
    #[error("could not decode body: {0}")]
    Syntax(String),
    /// The body is not a review of a known version.
    #[error("could not decode body: expected an AdmissionReview of admission.k8s.io/v1 or v1beta1 with a request")]
    NotAReview,
}

/// The answer to a call.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Answer {
    /// Whether the request is allowed.
    pub allowed: bool,
    /// Why it is not.
    pub message: Option<String>,
    /// Warnings for the client.
    pub warnings: Vec<String>,
    /// Operations of a JSON patch.
    pub patch: Vec<Json>,
}

impl Answer {
    /// Refuses a request.
    pub fn refuse(message: impl Into<String>) -> Answer {
        Answer { message: Some(message.into()), ..Answer::default() }
    }

    /// Allows a request with these warnings.
    pub fn allow(warnings: Vec<String>) -> Answer {
        Answer { allowed: true, warnings, ..Answer::default() }
    }

    /// Allows a request with a change of the object.
    pub fn change(patch: Vec<Json>) -> Answer {
        Answer { allowed: true, patch, ..Answer::default() }
    }
}

impl Call {
    /// Decodes the body of a call.
    ///
    /// # Errors
    /// The body is not JSON, or not a review with a request.
    pub fn decode(body: &[u8]) -> Result<Call, CallError> {
        let mut review: Json = serde_json::from_slice(body).map_err(|error| CallError::Syntax(error.to_string()))?;
        let api_version = review["apiVersion"].as_str().unwrap_or_default().to_owned();
        let is_known = matches!(api_version.as_str(), "admission.k8s.io/v1" | "admission.k8s.io/v1beta1");
        let request = review.get_mut("request").map(Json::take).filter(Json::is_object);
        let (Some(mut request), true) = (request, is_known && review["kind"] == "AdmissionReview") else {
            return Err(CallError::NotAReview);
        };
        let text = |value: &Json| value.as_str().unwrap_or_default().to_owned();
        let object = request.get_mut("object").map(Json::take).unwrap_or_default();
        Ok(Call {
            api_version,
            uid: text(&request["uid"]),
            operation: text(&request["operation"]),
            namespace: text(&request["namespace"]),
            resource: ["group", "version", "resource"].map(|field| text(&request["resource"][field])),
            dry_run: request["dryRun"] == true,
            object,
        })
    }

    /// The body of the answer, in the version of the call.
    pub fn answer(&self, answer: &Answer) -> Json {
        review(&self.api_version, &self.uid, answer)
    }
}

/// The answer to a body that is not a call.
pub fn answer_to_nothing(error: &CallError) -> Json {
    review("admission.k8s.io/v1", "", &Answer::refuse(error.to_string()))
}

fn review(api_version: &str, uid: &str, answer: &Answer) -> Json {
    let mut response = json!({"uid": uid, "allowed": answer.allowed});
    if let Some(message) = &answer.message {
        response["status"] = json!({"metadata": {}, "message": message});
    }
    if !answer.warnings.is_empty() {
        response["warnings"] = answer.warnings.clone().into();
    }
    if !answer.patch.is_empty() {
        response["patchType"] = "JSONPatch".into();
        response["patch"] = STANDARD.encode(Json::Array(answer.patch.clone()).to_string()).into();
    }
    json!({"kind": "AdmissionReview", "apiVersion": api_version, "response": response})
}

/// The verdict of the validation webhook, with istiod's names of reasons for metrics.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Verdict {
    /// The object is valid, with these warnings.
    Passed(Vec<String>),
    /// The operation is not judged.
    Unjudged,
    /// The object is refused.
    Failed {
        /// The reason for metrics.
        reason: &'static str,
        /// The message.
        message: String,
        /// Whether the object asks to be refused.
        on_purpose: bool,
    },
}

/// Judges an object of a mesh kind. The API server has evaluated the rules of its schema before.
pub fn judge(call: &Call) -> Verdict {
    if !matches!(call.operation.as_str(), "CREATE" | "UPDATE") {
        return Verdict::Unjudged;
    }
    let object = &call.object;
    let on_purpose = object["metadata"]["annotations"].get(ALWAYS_REJECT).is_some();
    let fail = |reason, message| Verdict::Failed { reason, message, on_purpose };
    let Some(fields) = object.as_object() else {
        return fail("yaml_decode_error", "cannot decode configuration: expected an object".to_owned());
    };
    let text = |name: &str| object[name].as_str().unwrap_or_default();
    let group = text("apiVersion").split_once('/').map_or("", |(group, _)| group);
    let known = find_kind(group, text("kind")).filter(|definition| definition.mesh.is_some());
    let Some(definition) = known else {
        return fail("unknown_type", format!("unrecognized type {}, Kind={}", text("apiVersion"), text("kind")));
    };
    if let Some(unknown) = fields.keys().find(|name| !FIELDS.contains(&name.as_str())) {
        let name = object["metadata"]["name"].as_str().unwrap_or_default();
        let message = format!("unknown field {unknown:?} on {} resource {}/{name}", definition.kind, call.namespace);
        return fail("invalid_resource", message);
    }
    let mut options = ParseOptions { strict: true, admitted: true, ..ParseOptions::default() };
    if !call.namespace.is_empty() {
        options.default_namespace = call.namespace.as_str().into();
    }
    let diagnostics = read_object(object, &options).diagnostics;
    let shown = |severity| diagnostics.iter().filter(move |found| found.severity == severity).take(MAX_SHOWN).map(line);
    let errors: Vec<String> = shown(Severity::Error).collect();
    match errors.is_empty() {
        true => Verdict::Passed(shown(Severity::Warning).collect()),
        false => fail("invalid_resource", format!("configuration is invalid: {}", errors.join("; "))),
    }
}

fn line(diagnostic: &Diagnostic) -> String {
    let text = match &diagnostic.hint {
        Some(hint) => format!("{} ({hint})", diagnostic.message),
        None => diagnostic.message.clone(),
    };
    if diagnostic.path.is_empty() { text } else { format!("{}: {text}", diagnostic.path) }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn call(version: &str, operation: &str, object: Json) -> Call {
        let body = json!({
            "kind": "AdmissionReview", "apiVersion": format!("admission.k8s.io/{version}"),
            "request": {"uid": "u1", "operation": operation, "namespace": "shop", "object": object},
        });
        Call::decode(body.to_string().as_bytes()).unwrap()
    }

    fn gateway(spec: Json) -> Json {
        json!({"apiVersion": "networking.istio.io/v1", "kind": "Gateway", "metadata": {"name": "g"}, "spec": spec})
    }

    #[test]
    fn answers_have_the_version_and_uid_of_the_call() {
        for version in ["v1", "v1beta1"] {
            let call = call(version, "CREATE", Json::Null);
            let answer = call.answer(&Answer::change(vec![json!({"op": "remove", "path": "/a"})]));
            assert_eq!(answer["apiVersion"], format!("admission.k8s.io/{version}"));
            assert_eq!(answer["response"]["uid"], "u1");
            let patch = STANDARD.decode(answer["response"]["patch"].as_str().unwrap()).unwrap();
            assert_eq!(patch, br#"[{"op":"remove","path":"/a"}]"#);
        }
        let error = Call::decode(b"{}").unwrap_err();
        assert_eq!(answer_to_nothing(&error)["response"]["allowed"], false);
        assert!(matches!(Call::decode(b"{"), Err(CallError::Syntax(_))));
    }

    #[test]
    fn verdicts() {
        let failed = |call: &Call| match judge(call) {
            Verdict::Failed { reason, message, on_purpose } => (reason, message, on_purpose),
            other => panic!("{other:?}"),
        };
        let (reason, message, on_purpose) = failed(&call("v1", "CREATE", gateway(json!({}))));
        assert_eq!((reason, on_purpose), ("invalid_resource", false));
        assert!(message.starts_with("configuration is invalid: spec.servers"), "{message}");
        let mut rejected = gateway(json!({}));
        rejected["metadata"]["annotations"] = json!({ALWAYS_REJECT: "true"});
        assert!(failed(&call("v1", "CREATE", rejected)).2);
        let mut more = gateway(json!({}));
        more["more"] = 1.into();
        assert!(failed(&call("v1", "UPDATE", more)).1.contains("unknown field \"more\""));
        let other = json!({"apiVersion": "networking.istio.io/v1", "kind": "Nothing"});
        assert_eq!(failed(&call("v1", "CREATE", other)).0, "unknown_type");
        assert_eq!(failed(&call("v1", "CREATE", json!([]))).0, "yaml_decode_error");
        assert_eq!(judge(&call("v1", "DELETE", Json::Null)), Verdict::Unjudged);
        let good = gateway(json!({"selector": {"istio": "gw"}, "servers": [
            {"port": {"number": 80, "name": "http", "protocol": "HTTP"}, "hosts": ["a.example"]}]}));
        assert!(matches!(judge(&call("v1", "CREATE", good)), Verdict::Passed(_)));
    }

    proptest! {
        #[test]
        fn bodies_never_panic(body in "[\\[\\]{}:,\"a-z0-9 ]{0,80}") {
            let decoded = Call::decode(body.as_bytes());
            let wrapped = format!(
                "{{\"kind\":\"AdmissionReview\",\"apiVersion\":\"admission.k8s.io/v1\",\"request\":{{\"operation\":\"CREATE\",\"object\":{body}}}}}"
            );
            for call in decoded.into_iter().chain(Call::decode(wrapped.as_bytes())) {
                let _ = judge(&call);
            }
        }
    }
}
