//! Filters with Wasm modules.
//!
//! Only the fields that matter here are read, and only they are replaced; all others, also those that are not known, stay as they are.

use std::collections::BTreeMap;
use std::time::Duration;

use protos::envoy::config::core::v3::async_data_source::Specifier;
use protos::envoy::config::core::v3::{
    AsyncDataSource, DataSource, HttpUri, RemoteDataSource, TypedExtensionConfig, data_source,
};
use protos::envoy::config::rbac::v3::Rbac as Rules;
use protos::envoy::extensions::filters::{http, network};
use protos::udpa::r#type::v1::TypedStruct;
use protos::value::Kind;
use protos::wire::{Malformed, Reader, Value as WireValue, put_bytes};
use protos::{Any, Message, Name as _, Struct, Value, any};

use super::reference::Reference;

const HTTP: &str = "type.googleapis.com/envoy.extensions.filters.http.wasm.v3.Wasm";
const NETWORK: &str = "type.googleapis.com/envoy.extensions.filters.network.wasm.v3.Wasm";
/// The prefix of variables for the agent, which modules do not see.
const INTERNAL: &str = "ISTIO_META_";
const PULL_SECRET: &str = "ISTIO_META_WASM_IMAGE_PULL_SECRET";
const PULL_POLICY: &str = "ISTIO_META_WASM_IMAGE_PULL_POLICY";
const RESOURCE_VERSION: &str = "ISTIO_META_WASM_PLUGIN_RESOURCE_VERSION";
/// The timeout of a module without one.
const TIMEOUT: Duration = Duration::from_secs(5);
/// `FAIL_OPEN` of Envoy's `FailurePolicy`.
const FAIL_OPEN: i32 = 3;

/// The numbers of fields: of the plugin in a filter, of the virtual machine in a plugin, and of its code and environment.
const PLUGIN: u8 = 1;
const VM: u8 = 3;
const CODE: u8 = 3;
const ENVIRONMENT: u8 = 7;

#[derive(Clone, PartialEq, prost::Message)]
struct WasmView {
    #[prost(message, optional, tag = "1")]
    config: Option<PluginView>,
}

#[derive(Clone, PartialEq, prost::Message)]
struct PluginView {
    #[prost(message, optional, tag = "3")]
    vm: Option<VmView>,
    #[prost(bool, tag = "5")]
    fail_open: bool,
    #[prost(int32, tag = "7")]
    failure_policy: i32,
}

#[derive(Clone, PartialEq, prost::Message)]
struct VmView {
    #[prost(message, optional, tag = "3")]
    code: Option<AsyncDataSource>,
    #[prost(message, optional, tag = "7")]
    environment: Option<EnvironmentView>,
}

#[derive(Clone, PartialEq, prost::Message)]
struct EnvironmentView {
    #[prost(string, repeated, tag = "1")]
    host_env_keys: Vec<String>,
    #[prost(btree_map = "string, string", tag = "2")]
    key_values: BTreeMap<String, String>,
}

/// A filter whose module is remote.
#[derive(PartialEq)]
pub(super) struct Filter {
    is_network: bool,
    pub(super) fail_open: bool,
    /// The URL of the module.
    pub(super) uri: Option<String>,
    /// The checksum; empty if any content is accepted.
    pub(super) sha256: String,
    pub(super) timeout: Duration,
    pub(super) pull_secret: Option<String>,
    pull_policy: String,
    pub(super) resource_version: String,
    /// The variables of the module.
    environment: EnvironmentView,
}

impl Filter {
    /// Reads a filter; none if it has no remote module.
    ///
    /// # Errors
    /// It is a Wasm filter that cannot be read, or has no module.
    pub(super) fn read(config: &TypedExtensionConfig) -> Result<Option<Filter>, String> {
        let failed = |reason: &str| format!("the extension configuration {}: {reason}", config.name);
        let typed = config.typed_config.as_ref().ok_or_else(|| failed("typed_config is missing"))?;
        let structure = match typed.decode_as::<TypedStruct>() {
            Some(decoded) => decoded.map_err(|error| failed(&error.to_string()))?,
            None => TypedStruct { type_url: typed.type_url.clone(), value: None },
        };
        let is_network = match &*structure.type_url {
            HTTP => false,
            NETWORK => true,
            _ => return Ok(None),
        };
        let plugin = match &structure.value {
            Some(value) => PluginView::of_struct(value),
            None => WasmView::decode(typed.value.clone()).map_err(|error| failed(&error.to_string()))?.config,
        };
        let PluginView { vm, fail_open, failure_policy } = plugin.unwrap_or_default();
        let VmView { code, environment } = vm.unwrap_or_default();
        let remote = match code.and_then(|code| code.specifier) {
            Some(Specifier::Remote(remote)) => remote,
            Some(Specifier::Local(_)) => return Ok(None),
            None => return Err(failed("the Wasm filter has no code")),
        };
        let fail_open = if failure_policy == 0 { fail_open } else { failure_policy == FAIL_OPEN };
        Ok(Some(Filter::new(is_network, fail_open, remote, environment.unwrap_or_default())))
    }

