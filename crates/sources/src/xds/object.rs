//! Decodes one resource into an object.

use config::{
    AnyObject, Diagnostic, FieldPath, Kind, MeshConfig, Object, ObjectKey, ParseOptions, Severity, Timestamp,
};
use protos::istio::mcp::v1alpha1::{Metadata, Resource};
use protos::{Any, DecodeError, JsonError};
use serde_json::{Map, Value, json};

/// A message of any shape.
const STRUCT: &str = "type.googleapis.com/google.protobuf.Struct";

/// A decoded resource: an object, or its diagnostics.
pub(super) struct Read {
    pub(super) key: ObjectKey,
    pub(super) object: Option<AnyObject>,
    pub(super) diagnostics: Vec<Diagnostic>,
}

/// A resource that does not have the form of its type. The message is sent to the other side.
#[derive(Debug, thiserror::Error)]
pub(super) enum Malformed {
    #[error(transparent)]
    Resource(#[from] DecodeError),
    #[error("{0} is not istio.mcp.v1alpha1.Resource")]
    OtherMessage(String),
    #[error("it has no metadata")]
    NoMetadata,
    #[error("the name {0:?} is not NAMESPACE/NAME")]
    Name(String),
    #[error("the name {name:?} is not that of a {kind}")]
    NameOfKind { name: String, kind: Kind },
    #[error("{name}: {reason}")]
    Spec { name: String, reason: MalformedSpec },
    #[error(transparent)]
    MeshConfig(#[from] MalformedSpec),
}

/// A body that is not the spec of its kind.
#[derive(Debug, thiserror::Error)]
pub(super) enum MalformedSpec {
    #[error("a body of the type {type_url:?} is no spec of a {kind}")]
    Type { type_url: String, kind: Kind },
    #[error(transparent)]
    Body(#[from] JsonError),
}

pub(super) fn type_url(kind: Kind) -> String {
    let group = match kind {
        // MeshConfig is not a kind of an API server. Its type URL has the core group.
        Kind::MeshConfig => "core",
        kind if kind.group().is_empty() => "core",
        kind => kind.group(),
    };
    format!("{group}/{}/{}", kind.versions()[0], kind.name())
}

/// Decodes a resource of a kind.
///
/// # Errors
/// The content does not match its type.
pub(super) fn read(kind: Kind, packed: &Any, options: &ParseOptions) -> Result<Read, Malformed> {
    if kind == Kind::MeshConfig {
        return mesh_config(packed, options);
    }
    let resource = packed.decode_as::<Resource>().ok_or_else(|| Malformed::OtherMessage(packed.type_url.clone()))??;
    let meta = resource.metadata.ok_or(Malformed::NoMetadata)?;
    let Some((namespace, name)) = meta.name.split_once('/') else {
        return Err(Malformed::Name(meta.name));
    };
    if name.is_empty() || name.contains('/') || namespace.is_empty() == kind.is_namespaced() {
        return Err(Malformed::NameOfKind { name: meta.name, kind });
    }
    let key = ObjectKey::new(kind, namespace, name);
    let spec = match resource.body {
        Some(body) => spec(kind, &body).map_err(|reason| Malformed::Spec { name: meta.name.clone(), reason })?,
        None => json!({}),
    };
    let read = config::read_object(&document(kind, namespace, name, &meta, spec), options);
    Ok(Read { key, object: read.object, diagnostics: read.diagnostics })
}

fn document(kind: Kind, namespace: &str, name: &str, meta: &Metadata, spec: Value) -> Value {
    let mut metadata = Map::new();
    metadata.insert("name".into(), name.into());
    if !namespace.is_empty() {
        metadata.insert("namespace".into(), namespace.into());
    }
    if !meta.version.is_empty() {
        metadata.insert("resourceVersion".into(), meta.version.as_str().into());
    }
    if let Some(time) = &meta.create_time {
        metadata.insert("creationTimestamp".into(), Timestamp::from_unix(time.seconds).to_string().into());
    }
    for (field, entries) in [("labels", &meta.labels), ("annotations", &meta.annotations)] {
        if !entries.is_empty() {
            metadata.insert(field.into(), json!(entries));
        }
    }
    json!({"apiVersion": kind.api_version(), "kind": kind.name(), "metadata": metadata, "spec": spec})
}

/// The JSON of a body: Istio's message of the kind, or a Struct.
fn spec(kind: Kind, body: &Any) -> Result<Value, MalformedSpec> {
    let name = body.type_url.rsplit(['/', '.']).next().unwrap_or_default();
    if body.type_url != STRUCT && (name != kind.name() || !body.type_url.starts_with("type.googleapis.com/istio.")) {
        return Err(MalformedSpec::Type { type_url: body.type_url.clone(), kind });
    }
    let mut spec = protos::plain_json(&body.type_url, &body.value)?;
    whole_numbers(&mut spec);
    Ok(spec)
}

/// Converts numbers without a fraction to integers, because a Struct only has floating-point numbers. Protobuf limits
/// the depth.
fn whole_numbers(value: &mut Value) {
    match value {
        Value::Array(items) => items.iter_mut().for_each(whole_numbers),
        Value::Object(fields) => fields.values_mut().for_each(whole_numbers),
        Value::Number(number) => {
            let float = number.as_f64().filter(|float| number.is_f64() && float.fract() == 0.0 && float.abs() < 9e15);
            if let Some(float) = float {
                *value = (float as i64).into();
            }
        }
        _ => {}
    }
}

fn mesh_config(packed: &Any, options: &ParseOptions) -> Result<Read, Malformed> {
    // Istio sends the message itself; wrapped in a resource it is accepted, too.
    let config = match packed.decode_as::<Resource>() {
        Some(resource) => spec(Kind::MeshConfig, &resource?.body.unwrap_or_default())?,
        None => spec(Kind::MeshConfig, packed)?,
    };
    let (config, diagnostics) = config::parse_mesh_config(config.to_string().as_bytes(), "MeshConfig", options);
    Ok(Read {
        key: MeshConfig::key(),
        object: config.map(|config| Object::new("", MeshConfig::NAME, config).into()),
        diagnostics,
    })
}

/// A diagnostic for a rejected response.
pub(super) fn refused(file: &str, message: String) -> Diagnostic {
    Diagnostic {
        file: Some(file.into()),
        line: 0,
        column: 0,
        object: None,
        path: FieldPath::root(),
        severity: Severity::Error,
        code: "unreadable-answer",
        message,
        hint: Some("the previous objects stay in effect; the reason was sent to the other control plane".into()),
    }
}
