//! Template functions of Istio's injector, and the methods and fields of Go's types that templates read.

use std::collections::BTreeMap;

use config::parse_duration;
use go_template::{Host, Problem, yaml};
use serde_json::{Map, Value, json};

use crate::chance::{self, Chance};
use crate::{PROXY, data};

type FunctionResult = Result<Value, Problem>;

/// Names of the functions.
const NAMES: &[&str] = &[
    "formatDuration",
    "isset",
    "excludeInboundPort",
    "includeInboundPorts",
    "kubevirtInterfaces",
    "excludeInterfaces",
    "applicationPorts",
    "annotation",
    "valueOrDefault",
    "toJSON",
    "fromJSON",
    "structToJSON",
    "protoToJSON",
    "toYaml",
    "indent",
    "directory",
    "toLower",
    "appendMultusNetwork",
    "env",
    "strdict",
    "toJsonMap",
    "mergeMaps",
    "omitNil",
    "otelResourceAttributes",
    "index",
];
/// Fields of Go's types whose zero value is an empty text.
const TEXTS: &[&str] = &[
    "APIVersion",
    "CaCertificates",
    "ClientCertificate",
    "DNSPolicy",
    "DiscoveryAddress",
    "GenerateName",
    "Hostname",
    "Image",
    "ImagePullPolicy",
    "Kind",
    "Name",
    "Namespace",
    "NodeName",
    "PriorityClassName",
    "PrivateKey",
    "ResourceVersion",
    "RestartPolicy",
    "RootNamespace",
    "SchedulerName",
    "ServiceAccountName",
    "Sni",
    "Subdomain",
    "TrustDomain",
    "UID",
];
/// Fields of Go's types that are lists.
const LISTS: &[&str] = &[
    "Args",
    "Command",
    "Containers",
    "Env",
    "EnvFrom",
    "EphemeralContainers",
    "ExtensionProviders",
    "Finalizers",
    "HostAliases",
    "ImagePullSecrets",
    "InitContainers",
    "OwnerReferences",
    "Ports",
    "ReadinessGates",
    "Tolerations",
    "VolumeMounts",
    "Volumes",
];
/// Fields of Go's types that are numbers or booleans.
const NUMBERS: &[&str] = &["ContainerPort", "HostPort", "ProxyListenPort", "ProxyInboundListenPort", "StatusPort"];
const BOOLEANS: &[&str] = &["HostNetwork", "HostPID", "HostIPC", "TTY", "Stdin"];

/// Whether templates may call a function.
pub(crate) fn is_known(name: &str) -> bool {
    NAMES.contains(&name) || chance::NAMES.contains(&name) || go_template::is_builtin(name)
}

/// The functions of a rendering.
pub(crate) struct Functions<'f> {
    /// The environment of the control plane, for `env`.
    environment: &'f BTreeMap<String, String>,
    chance: Chance,
}

impl<'f> Functions<'f> {
    /// With the environment, the time in seconds since 1970, and a random number.
    pub(crate) fn new(environment: &'f BTreeMap<String, String>, now: i64, seed: u64) -> Functions<'f> {
        Functions { environment, chance: Chance::new(now, seed) }
    }
}

impl Host for Functions<'_> {
    fn call(&self, name: &str, arguments: &[Value]) -> Option<FunctionResult> {
        if !NAMES.contains(&name) {
            return self.chance.call(name, arguments);
        }
        let wrong = || Problem::from(format!("wrong number of arguments: {}", arguments.len()));
        Some(match (name, arguments) {
            ("formatDuration", [duration]) => Ok(duration_text(duration).into()),
            ("isset", [map, key]) => Ok(map.get(text(key)).is_some().into()),
            ("excludeInboundPort", [port, excluded]) => Ok(exclude_port(&shown(port), text(excluded)).into()),
            ("includeInboundPorts", [containers]) => Ok(ports(containers, |_| true).into()),
            ("applicationPorts", [containers]) => Ok(ports(containers, |name| name != PROXY).into()),
            ("kubevirtInterfaces" | "excludeInterfaces", [interfaces]) => Ok(interfaces.clone()),
            ("annotation", [metadata, name, default]) => Ok(match metadata["annotations"].get(text(name)) {
                Some(value) => value.clone(),
                None => shown(default).into(),
            }),
            ("valueOrDefault", [value, default]) => {
                Ok(if value.is_null() || value == "" { default } else { value }.clone())
            }
            ("toJSON" | "structToJSON", [value]) => {
                Ok(if value.is_null() { "{}".into() } else { value.to_string().into() })
            }
            ("protoToJSON", [value]) => Ok(match value {
                Value::Null => "{}".into(),
                value => data::without_defaults(value).to_string().into(),
            }),
            ("fromJSON", [json]) => Ok(serde_json::from_str(text(json)).unwrap_or_else(|_| "{}".into())),
            ("toYaml", [value]) => Ok(yaml::document(value).into()),
            ("indent", [spaces, source]) => Ok(indented(spaces.as_u64().unwrap_or_default(), text(source)).into()),
            ("directory", [path]) => {
                let path = text(path);
                Ok(path.rfind('/').map_or("", |at| &path[..=at]).into())
            }
            ("toLower", [value]) => Ok(text(value).to_lowercase().into()),
            ("appendMultusNetwork", [existing, network]) => Ok(append_network(text(existing), text(network)).into()),
            ("env", [name, default]) => Ok(match self.environment.get(text(name)).filter(|value| !value.is_empty()) {
                Some(value) => value.as_str().into(),
                None => default.clone(),
            }),
            ("strdict", pairs) => {
                let pairs =
                    pairs.chunks(2).map(|pair| (shown(&pair[0]), pair.get(1).map_or("".into(), |v| shown(v).into())));
                Ok(Value::Object(pairs.collect()))
            }
            ("toJsonMap", maps) => merged(maps).map(|map| map.to_string().into()),
            ("mergeMaps", maps) => merged(maps),
            ("omitNil", [value]) => Ok(without_nulls(value)),
            ("otelResourceAttributes", [mesh, annotations, labels, namespace, containers]) => {
                Ok(resource_attributes(mesh, [annotations, labels], text(namespace), containers).into())
            }
            ("index", [value, key]) if value.is_object() || value.is_null() => Ok(entry(value, text(key))),
            ("index", _) => return None,
            _ => Err(wrong()),
        })
    }