    fn new(is_network: bool, fail_open: bool, remote: RemoteDataSource, mut environment: EnvironmentView) -> Filter {
        let mut variable = |name: &str| environment.key_values.remove(name);
        let (pull_secret, pull_policy) = (variable(PULL_SECRET), variable(PULL_POLICY).unwrap_or_default());
        let resource_version = variable(RESOURCE_VERSION).unwrap_or_default();
        environment.key_values.retain(|name, _| !name.starts_with(INTERNAL));
        let timeout = remote.http_uri.as_ref().and_then(|uri| uri.timeout);
        Filter {
            is_network,
            fail_open,
            // The control plane sends "nil" for no checksum.
            sha256: if remote.sha256 == "nil" { String::new() } else { remote.sha256 },
            timeout: timeout.and_then(|timeout| timeout.try_into().ok()).unwrap_or(TIMEOUT),
            uri: remote.http_uri.map(|uri| uri.uri),
            pull_secret,
            pull_policy,
            resource_version,
            environment,
        }
    }

    /// Whether a module that was fetched for another version of the WasmPlugin is used.
    pub(super) fn ignores_version(&self, image: Option<&Reference>) -> bool {
        match &*self.pull_policy {
            "Always" => false,
            "IfNotPresent" => true,
            _ => image.is_none_or(|image| image.digest.is_some() || image.tag.as_deref() != Some("latest")),
        }
    }

    /// The configuration with a local module, and without the variables for the agent.
    ///
    /// # Errors
    /// The configuration is not the one that was read.
    pub(super) fn with_file(
        &self,
        mut config: TypedExtensionConfig,
        file: &str,
    ) -> Result<TypedExtensionConfig, Malformed> {
        let Some(typed) = &mut config.typed_config else { return Ok(config) };
        typed.value = match typed.decode_as::<TypedStruct>() {
            Some(structure) => {
                let mut structure = structure.map_err(|_| Malformed)?;
                let plugin = structure.value.as_mut().and_then(|filter| object_mut(filter, "config"));
                if let Some(vm) = plugin.and_then(|plugin| object_mut(plugin, "vm_config")) {
                    self.edit_struct(vm, file);
                }
                protos::encode(&structure)
            }
            None => {
                let vm = |vm: &[u8]| self.edit_vm(vm, file).map(Some);
                edit(&typed.value, PLUGIN, &|plugin| edit(plugin, VM, &vm).map(Some))?.into()
            }
        };
        Ok(config)
    }

    /// A virtual machine with a local module.
    fn edit_vm(&self, vm: &[u8], file: &str) -> Result<Vec<u8>, Malformed> {
        let remove = |_: &[u8]| Ok(None);
        let mut edited = edit(&edit(vm, CODE, &remove)?, ENVIRONMENT, &remove)?;
        let specifier = data_source::Specifier::Filename(file.to_owned());
        let local = DataSource { specifier: Some(specifier), ..DataSource::default() };
        put_bytes(&mut edited, CODE, &AsyncDataSource { specifier: Some(Specifier::Local(local)) }.encode_to_vec());
        if self.environment != EnvironmentView::default() {
            put_bytes(&mut edited, ENVIRONMENT, &self.environment.encode_to_vec());
        }
        Ok(edited)
    }

    /// The same for a virtual machine that is written as a structure.
    fn edit_struct(&self, vm: &mut Struct, file: &str) {
        let local = [("filename".to_owned(), text_value(file.to_owned()))].into();
        vm.fields.insert("code".to_owned(), struct_value([("local".to_owned(), struct_value(local))].into()));
        let Some(environment) = object_mut(vm, "environment_variables") else { return };
        if let Some(variables) = object_mut(environment, "key_values") {
            variables.fields.retain(|name, _| !name.starts_with(INTERNAL));
        }
    }

    /// A filter that allows or denies all requests.
    pub(super) fn replacement(&self, name: String) -> TypedExtensionConfig {
        // No rules allow everything, and rules without policies deny everything.
        let rules = (!self.fail_open).then(Rules::default);
        let prefix = if self.fail_open { "wasm-default-allow" } else { "wasm-default-deny" }.to_owned();
        let filter = if self.is_network {
            any(&network::rbac::v3::Rbac { rules, stat_prefix: prefix, ..Default::default() })
        } else {
            any(&http::rbac::v3::Rbac { rules, rules_stat_prefix: prefix, ..Default::default() })
        };
        TypedExtensionConfig { name, typed_config: Some(filter) }
    }
}

/// The new value of a field; none removes it.
type Change<'a> = &'a dyn Fn(&[u8]) -> Result<Option<Vec<u8>>, Malformed>;

