//! Patches from YAML, messages from JSON, and random messages.

use config::istio::EnvoyFilter;
use config::{AnyObject, ParseOptions};
use envoy_filter::{CompiledFilter, CompiledPatch};
use model::service::ObjectId;
use protos::dynamic::{
    DynamicMessage, FieldDescriptor, Kind, MapKey, MessageDescriptor, ReflectMessage, Value, descriptor, pack,
    read_json,
};
use serde_json::Value as Json;

/// An EnvoyFilter with these patches (YAML in flow style), which must be valid.
pub(crate) fn filter(patches: &str) -> EnvoyFilter {
    let text = format!(
        "{{apiVersion: networking.istio.io/v1alpha3, kind: EnvoyFilter, metadata: {{name: a}}, spec: {{configPatches: [{patches}]}}}}"
    );
    let parsed = config::parse_documents(text.as_bytes(), "f", &ParseOptions::default());
    match parsed.objects.into_iter().next() {
        Some(AnyObject::EnvoyFilter(object)) => object.spec.clone(),
        _ => panic!("{:#?}", parsed.diagnostics),
    }
}

/// A name for an EnvoyFilter.
pub(crate) fn filter_id() -> ObjectId {
    ObjectId { namespace: "shop".into(), name: "a".into() }
}

pub(crate) fn compiled(patches: &str) -> Vec<CompiledPatch> {
    CompiledFilter::of(&filter_id(), &filter(patches)).patches.into_iter().flatten().collect()
}

pub(crate) fn message(name: &str, value: &Json) -> DynamicMessage {
    let (message, problems) = read_json(&descriptor(name).unwrap(), value);
    assert_eq!(problems, []);
    message
}

pub(crate) fn json(message: &DynamicMessage) -> Json {
    let url = format!("t/{}", message.descriptor().full_name());
    protos::json(&url, &protos::dynamic::encode_dynamic(message)).unwrap()
}

/// Reproducible random numbers (xorshift).
pub(crate) struct Random(pub(crate) u64);

impl Random {
    pub(crate) fn below(&mut self, end: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 % end as u64) as usize
    }

    pub(crate) fn one<'a>(&mut self, of: &[&'a str]) -> &'a str {
        of[self.below(of.len())]
    }

    /// A random message of this type, valid or not, nested up to `depth`.
    pub(crate) fn message(&mut self, of: &MessageDescriptor, depth: usize) -> DynamicMessage {
        let mut message = DynamicMessage::new(of.clone());
        if of.full_name() == "google.protobuf.Any" {
            let inner = self.one(&PACKED);
            let inner = self.message(&descriptor(inner).unwrap(), depth.saturating_sub(1));
            message.transcode_from(&pack(&inner)).unwrap();
            return message;
        }
        for field in of.fields() {
            let wanted = WANTED.contains(&field.name());
            let chance = if wanted { 1 } else { 12 };
            if self.below(chance) == 0 && (depth > 0 || !matches!(field.kind(), Kind::Message(_))) {
                let value = self.field(&field, depth);
                message.set_field(&field, value);
            }
        }
        message
    }

    fn field(&mut self, field: &FieldDescriptor, depth: usize) -> Value {
        let count = self.below(3);
        if field.is_map() {
            let Kind::Message(entry) = field.kind() else { unreachable!() };
            let entries = (0..count).filter_map(|_| {
                let key: Option<MapKey> = self.value(&entry.map_entry_key_field(), depth).into_map_key();
                Some((key?, self.value(&entry.map_entry_value_field(), depth)))
            });
            return Value::Map(entries.collect());
        }
        if field.is_list() {
            return Value::List((0..count).map(|_| self.value(field, depth)).collect());
        }
        self.value(field, depth)
    }

    fn value(&mut self, field: &FieldDescriptor, depth: usize) -> Value {
        match field.kind() {
            Kind::Message(of) => Value::Message(self.message(&of, depth.saturating_sub(1))),
            Kind::String if field.name() == "name" => Value::String(self.one(&NAMES).to_owned()),
            Kind::String => Value::String(self.one(&["", "a", "b", "a.example.com", "/x", "10.0.0.1", "*"]).to_owned()),
            Kind::Enum(of) => Value::EnumNumber(self.below(of.values().len() + 1) as i32),
            Kind::Bool => Value::Bool(self.below(2) == 0),
            kind => match Value::default_value(&kind) {
                Value::U32(_) => Value::U32(self.below(200) as u32),
                Value::I32(_) => Value::I32(self.below(200) as i32 - 5),
                Value::U64(_) => Value::U64(self.below(200) as u64),
                Value::I64(_) => Value::I64(self.below(200) as i64 - 5),
                other => other,
            },
        }
    }
}

/// Names that messages have and patches match.
pub(crate) const NAMES: [&str; 7] = [
    "a",
    "b",
    "virtualInbound",
    "outbound|80||a.example.com",
    "envoy.filters.network.http_connection_manager",
    "envoy.filters.http.router",
    "inbound|80||",
];

/// Fields that are always set, because patches look into them.
const WANTED: [&str; 9] = [
    "name",
    "filter_chains",
    "filters",
    "http_filters",
    "typed_config",
    "virtual_hosts",
    "routes",
    "domains",
    "route_config",
];

const PACKED: [&str; 5] = [
    "envoy.extensions.filters.network.http_connection_manager.v3.HttpConnectionManager",
    "envoy.extensions.filters.network.tcp_proxy.v3.TcpProxy",
    "envoy.extensions.filters.http.router.v3.Router",
    "envoy.extensions.filters.http.fault.v3.HTTPFault",
    "google.protobuf.Struct",
];
