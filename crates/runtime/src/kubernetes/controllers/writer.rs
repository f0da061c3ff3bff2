//! Executes the writes of controllers through the Kubernetes API.

use crate::leadership::{Outcome, Writer};
use controllers::{Body, MANAGED, Target, Write};
use http::{Request, StatusCode, header};
use kube::Client;
use kube::client::Body as Bytes;
use serde_json::{Value, json};

use crate::kubernetes::answer::{self, Endpoint};

/// The media type that requests only the metadata of an object.
const METADATA: &str = "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1";

/// Writes objects of any kind.
pub(crate) struct ObjectWriter {
    endpoint: Endpoint,
}

impl ObjectWriter {
    pub(in crate::kubernetes) fn new(client: Client) -> ObjectWriter {
        ObjectWriter::over(Endpoint::Kubernetes(client))
    }

    /// Writes objects of this API.
    pub(crate) fn over(endpoint: Endpoint) -> ObjectWriter {
        ObjectWriter { endpoint }
    }
}

impl Writer<Write> for ObjectWriter {
    async fn write(&self, write: &Write) -> Outcome {
        // The resource version that this replica read last makes a delayed write fail instead of overwriting a newer
        // object.
        let version = match self.version(write).await {
            Ok(version) => version,
            Err(outcome) => return outcome,
        };
        match self.endpoint.ask(request(write, version.as_deref())).await {
            Ok((status, _)) if status.is_success() => Outcome::Written,
            Ok((status, answer)) => outcome(write, status, answer::message(&answer)),
            Err(outcome) => outcome,
        }
    }
}

impl ObjectWriter {
    /// The version of the object to apply to. `None` if the object does not exist or the write has its own version.
    async fn version(&self, write: &Write) -> Result<Option<String>, Outcome> {
        let Body::Apply { create, managed, .. } = &write.body else {
            return Ok(None);
        };
        let request = Request::get(path(&write.target, "")).header(header::ACCEPT, METADATA);
        let found = match self.endpoint.ask(request.body(Bytes::empty())).await? {
            (StatusCode::NOT_FOUND, _) if *create => return Ok(None),
            (StatusCode::NOT_FOUND, _) => return Err(Outcome::Gone),
            (status, answer) if !status.is_success() => return Err(answer::refused(status, &answer)),
            (_, found) => found,
        };
        let meta = &found["metadata"];
        if !write.uid.is_empty() && meta["uid"] != *write.uid {
            return Err(Outcome::Gone);
        }
        if *managed && meta["labels"].get(MANAGED).is_none() {
            return Err(Outcome::Refused(format!("the object has no label {MANAGED} and is left unchanged")));
        }
        Ok(meta["resourceVersion"].as_str().map(str::to_owned))
    }
}

/// Maps an error response to an outcome.
fn outcome(write: &Write, status: StatusCode, message: &str) -> Outcome {
    let error = format!("{status}: {message}");
    match status {
        // The object or its namespace is deleted or terminating.
        StatusCode::NOT_FOUND => Outcome::Gone,
        StatusCode::FORBIDDEN if message.contains("being terminated") => Outcome::Gone,
        // The object has a newer version, or another object has its name.
        StatusCode::CONFLICT => match &write.body {
            Body::Merge { .. } | Body::Delete { .. } => Outcome::Stale,
            Body::Apply { .. } => Outcome::Retry(error),
            // The object exists.
            Body::Create { .. } => Outcome::Gone,
        },
        StatusCode::BAD_REQUEST | StatusCode::UNPROCESSABLE_ENTITY | StatusCode::METHOD_NOT_ALLOWED => {
            Outcome::Refused(error)
        }
        _ => Outcome::Retry(error),
    }
}

/// The path of an object, or of a subresource of it.
fn path(target: &Target, subresource: &str) -> String {
    let mut path = answer::object_path(
        target.resource.group,
        &target.resource.api_version(),
        &target.namespace,
        target.resource.plural,
        &target.name,
    );
    if !subresource.is_empty() {
        path.push_str(&format!("/{subresource}"));
    }
    path
}

