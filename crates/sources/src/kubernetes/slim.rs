//! The fields of objects that are parsed.
//!
//! Most of a Kubernetes object is irrelevant to a mesh: managed fields, the last applied configuration, containers with
//! their environment and volumes. These fields are skipped while parsing, so they cost neither memory nor time. For
//! core kinds the kept fields follow from the declared types ([`Kind::content_schema`]): a field added to a type is
//! parsed automatically.

#[cfg(test)]
mod tests;

use std::fmt;

use config::Kind;
use config::schema::{Schema, Shape};
use serde::de::{DeserializeSeed, Deserializer, Error, IgnoredAny, MapAccess, SeqAccess, Visitor};
use serde_json::{Map, Number, Value};

/// The parts of a value to keep.
#[derive(Clone, Debug)]
pub(crate) enum Keep {
    /// Everything.
    All,
    /// Nothing.
    Nothing,
    /// Only these fields of an object.
    Only(Vec<(Box<str>, Keep)>),
    /// All fields of an object, with restrictions for these.
    Except(Vec<(Box<str>, Keep)>),
    /// All items of a list, each restricted.
    Each(Box<Keep>),
    /// The entries of a map with matching keys.
    Keys(fn(&str) -> bool),
}

/// Declared fields that are not needed for cluster workloads.
const UNUSED: [(Kind, &[&str]); 2] = [
    (
        Kind::Pod,
        &["containers.image", "initContainers.image", "status.containerStatuses", "status.hostIP", "status.startTime"],
    ),
    (Kind::EndpointSlice, &["endpoints.targetRef.uid"]),
];

impl Keep {
    /// The kept parts of a kind's objects.
    pub(crate) fn of(kind: Kind) -> Keep {
        if kind.is_complete() {
            return Keep::Except(vec![field("metadata", metadata(kind))]);
        }
        let content = of_schema(kind, &kind.content_schema(), "");
        let Keep::Only(fields) = content else { return Keep::All };
        let (status, spec): (Vec<_>, Vec<_>) = fields.into_iter().partition(|(name, _)| match kind {
            Kind::Node => &**name == "addresses",
            Kind::Namespace => true,
            _ => &**name == "status",
        });
        let status = match kind {
            Kind::Node | Kind::Namespace => Keep::Only(status),
            _ => status.into_iter().next().map_or(Keep::Nothing, |(_, keep)| keep),
        };
        let mut whole = vec![field("metadata", metadata(kind))];
        match kind {
            Kind::EndpointSlice | Kind::Secret | Kind::ConfigMap => whole.extend(spec),
            _ => whole.extend([field("spec", Keep::Only(spec)), field("status", status)]),
        }
        Keep::Only(whole)
    }

    /// The kept parts of an object with these top-level fields, and the usual metadata.
    pub(crate) fn only(fields: &[&str]) -> Keep {
        let mut whole: Vec<(Box<str>, Keep)> = fields.iter().map(|name| field(name, Keep::All)).collect();
        whole.push(unmanaged_metadata());
        Keep::Only(whole)
    }

    /// Everything but the managed fields.
    pub(crate) fn unmanaged() -> Keep {
        Keep::Except(vec![unmanaged_metadata()])
    }

    /// The kept parts of a CustomResourceDefinition: without the schemas, which are most of it.
    pub(crate) fn definition() -> Keep {
        let all = |names: &[&str]| Keep::Only(names.iter().map(|name| field(name, Keep::All)).collect());
        let spec = vec![
            field("group", Keep::All),
            field("names", all(&["plural"])),
            field("versions", Keep::Each(Box::new(all(&["name", "served"])))),
        ];
        Keep::Only(vec![
            field("metadata", all(&["name", "resourceVersion"])),
            field("spec", Keep::Only(spec)),
            field("status", all(&["conditions"])),
        ])
    }

    /// The kept parts of a field; `None` to skip it.
    pub(crate) fn field(&self, name: &str) -> Option<&Keep> {
        let of = |fields: &'_ [(Box<str>, Keep)]| fields.iter().position(|(field, _)| **field == *name);
        let kept = match self {
            Keep::All | Keep::Each(_) => &Keep::All,
            Keep::Nothing => return None,
            Keep::Only(fields) => &fields[of(fields)?].1,
            Keep::Except(fields) => of(fields).map_or(&Keep::All, |at| &fields[at].1),
            Keep::Keys(wanted) => return wanted(name).then_some(&Keep::All),
        };
        (!matches!(kept, Keep::Nothing)).then_some(kept)
    }

    fn item(&self) -> &Keep {
        match self {
            Keep::Each(item) => item,
            _ => &Keep::All,
        }
    }
}

fn unmanaged_metadata() -> (Box<str>, Keep) {
    field("metadata", Keep::Except(vec![field("managedFields", Keep::Nothing)]))
}