    fn method(&self, receiver: &Value, name: &str, arguments: &[Value]) -> Option<FunctionResult> {
        if !arguments.is_empty() {
            return None;
        }
        let is_scalar = !receiver.is_object() && !receiver.is_array();
        match name {
            "String" if is_scalar => return Some(Ok(if receiver.is_null() { "" } else { text(receiver) }.into())),
            // Optional scalars are messages in Go.
            "Value" | "GetValue" if is_scalar => return Some(Ok(receiver.clone())),
            _ => {}
        }
        if !name.starts_with(|c: char| c.is_ascii_uppercase()) {
            return None;
        }
        // Getters of Go's messages accept missing messages.
        let getter = name.strip_prefix("Get").filter(|rest| rest.starts_with(|c: char| c.is_ascii_uppercase()));
        match (receiver, getter) {
            (Value::Null, Some(field)) => Some(Ok(zero(field))),
            (Value::Object(fields), getter) => {
                let name = getter.unwrap_or(name);
                let found = fields.get(name).or_else(|| fields.get(&json_name(name)));
                Some(Ok(found.cloned().unwrap_or_else(|| zero(name))))
            }
            _ => None,
        }
    }

    fn missing(&self) -> &'static str {
        "<no value>"
    }
}

fn text(value: &Value) -> &str {
    value.as_str().unwrap_or_default()
}

/// The text of a value as Go prints it.
fn shown(value: &Value) -> String {
    match value {
        Value::Null => "<nil>".to_owned(),
        Value::String(text) => text.clone(),
        other => other.to_string(),
    }
}

/// The name in JSON of a field in Go: `ServiceAccountName` is `serviceAccountName`, `HTTPGet` is `httpGet`.
fn json_name(name: &str) -> String {
    let uppercase = name.chars().take_while(char::is_ascii_uppercase).count();
    // The last capital letter of several begins the next word.
    let lowered = match uppercase {
        0 | 1 => uppercase,
        all if all == name.len() => all,
        several => several - 1,
    };
    format!("{}{}", name[..lowered].to_ascii_lowercase(), &name[lowered..])
}

/// The value of a field that is not set.
fn zero(name: &str) -> Value {
    match name {
        name if TEXTS.contains(&name) => "".into(),
        name if LISTS.contains(&name) => json!([]),
        name if NUMBERS.contains(&name) => 0.into(),
        name if BOOLEANS.contains(&name) => false.into(),
        _ => Value::Null,
    }
}

/// An entry of a map. A map of texts has an empty text for a key that it does not have.
fn entry(map: &Value, key: &str) -> Value {
    let fields = map.as_object();
    match fields.and_then(|fields| fields.get(key)) {
        Some(value) => value.clone(),
        None if fields.is_some_and(|fields| fields.values().all(Value::is_string)) => "".into(),
        None => Value::Null,
    }
}

