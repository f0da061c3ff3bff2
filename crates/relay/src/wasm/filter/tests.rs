use std::time::Duration;

use proptest::prelude::{prop, proptest};
use serde_json::json;

use super::*;

/// The fields of the other messages that the views do not have.
#[derive(Clone, PartialEq, prost::Message)]
struct FullVm {
    #[prost(string, tag = "1")]
    vm_id: String,
    #[prost(message, optional, tag = "3")]
    code: Option<AsyncDataSource>,
    #[prost(message, optional, tag = "4")]
    configuration: Option<Any>,
    #[prost(message, optional, tag = "7")]
    environment: Option<EnvironmentView>,
}

#[derive(Clone, PartialEq, prost::Message)]
struct FullPlugin {
    #[prost(string, tag = "1")]
    name: String,
    #[prost(message, optional, tag = "3")]
    vm: Option<FullVm>,
    #[prost(message, optional, tag = "4")]
    configuration: Option<Any>,
    #[prost(bool, tag = "5")]
    fail_open: bool,
    #[prost(int32, tag = "7")]
    failure_policy: i32,
}

#[derive(Clone, PartialEq, prost::Message)]
struct FullWasm {
    #[prost(message, optional, tag = "1")]
    config: Option<FullPlugin>,
}

fn remote(sha256: &str) -> AsyncDataSource {
    let uri = HttpUri {
        uri: "oci://r.io/a:latest".to_owned(),
        timeout: Some(protos::Duration { seconds: 30, nanos: 0 }),
        ..HttpUri::default()
    };
    let remote = RemoteDataSource { http_uri: Some(uri), sha256: sha256.to_owned(), ..RemoteDataSource::default() };
    AsyncDataSource { specifier: Some(Specifier::Remote(remote)) }
}

fn filter(
    type_url: &str,
    variables: &[(&str, &str)],
    (fail_open, failure_policy): (bool, i32),
) -> (TypedExtensionConfig, FullWasm) {
    let key_values = variables.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
    let vm = FullVm {
        vm_id: "v".to_owned(),
        code: Some(remote("nil")),
        configuration: Some(Any::default()),
        environment: Some(EnvironmentView { key_values, host_env_keys: vec![] }),
    };
    let plugin = FullPlugin {
        name: "p".to_owned(),
        vm: Some(vm),
        configuration: Some(Any::default()),
        fail_open,
        failure_policy,
    };
    let filter = FullWasm { config: Some(plugin) };
    let typed = Any { type_url: type_url.to_owned(), value: protos::encode(&filter) };
    (TypedExtensionConfig { name: "e".to_owned(), typed_config: Some(typed) }, filter)
}

fn fields(value: &serde_json::Value) -> Option<Struct> {
    let convert = |value: &serde_json::Value| Value {
        kind: match value {
            serde_json::Value::String(text) => Some(Kind::StringValue(text.clone())),
            serde_json::Value::Bool(value) => Some(Kind::BoolValue(*value)),
            other => fields(other).map(Kind::StructValue),
        },
    };
    let fields = value.as_object()?.iter().map(|(name, value)| (name.clone(), convert(value)));
    Some(Struct { fields: fields.collect() })
}

/// The same filter in JSON, with these spellings of names.
fn structure(vm: &str, http_uri: &str, variables: &str) -> TypedExtensionConfig {
    let value = json!({"config": {"name": "p", "failOpen": true, vm: {
        "code": {"remote": {http_uri: {"uri": "https://a/b", "timeout": "1.5s"}, "sha256": "s"}},
        variables: {"key_values": {"A": "b", PULL_POLICY: "Always"}},
    }}});
    let structure = TypedStruct { type_url: HTTP.to_owned(), value: fields(&value) };
    TypedExtensionConfig { name: "e".to_owned(), typed_config: Some(any(&structure)) }
}

#[test]
fn only_the_code_and_the_variables_for_the_agent_are_replaced() {
    for (variables, left) in [
        (&[(PULL_SECRET, "s"), (RESOURCE_VERSION, "7"), ("A", "b")][..], &[("A", "b")][..]),
        (&[(PULL_SECRET, "s"), (RESOURCE_VERSION, "7"), ("ISTIO_META_X", "y")], &[]),
    ] {
        let (config, mut expected) = filter(HTTP, variables, (false, 0));
        let read = Filter::read(&config).unwrap().unwrap();
        assert_eq!(
            (read.uri.as_deref(), &*read.sha256, read.timeout),
            (Some("oci://r.io/a:latest"), "", Duration::from_secs(30))
        );
        assert_eq!((read.pull_secret.as_deref(), &*read.resource_version), (Some("s"), "7"));
        let written = read.with_file(config, "/file").unwrap().typed_config.unwrap();
        let vm = expected.config.as_mut().unwrap().vm.as_mut().unwrap();
        let local =
            DataSource { specifier: Some(data_source::Specifier::Filename("/file".to_owned())), ..Default::default() };
        vm.code = Some(AsyncDataSource { specifier: Some(Specifier::Local(local)) });
        let key_values: BTreeMap<_, _> =
            left.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
        vm.environment = (!key_values.is_empty()).then_some(EnvironmentView { key_values, host_env_keys: vec![] });
        assert_eq!(FullWasm::decode(written.value).unwrap(), expected);
    }
}

