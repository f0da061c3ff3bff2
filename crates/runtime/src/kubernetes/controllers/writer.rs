//! Executes the writes of controllers through the Kubernetes API.

use crate::leadership::{Objects, Outcome};
use controllers::{Body, Target, Write};
use http::{Request, StatusCode, header};
use kube::Client;
use kube::client::Body as Bytes;
use serde_json::{Value, json};

use crate::kubernetes::answer;

/// The maximum size of an error response, which is logged.
const LARGEST_ANSWER: usize = 4 << 20;
/// The media type that requests only the metadata of an object.
const METADATA: &str = "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1";

/// Writes objects of any kind.
pub(super) struct ObjectWriter {
    client: Client,
}

impl ObjectWriter {
    pub(super) fn new(client: Client) -> ObjectWriter {
        ObjectWriter { client }
    }
}

impl Objects for ObjectWriter {
    async fn write(&self, write: &Write) -> Outcome {
        // The resource version that this replica read last makes a delayed write fail instead of overwriting a newer
        // object.
        let version = match self.version(write).await {
            Ok(version) => version,
            Err(outcome) => return outcome,
        };
        let request = match request(write, version.as_deref()) {
            Ok(request) => request,
            Err(error) => return Outcome::Refused(error.to_string()),
        };
        let response = match self.client.send(request).await {
            Ok(response) => response,
            Err(error) => return Outcome::Retry(error.to_string()),
        };
        let status = response.status();
        if status.is_success() {
            return Outcome::Written;
        }
        let headers = response.headers().clone();
        let message = match response.into_body().collect_bytes().await {
            Ok(bytes) if bytes.len() <= LARGEST_ANSWER => {
                answer::message(&serde_json::from_slice(&bytes).unwrap_or_default()).to_owned()
            }
            _ => String::new(),
        };
        answer::wait_as_asked(status, &headers).await;
        outcome(write, status, message)
    }
}

impl ObjectWriter {
    /// The version of the object to apply to. `None` if the object does not exist or the write has its own version.
    async fn version(&self, write: &Write) -> Result<Option<String>, Outcome> {
        let Body::Apply { create, .. } = &write.body else {
            return Ok(None);
        };
        let request = Request::get(path(&write.target, ""))
            .header(header::ACCEPT, METADATA)
            .body(Bytes::empty())
            .map_err(|error| Outcome::Refused(error.to_string()))?;
        let response = self.client.send(request).await;
        let response = response.map_err(|error| Outcome::Retry(error.to_string()))?;
        let status = response.status();
        match status {
            StatusCode::NOT_FOUND if *create => return Ok(None),
            StatusCode::NOT_FOUND => return Err(Outcome::Gone),
            status if !status.is_success() => return Err(Outcome::Retry(status.to_string())),
            _ => {}
        }
        let bytes = response.into_body().collect_bytes().await;
        let bytes = bytes.map_err(|error| Outcome::Retry(error.to_string()))?;
        let found: Value = serde_json::from_slice(&bytes).map_err(|error| Outcome::Retry(error.to_string()))?;
        let meta = &found["metadata"];
        if !write.uid.is_empty() && meta["uid"] != *write.uid {
            return Err(Outcome::Gone);
        }
        Ok(meta["resourceVersion"].as_str().map(str::to_owned))
    }
}

/// Maps an error response to an outcome.
fn outcome(write: &Write, status: StatusCode, message: String) -> Outcome {
    let error = format!("{status}: {message}");
    match status {
        // The object or its namespace is deleted or terminating.
        StatusCode::NOT_FOUND => Outcome::Gone,
        StatusCode::FORBIDDEN if message.contains("being terminated") => Outcome::Gone,
        // The object has a newer version, or another object has its name.
        StatusCode::CONFLICT => match &write.body {
            Body::Merge { .. } => Outcome::Stale,
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
        target.group,
        &target.api_version(),
        &target.namespace,
        target.plural,
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
            (
                format!("fieldManager={manager}&force=true"),
                "application/apply-patch+yaml",
                with_uid(object, write),
            )
        }
        Body::Merge { patch, version } => {
            let mut patch = patch.clone();
            patch["metadata"]["resourceVersion"] = (**version).into();
            (
                "fieldManager=rutter".to_owned(),
                "application/merge-patch+json",
                with_uid(patch, write),
            )
        }
    };
    Request::patch(format!("{path}?{query}"))
        .header(header::CONTENT_TYPE, kind)
        .body(Bytes::from(body.to_string().into_bytes()))
}

/// Adds the type and the name of the object to its fields.
fn whole(fields: &Value, target: &Target) -> Value {
    let mut object = fields.clone();
    object["apiVersion"] = target.api_version().into();
    object["kind"] = target.kind.into();
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
    use super::*;

    fn write(body: Body, uid: &str) -> Write {
        Write {
            target: Target {
                group: "networking.k8s.io",
                version: "v1",
                kind: "Ingress",
                plural: "ingresses",
                subresource: "status",
                namespace: "shop".into(),
                name: "web".into(),
            },
            uid: uid.into(),
            body,
        }
    }

    fn apply(uid: &str) -> Write {
        let body = Body::Apply {
            fields: json!({"status": {}}),
            manager: "rutter",
            create: false,
        };
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
        let merge = write(
            Body::Merge {
                patch: json!({}),
                version: "1".into(),
            },
            "u",
        );
        let mapped = |write: &Write, status: u16, message: &str| {
            outcome(write, StatusCode::from_u16(status).unwrap(), message.to_owned())
        };
        assert_eq!(mapped(&merge, 409, ""), Outcome::Stale);
        assert!(matches!(mapped(&apply("u"), 409, ""), Outcome::Retry(_)));
        assert_eq!(mapped(&apply(""), 404, ""), Outcome::Gone);
        assert_eq!(
            mapped(&apply(""), 403, "namespace a is being terminated"),
            Outcome::Gone
        );
        assert!(matches!(mapped(&apply(""), 403, "you may not"), Outcome::Retry(_)));
        assert!(matches!(mapped(&apply(""), 422, ""), Outcome::Refused(_)));
        assert!(matches!(mapped(&apply(""), 503, ""), Outcome::Retry(_)));
    }
}