/// Changes the occurrences of a length-delimited field. Copies all other fields.
fn edit(message: &[u8], field: u8, change: Change<'_>) -> Result<Vec<u8>, Malformed> {
    let (mut edited, mut reader) = (Vec::with_capacity(message.len()), Reader::new(message));
    loop {
        let before = reader.rest();
        let Some((number, value)) = reader.field()? else { return Ok(edited) };
        match value {
            WireValue::Bytes(value) if number == u32::from(field) => {
                if let Some(changed) = change(value)? {
                    put_bytes(&mut edited, field, &changed);
                }
            }
            _ => edited.extend_from_slice(&before[..before.len() - reader.rest().len()]),
        }
    }
}

impl PluginView {
    /// Reads the plugin of a filter that is written as a structure.
    fn of_struct(filter: &Struct) -> Option<PluginView> {
        let plugin = object(filter, "config")?;
        let vm = object(plugin, "vm_config").unwrap_or(&EMPTY);
        let code = object(vm, "code").unwrap_or(&EMPTY);
        let specifier = match (object(code, "remote"), object(code, "local")) {
            (Some(remote), _) => Some(Specifier::Remote(RemoteDataSource {
                http_uri: object(remote, "http_uri").map(|uri| HttpUri {
                    uri: text(uri, "uri").unwrap_or_default(),
                    timeout: text(uri, "timeout").and_then(|text| protos::parse_duration(&text)).map(protos::duration),
                    ..HttpUri::default()
                }),
                sha256: text(remote, "sha256").unwrap_or_default(),
                ..RemoteDataSource::default()
            })),
            (None, Some(_)) => Some(Specifier::Local(DataSource::default())),
            (None, None) => None,
        };
        let variables = object(vm, "environment_variables").and_then(|environment| object(environment, "key_values"));
        let key_values = variables.map(|variables| {
            variables.fields.keys().filter_map(|name| Some((name.clone(), text(variables, name)?))).collect()
        });
        let failure_policy = match member(plugin, "failure_policy").and_then(|value| value.kind.as_ref()) {
            Some(Kind::StringValue(name)) if name == "FAIL_OPEN" => FAIL_OPEN,
            Some(Kind::NumberValue(number)) if *number == f64::from(FAIL_OPEN) => FAIL_OPEN,
            Some(Kind::StringValue(name)) if name == "UNSPECIFIED" => 0,
            None => 0,
            // One of those that do not allow requests.
            Some(_) => 1,
        };
        let environment = Some(EnvironmentView { key_values: key_values.unwrap_or_default(), ..Default::default() });
        Some(PluginView {
            vm: Some(VmView { code: Some(AsyncDataSource { specifier }), environment }),
            fail_open: matches!(member(plugin, "fail_open"), Some(Value { kind: Some(Kind::BoolValue(true)) })),
            failure_policy,
        })
    }
}

static EMPTY: Struct = Struct { fields: BTreeMap::new() };

/// A field of a message in JSON, whose name may be written in two ways.
fn member<'a>(object: &'a Struct, name: &str) -> Option<&'a Value> {
    object.fields.get(name).or_else(|| object.fields.get(&camel(name)))
}

fn object<'a>(parent: &'a Struct, name: &str) -> Option<&'a Struct> {
    match member(parent, name)?.kind.as_ref()? {
        Kind::StructValue(object) => Some(object),
        _ => None,
    }
}

fn object_mut<'a>(parent: &'a mut Struct, name: &str) -> Option<&'a mut Struct> {
    let name = if parent.fields.contains_key(name) { name.to_owned() } else { camel(name) };
    match parent.fields.get_mut(&name)?.kind.as_mut()? {
        Kind::StructValue(object) => Some(object),
        _ => None,
    }
}

fn text(object: &Struct, name: &str) -> Option<String> {
    match member(object, name)?.kind.as_ref()? {
        Kind::StringValue(text) => Some(text.clone()),
        _ => None,
    }
}

/// `lowerCamelCase` of a name.
fn camel(name: &str) -> String {
    let mut words = name.split('_');
    let first = words.next().unwrap_or_default().to_owned();
    words.fold(first, |name, word| {
        let (initial, rest) = word.split_at_checked(1).unwrap_or_default();
        name + &initial.to_ascii_uppercase() + rest
    })
}

fn text_value(text: String) -> Value {
    Value { kind: Some(Kind::StringValue(text)) }
}

fn struct_value(fields: BTreeMap<String, Value>) -> Value {
    Value { kind: Some(Kind::StructValue(Struct { fields })) }
}

/// Reads and changes a filter, for fuzzing.
#[doc(hidden)]
pub fn fuzz(bytes: &[u8]) {
    for type_url in [HTTP.to_owned(), TypedStruct::type_url()] {
        let typed = Any { type_url, value: bytes.to_vec().into() };
        let config = TypedExtensionConfig { name: String::new(), typed_config: Some(typed) };
        if let Ok(Some(filter)) = Filter::read(&config)
            && let Ok(changed) = filter.with_file(config, "/file")
        {
            // A changed filter has no remote module.
            assert!(matches!(Filter::read(&changed), Ok(None)));
        }
    }
}

#[cfg(test)]
mod tests;