#[test]
fn structures_are_read_and_changed() {
    for (vm, uri, variables) in
        [("vm_config", "http_uri", "environment_variables"), ("vmConfig", "httpUri", "environmentVariables")]
    {
        let config = structure(vm, uri, variables);
        let read = Filter::read(&config).unwrap().unwrap();
        assert_eq!((read.uri.as_deref(), &*read.sha256), (Some("https://a/b"), "s"));
        assert_eq!((read.timeout, read.fail_open), (Duration::from_millis(1500), true));
        assert!(!read.ignores_version(None));
        let changed = read.with_file(config, "/file").unwrap();
        assert!(Filter::read(&changed).unwrap().is_none());
        let structure = changed.typed_config.unwrap().decode_as::<TypedStruct>().unwrap().unwrap();
        let json =
            protos::json("type.googleapis.com/google.protobuf.Struct", &structure.value.unwrap().encode_to_vec())
                .unwrap()
                .to_string();
        assert!(json.contains(r#""local":{"filename":"/file"}"#) && json.contains(r#""A":"b""#), "{json}");
        assert!(!json.contains("remote") && !json.contains("ISTIO_META"), "{json}");
    }
}

#[test]
fn the_failure_policy_selects_the_replacement() {
    for (type_url, policy, prefix) in [
        (HTTP, (false, 0), "wasm-default-deny"),
        (HTTP, (true, 0), "wasm-default-allow"),
        (HTTP, (true, 2), "wasm-default-deny"),
        (NETWORK, (false, 3), "wasm-default-allow"),
        (NETWORK, (false, 1), "wasm-default-deny"),
    ] {
        let read = Filter::read(&filter(type_url, &[], policy).0).unwrap().unwrap();
        let typed = read.replacement("e".to_owned()).typed_config.unwrap();
        let (found, rules) = if type_url == HTTP {
            let filter = typed.decode_as::<http::rbac::v3::Rbac>().unwrap().unwrap();
            (filter.rules_stat_prefix, filter.rules)
        } else {
            let filter = typed.decode_as::<network::rbac::v3::Rbac>().unwrap().unwrap();
            (filter.stat_prefix, filter.rules)
        };
        assert_eq!((&*found, rules.is_none()), (prefix, prefix.ends_with("allow")));
    }
}

#[test]
fn other_filters_pass_and_filters_without_code_are_errors() {
    let config = |typed: Option<Any>| TypedExtensionConfig { name: "e".to_owned(), typed_config: typed };
    assert_eq!(Filter::read(&config(Some(any(&Rules::default())))).map(|found| found.is_none()), Ok(true));
    for wrong in [
        None,
        Some(Any { type_url: HTTP.to_owned(), value: b"\xff"[..].into() }),
        Some(Any { type_url: HTTP.to_owned(), value: b""[..].into() }),
        Some(Any { type_url: TypedStruct::type_url(), value: b"\xff"[..].into() }),
    ] {
        let error = Filter::read(&config(wrong)).err().unwrap();
        assert!(error.starts_with("the extension configuration e: "), "{error}");
    }
}

#[test]
fn tags_that_move_are_fetched_for_each_version() {
    let (config, _) = filter(HTTP, &[], (false, 0));
    let read = Filter::read(&config).unwrap().unwrap();
    for (text, ignored) in [("r.io/a:latest", false), ("r.io/a:v1", true), ("r.io/a", true)] {
        assert_eq!(read.ignores_version(Reference::parse(text).as_ref()), ignored, "{text}");
    }
}

proptest! {
    #[test]
    fn no_bytes_panic(mut bytes in prop::collection::vec(proptest::arbitrary::any::<u8>(), 0..40), at in 0usize..200, value: u8) {
        fuzz(&bytes);
        bytes = filter(HTTP, &[("A", "b")], (false, 0)).0.typed_config.unwrap().value.to_vec();
        let at = at % bytes.len();
        bytes[at] = value;
        fuzz(&bytes);
    }
}