/// Builds the request. `version` is the resource version that the object must have for an apply.
fn request(write: &Write, version: Option<&str>) -> http::Result<Request<Bytes>> {
    let target = &write.target;
    let path = path(target, target.subresource);
    let (query, kind, body) = match &write.body {
        Body::Create { fields, manager } => {
            let all = path.rsplit_once('/').map_or(&*path, |(all, _)| all);
            return Request::post(format!("{all}?fieldManager={manager}"))
                .header(header::CONTENT_TYPE, "application/json")
                .body(Bytes::from(whole(fields, target).to_string().into_bytes()));
        }
        Body::Apply { fields, manager, .. } => {
            let mut object = whole(fields, target);
            if let Some(version) = version {
                object["metadata"]["resourceVersion"] = version.into();
            }
            // Another control plane, such as istiod, may own these fields.
            (format!("fieldManager={manager}&force=true"), "application/apply-patch+yaml", with_uid(object, write))
        }
        Body::Delete { version } => {
            let mut required = json!({"resourceVersion": **version});
            if !write.uid.is_empty() {
                required["uid"] = json!(&*write.uid);
            }
            let options = json!({"kind": "DeleteOptions", "apiVersion": "v1", "preconditions": required});
            return Request::delete(path)
                .header(header::CONTENT_TYPE, "application/json")
                .body(Bytes::from(options.to_string().into_bytes()));
        }
        Body::Merge { patch, version } => {
            let mut patch = patch.clone();
            patch["metadata"]["resourceVersion"] = (**version).into();
            ("fieldManager=rutter".to_owned(), "application/merge-patch+json", with_uid(patch, write))
        }
    };
    Request::patch(format!("{path}?{query}"))
        .header(header::CONTENT_TYPE, kind)
        .body(Bytes::from(body.to_string().into_bytes()))
}

/// Adds the type and the name of the object to its fields.
fn whole(fields: &Value, target: &Target) -> Value {
    let mut object = fields.clone();
    object["apiVersion"] = target.resource.api_version().into();
    object["kind"] = target.resource.kind.into();
    object["metadata"]["name"] = (*target.name).into();
    if !target.namespace.is_empty() {
        object["metadata"]["namespace"] = (*target.namespace).into();
    }
    object
}

fn with_uid(mut object: Value, write: &Write) -> Value {
    if !write.uid.is_empty() {
        object["metadata"]["uid"] = json!(&*write.uid);
    }
    object
}

#[cfg(test)]
mod tests {
    use controllers::Resource;

    use super::*;

    fn write(body: Body, uid: &str) -> Write {
        Write {
            target: Target::status(Resource::new("networking.k8s.io", "v1", "Ingress", "ingresses"), "shop", "web"),
            uid: uid.into(),
            body,
        }
    }

    fn apply(uid: &str) -> Write {
        let body = Body::Apply { fields: json!({"status": {}}), manager: "rutter", create: false, managed: false };
        write(body, uid)
    }

    #[tokio::test]
    async fn each_write_becomes_one_request() {
        let request = request(&apply("u"), Some("7")).unwrap();
        assert_eq!(
            request.uri(),
            "/apis/networking.k8s.io/v1/namespaces/shop/ingresses/web/status?fieldManager=rutter&force=true"
        );
        assert_eq!(request.headers()[header::CONTENT_TYPE], "application/apply-patch+yaml");
        let bytes = request.into_body().collect_bytes().await.unwrap();
        let body: Value = serde_json::from_slice(&bytes).unwrap();
        let expected = json!({
            "apiVersion": "networking.k8s.io/v1",
            "kind": "Ingress",
            "metadata": {"name": "web", "namespace": "shop", "uid": "u", "resourceVersion": "7"},
            "status": {},
        });
        assert_eq!(body, expected);
    }

    #[test]
    fn error_responses_map_to_outcomes() {
        let merge = write(Body::Merge { patch: json!({}), version: "1".into() }, "u");
        let mapped =
            |write: &Write, status: u16, message: &str| outcome(write, StatusCode::from_u16(status).unwrap(), message);
        assert_eq!(mapped(&merge, 409, ""), Outcome::Stale);
        assert!(matches!(mapped(&apply("u"), 409, ""), Outcome::Retry(_)));
        assert_eq!(mapped(&apply(""), 404, ""), Outcome::Gone);
        assert_eq!(mapped(&apply(""), 403, "namespace a is being terminated"), Outcome::Gone);
        assert!(matches!(mapped(&apply(""), 403, "you may not"), Outcome::Retry(_)));
        assert!(matches!(mapped(&apply(""), 422, ""), Outcome::Refused(_)));
        assert!(matches!(mapped(&apply(""), 503, ""), Outcome::Retry(_)));
    }
}