fn field(name: &str, keep: Keep) -> (Box<str>, Keep) {
    (name.into(), keep)
}

fn metadata(kind: Kind) -> Keep {
    if kind.is_complete() {
        return Keep::Except(vec![
            field("managedFields", Keep::Nothing),
            field("selfLink", Keep::Nothing),
            field("annotations", Keep::Keys(is_written)),
        ]);
    }
    let owner = Keep::Only(["kind", "name", "controller"].map(|name| field(name, Keep::All)).into());
    let mut fields =
        vec![field("ownerReferences", Keep::Each(Box::new(owner))), field("annotations", Keep::Keys(is_of_the_mesh))];
    let plain =
        ["name", "namespace", "labels", "creationTimestamp", "deletionTimestamp", "generateName", "resourceVersion"];
    fields.extend(plain.map(|name| field(name, Keep::All)));
    // Other core kinds are numerous, and their identity is not used. That of a pod proves that a token belongs to it.
    if kind == Kind::Pod {
        fields.push(field("uid", Keep::All));
    }
    if matches!(kind, Kind::Service | Kind::Namespace) {
        fields.extend(["uid", "generation"].map(|name| field(name, Keep::All)));
    }
    Keep::Only(fields)
}

/// Whether an annotation is the user's, not a copy of the object.
fn is_written(key: &str) -> bool {
    key != "kubectl.kubernetes.io/last-applied-configuration"
}

/// Whether an annotation of a core kind is relevant: Istio's, the Gateway API's, or one of Kubernetes' own traffic
/// annotations. Other tools store long values in annotations.
fn is_of_the_mesh(key: &str) -> bool {
    let domain = key.split_once('/').map_or("", |(domain, _)| domain);
    let of = |suffix: &str| domain == suffix || domain.strip_suffix(suffix).is_some_and(|rest| rest.ends_with('.'));
    match key {
        // The result of injection, which is long.
        "sidecar.istio.io/status" => false,
        config::core::ingress::CLASS_ANNOTATION => true,
        _ => {
            ["istio.io", "gateway.networking.k8s.io", "multicluster.x-k8s.io"].iter().any(|suffix| of(suffix))
                || matches!(
                    domain,
                    "service.kubernetes.io"
                        | "endpoints.kubernetes.io"
                        | "networking.k8s.io"
                        | "ingressclass.kubernetes.io"
                )
        }
    }
}

fn of_schema(kind: Kind, schema: &Schema, path: &str) -> Keep {
    let unused = || UNUSED.iter().filter(|(of, _)| *of == kind).flat_map(|(_, paths)| *paths);
    match &schema.shape {
        Shape::Object(fields) => {
            let kept = fields.fields.iter().filter_map(|(name, schema)| {
                let path = if path.is_empty() { (*name).to_owned() } else { format!("{path}.{name}") };
                let wanted = !unused().any(|unused| **unused == *path);
                wanted.then(|| field(name, of_schema(kind, schema, &path)))
            });
            Keep::Only(kept.collect())
        }
        Shape::List(items, ..) => match of_schema(kind, items, path) {
            Keep::All => Keep::All,
            item => Keep::Each(Box::new(item)),
        },
        _ => Keep::All,
    }
}

/// Parses the kept parts.
impl<'de> DeserializeSeed<'de> for &Keep {
    type Value = Value;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Value, D::Error> {
        deserializer.deserialize_any(Parse(self))
    }
}

struct Parse<'k>(&'k Keep);

impl<'de> Visitor<'de> for Parse<'_> {
    type Value = Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a JSON value")
    }

    fn visit_unit<E: Error>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_none<E: Error>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_bool<E: Error>(self, value: bool) -> Result<Value, E> {
        Ok(Value::Bool(value))
    }

    fn visit_i64<E: Error>(self, value: i64) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_u64<E: Error>(self, value: u64) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_f64<E: Error>(self, value: f64) -> Result<Value, E> {
        Ok(Number::from_f64(value).map_or(Value::Null, Value::Number))
    }

    fn visit_str<E: Error>(self, value: &str) -> Result<Value, E> {
        Ok(Value::String(value.to_owned()))
    }

    fn visit_string<E: Error>(self, value: String) -> Result<Value, E> {
        Ok(Value::String(value))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Value, A::Error> {
        let mut items = Vec::new();
        while let Some(item) = list.next_element_seed(self.0.item())? {
            items.push(item);
        }
        Ok(Value::Array(items))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Value, A::Error> {
        let mut fields = Map::new();
        while let Some(name) = map.next_key::<String>()? {
            match self.0.field(&name) {
                Some(keep) => drop(fields.insert(name, map.next_value_seed(keep)?)),
                None => drop(map.next_value::<IgnoredAny>()?),
            }
        }
        Ok(Value::Object(fields))
    }
}