/// `90s` as Go writes it: `1m30s`.
fn duration_text(duration: &Value) -> String {
    let Some(nanoseconds) = duration.as_str().and_then(parse_duration).map(|found| found.as_nanos()) else {
        return "0s".to_owned();
    };
    let (seconds, rest) = (nanoseconds / 1_000_000_000, nanoseconds % 1_000_000_000);
    if seconds == 0 && rest > 0 {
        let (unit, name) = match rest {
            rest if rest < 1_000 => (1, "ns"),
            rest if rest < 1_000_000 => (1_000, "µs"),
            _ => (1_000_000, "ms"),
        };
        return format!("{}{}{name}", rest / unit, fraction(rest % unit, unit));
    }
    let (hours, minutes) = (seconds / 3600, seconds / 60 % 60);
    let last = format!("{}{}s", seconds % 60, fraction(rest, 1_000_000_000));
    match (hours, minutes) {
        (0, 0) => last,
        (0, minutes) => format!("{minutes}m{last}"),
        (hours, minutes) => format!("{hours}h{minutes}m{last}"),
    }
}

fn fraction(rest: u128, unit: u128) -> String {
    if rest == 0 {
        return String::new();
    }
    let digits = unit.ilog10() as usize;
    format!(".{}", format!("{rest:0digits$}").trim_end_matches('0'))
}

/// Adds a port to a list, unless it is there.
fn exclude_port(port: &str, excluded: &str) -> String {
    let port = port.trim();
    if matches!(port, "" | "0") || excluded.split(',').any(|one| one == port) {
        return excluded.to_owned();
    }
    let known = excluded.split(',').map(str::trim).filter(|one| !one.is_empty());
    known.chain([port]).collect::<Vec<_>>().join(",")
}

/// The TCP ports of containers.
fn ports(containers: &Value, included: impl Fn(&str) -> bool) -> String {
    let containers = containers.as_array().into_iter().flatten();
    let ports = containers
        .filter(|container| included(text(&container["name"])))
        .flat_map(|container| container["ports"].as_array().into_iter().flatten())
        .filter(|port| !matches!(text(&port["protocol"]), "UDP" | "SCTP"))
        .map(|port| shown(&port["containerPort"]));
    ports.collect::<Vec<_>>().join(",")
}

/// Indents all lines but the first.
fn indented(spaces: u64, source: &str) -> String {
    let spaces = " ".repeat(usize::try_from(spaces).unwrap_or_default().min(256));
    source.replace('\n', &format!("\n{spaces}"))
}

/// Adds a network to the annotation of Multus, which is a list of names or JSON.
fn append_network(existing: &str, network: &str) -> String {
    if existing.is_empty() {
        return network.to_owned();
    }
    let Some(end) = existing.rfind(']') else {
        return match existing.split(',').any(|one| one.trim() == network) {
            true => existing.to_owned(),
            false => format!("{existing}, {network}"),
        };
    };
    let Ok(networks) = serde_json::from_str::<Vec<Map<String, Value>>>(existing) else {
        return existing.to_owned();
    };
    let (namespace, name) = network.split_once('/').unwrap_or(("", network));
    let same = |one: &Map<String, Value>| {
        one.get("name").is_some_and(|known| known == name) && one.get("namespace").map_or("", text) == namespace
    };
    if networks.iter().any(same) {
        return existing.to_owned();
    }
    let item = match namespace {
        "" => json!({"name": name}),
        namespace => json!({"name": name, "namespace": namespace}),
    };
    let separator = if networks.is_empty() { "" } else { ", " };
    format!("{}{separator}{item}{}", &existing[..end], &existing[end..])
}

/// The entries of all maps; those of later ones replace earlier ones.
fn merged(maps: &[Value]) -> FunctionResult {
    let mut all = Map::new();
    for map in maps {
        match map {
            Value::Object(fields) => all.extend(fields.clone()),
            Value::Null => {}
            _ => return Err("expected maps".into()),
        }
    }
    Ok(Value::Object(all))
}

/// The value without nulls, and without the maps and lists that this makes empty.
fn without_nulls(value: &Value) -> Value {
    let had = |kept: usize, before: usize| kept > 0 || kept == before;
    match value {
        Value::Object(fields) => {
            let kept: Map<String, Value> = fields
                .iter()
                .map(|(name, value)| (name.clone(), without_nulls(value)))
                .filter(|(_, value)| !value.is_null())
                .collect();
            if had(kept.len(), fields.len()) { Value::Object(kept) } else { Value::Null }
        }
        Value::Array(items) => {
            let kept: Vec<Value> = items.iter().map(without_nulls).filter(|value| !value.is_null()).collect();
            if had(kept.len(), items.len()) { Value::Array(kept) } else { Value::Null }
        }
        other => other.clone(),
    }
}

/// `OTEL_RESOURCE_ATTRIBUTES`, if a provider asks for attributes by the conventions of OpenTelemetry.
fn resource_attributes(
    mesh: &Value,
    [annotations, labels]: [&Value; 2],
    namespace: &str,
    containers: &Value,
) -> String {
    let providers = mesh["extensionProviders"].as_array().into_iter().flatten();
    let asks =
        |provider: &Value| provider["opentelemetry"]["serviceAttributeEnrichment"] == "OTEL_SEMANTIC_CONVENTIONS";
    if !providers.into_iter().any(asks) {
        return String::new();
    }
    let filled = |map: &Value, name: &str| {
        map.get(name).and_then(Value::as_str).filter(|text| !text.is_empty()).map(str::to_owned)
    };
    let own = |attribute: &str| filled(annotations, &format!("resource.opentelemetry.io/{attribute}"));
    let containers = containers.as_array().map(Vec::as_slice).unwrap_or_default();
    let image = || match containers {
        [one] => version_of_image(text(&one["image"])),
        _ => None,
    };
    let instance = || Some(format!("{namespace}.$(POD_NAME).{}", text(&containers.first()?["name"])));
    let version = own("service.version").or_else(|| filled(labels, "app.kubernetes.io/version")).or_else(image);
    let attributes = [
        (
            "service.namespace",
            own("service.namespace").or_else(|| Some(namespace.to_owned()).filter(|n| !n.is_empty())),
        ),
        ("service.version", version),
        ("service.instance.id", own("service.instance.id").or_else(instance)),
    ];
    let attributes = attributes.into_iter().filter_map(|(name, value)| Some(format!("{name}={}", value?)));
    attributes.collect::<Vec<_>>().join(",")
}

/// The tag and the digest of an image.
fn version_of_image(image: &str) -> Option<String> {
    let (name, digest) = match image.split_once('@') {
        Some((name, digest)) => (name, Some(digest)),
        None => (image, None),
    };
    // A colon before the last slash belongs to the port of the registry.
    let tag = name.rsplit('/').next().and_then(|last| last.split_once(':')).map(|(_, tag)| tag);
    match (tag.filter(|tag| !tag.is_empty()), digest) {
        (Some(tag), Some(digest)) => Some(format!("{tag}@{digest}")),
        (None, Some(digest)) => Some(digest.to_owned()),
        (Some(tag), None) => Some(tag.to_owned()),
        (None, None) => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_go_and_json() {
        for (go, json) in [
            ("ServiceAccountName", "serviceAccountName"),
            ("HTTPGet", "httpGet"),
            ("DNSPolicy", "dnsPolicy"),
            ("APIVersion", "apiVersion"),
            ("UID", "uid"),
            ("HostIPC", "hostIPC"),
            ("TTY", "tty"),
            ("Name", "name"),
        ] {
            assert_eq!(json_name(go), json);
        }
    }

    #[test]
    fn durations_in_the_form_of_go() {
        for (text, expected) in
            [("45s", "45s"), ("90s", "1m30s"), ("3600s", "1h0m0s"), ("0.5s", "500ms"), ("1.5s", "1.5s"), ("0s", "0s")]
        {
            assert_eq!(duration_text(&text.into()), expected);
        }
        assert_eq!(duration_text(&Value::Null), "0s");
    }

    #[test]
    fn networks_of_multus() {
        assert_eq!(append_network("", "default/istio-cni"), "default/istio-cni");
        assert_eq!(append_network("a, default/istio-cni", "default/istio-cni"), "a, default/istio-cni");
        assert_eq!(append_network("a", "default/istio-cni"), "a, default/istio-cni");
        let json = append_network(r#"[{"name":"a"}]"#, "default/istio-cni");
        assert_eq!(json, r#"[{"name":"a"}, {"name":"istio-cni","namespace":"default"}]"#);
        assert_eq!(append_network(&json, "default/istio-cni"), json);
        assert_eq!(append_network("[broken]", "x"), "[broken]");
    }

    #[test]
    fn nulls_and_what_they_leave_empty_are_omitted() {
        let value = json!({"limits": {"cpu": null}, "requests": {"cpu": "1", "memory": null}, "claims": []});
        assert_eq!(without_nulls(&value), json!({"requests": {"cpu": "1"}, "claims": []}));
    }

    #[test]
    fn versions_of_images() {
        for (image, expected) in [
            ("nginx:1.21", Some("1.21")),
            ("localhost:5000/nginx", None),
            ("localhost:5000/nginx:2@sha256:ab", Some("2@sha256:ab")),
            ("nginx@sha256:ab", Some("sha256:ab")),
        ] {
            assert_eq!(version_of_image(image).as_deref(), expected, "{image}");
        }
    }
}
