//! The `validate.rules` of `.proto` files, parsed once for each message.

use std::collections::HashMap;
use std::sync::{Arc, LazyLock, PoisonError, RwLock};

use prost_reflect::{DynamicMessage, FieldDescriptor, Kind, MessageDescriptor, OneofDescriptor, ReflectMessage, Value};

use super::{is_any, is_special};
use crate::descriptor_pool;

/// The rules of a message.
pub(super) struct MessageRules {
    /// Each of these oneofs must be set.
    pub(super) needed: Vec<OneofDescriptor>,
    /// The rules of fields that have any.
    pub(super) fields: Vec<FieldRules>,
}

pub(super) struct FieldRules {
    pub(super) field: FieldDescriptor,
    pub(super) rules: Rules,
}

/// The rules of a value.
#[derive(Default)]
pub(super) struct Rules {
    /// The value must be present.
    pub(super) required: bool,
    /// The fields of the message are checked, too.
    pub(super) opened: bool,
    pub(super) number: Option<Number>,
    pub(super) text: Option<Text>,
    pub(super) flag: Option<bool>,
    pub(super) choice: Option<Choice>,
    pub(super) list: Option<Box<List>>,
    pub(super) map: Option<Box<Pairs>>,
    /// Allowed and forbidden type URLs of packed messages.
    pub(super) types: Option<(Vec<String>, Vec<String>)>,
}

/// Bounds of a number, or of a duration in seconds.
#[derive(Default)]
pub(super) struct Number {
    pub(super) exactly: Option<f64>,
    pub(super) below: Option<f64>,
    pub(super) at_most: Option<f64>,
    pub(super) above: Option<f64>,
    pub(super) at_least: Option<f64>,
    pub(super) among: Vec<f64>,
    pub(super) not_among: Vec<f64>,
    pub(super) unless_empty: bool,
}

/// The rules of a string or of bytes. `length`, `shortest` and `longest` count characters of strings.
#[derive(Default)]
pub(super) struct Text {
    pub(super) exactly: Option<Vec<u8>>,
    pub(super) length: Option<usize>,
    pub(super) shortest: Option<usize>,
    pub(super) longest: Option<usize>,
    pub(super) bytes: Option<usize>,
    pub(super) fewest_bytes: Option<usize>,
    pub(super) most_bytes: Option<usize>,
    pub(super) pattern: Option<regex::Regex>,
    pub(super) prefix: Option<Vec<u8>>,
    pub(super) suffix: Option<Vec<u8>>,
    pub(super) contains: Option<Vec<u8>>,
    pub(super) lacks: Option<Vec<u8>>,
    pub(super) among: Vec<Vec<u8>>,
    pub(super) not_among: Vec<Vec<u8>>,
    pub(super) form: Option<Form>,
    pub(super) unless_empty: bool,
}

/// A well-known format.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Form {
    Email,
    Hostname,
    Ip,
    Ipv4,
    Ipv6,
    Uri,
    Address,
    Uuid,
    HeaderName,
    HeaderValue,
    /// Without NUL and line breaks, and not empty.
    LooseHeaderName,
    /// Without NUL and line breaks.
    LooseHeaderValue,
}

#[derive(Default)]
pub(super) struct Choice {
    pub(super) exactly: Option<i32>,
    pub(super) known_only: bool,
    pub(super) among: Vec<i32>,
    pub(super) not_among: Vec<i32>,
}

#[derive(Default)]
pub(super) struct List {
    pub(super) fewest: usize,
    pub(super) most: Option<usize>,
    pub(super) unique: bool,
    pub(super) items: Rules,
    pub(super) unless_empty: bool,
}

#[derive(Default)]
pub(super) struct Pairs {
    pub(super) fewest: usize,
    pub(super) most: Option<usize>,
    pub(super) keys: Rules,
    pub(super) values: Rules,
    pub(super) unless_empty: bool,
}

impl MessageRules {
    /// The rules of a message.
    pub(super) fn of(descriptor: &MessageDescriptor) -> Arc<MessageRules> {
        static KNOWN: LazyLock<RwLock<HashMap<String, Arc<MessageRules>>>> = LazyLock::new(RwLock::default);
        let name = descriptor.full_name();
        if let Some(known) = KNOWN.read().unwrap_or_else(PoisonError::into_inner).get(name) {
            return known.clone();
        }
        let rules = Arc::new(MessageRules::read(descriptor));
        let mut known = KNOWN.write().unwrap_or_else(PoisonError::into_inner);
        known.insert(name.to_owned(), rules.clone());
        rules
    }

    fn read(descriptor: &MessageDescriptor) -> MessageRules {
        let options = descriptor.options();
        if flag_of(&options, "validate.disabled") || flag_of(&options, "validate.ignored") {
            return MessageRules { needed: Vec::new(), fields: Vec::new() };
        }
        let needed = descriptor.oneofs();
        let needed = needed.filter(|one| flag_of(&one.options(), "validate.required"));
        let fields = descriptor.fields().filter_map(|field| {
            let stated = extension(&field.options(), "validate.rules");
            let stated = stated.as_ref().and_then(Value::as_message);
            let rules = Rules::read(&field, stated);
            rules.asks_something().then_some(FieldRules { field, rules })
        });
        MessageRules { needed: needed.collect(), fields: fields.collect() }
    }
}

impl Rules {
    /// Reads the rules of a field and of its items.
    fn read(field: &FieldDescriptor, stated: Option<&DynamicMessage>) -> Rules {
        let part = |name: &str| stated.and_then(|s| message_in(s, name));
        if field.is_map() {
            let Kind::Message(entry) = field.kind() else {
                return Rules::default();
            };
            let stated = part("map");
            let of = |name: &str| stated.as_ref().and_then(|s| message_in(s, name));
            return Rules {
                map: Some(Box::new(Pairs {
                    fewest: stated.as_ref().and_then(|s| size(s, "min_pairs")).unwrap_or(0),
                    most: stated.as_ref().and_then(|s| size(s, "max_pairs")),
                    unless_empty: stated.as_ref().is_some_and(|s| flag(s, "ignore_empty")),
                    keys: Rules::of_value(&entry.map_entry_key_field(), of("keys").as_ref()),
                    values: Rules::of_value(&entry.map_entry_value_field(), of("values").as_ref()),
                })),
                ..Rules::default()
            };
        }
        if field.is_list() {
            let stated = part("repeated");
            let items = stated.as_ref().and_then(|s| message_in(s, "items"));
            return Rules {
                list: Some(Box::new(List {
                    fewest: stated.as_ref().and_then(|s| size(s, "min_items")).unwrap_or(0),
                    most: stated.as_ref().and_then(|s| size(s, "max_items")),
                    unique: stated.as_ref().is_some_and(|s| flag(s, "unique")),
                    unless_empty: stated.as_ref().is_some_and(|s| flag(s, "ignore_empty")),
                    items: Rules::of_value(field, items.as_ref()),
                })),
                ..Rules::default()
            };
        }
        Rules::of_value(field, stated)
    }

    fn of_value(field: &FieldDescriptor, stated: Option<&DynamicMessage>) -> Rules {
        let mut rules = Rules::default();
        if let Kind::Message(inner) = field.kind() {
            rules.opened = is_any(&inner) || !is_special(&inner);
        }
        let Some(stated) = stated else {
            return rules;
        };
        if let Some(message) = message_in(stated, "message") {
            rules.required = flag(&message, "required");
            rules.opened &= !flag(&message, "skip");
        }
        for (field, value) in stated.fields() {
            let Some(of) = value.as_message() else { continue };
            match field.name() {
                "message" | "repeated" | "map" => {}
                "string" | "bytes" => rules.text = Some(Text::read(of)),
                "bool" => rules.flag = of.has_field_by_name("const").then(|| flag(of, "const")),
                "enum" => rules.choice = Some(Choice::read(of)),
                "any" => {
                    rules.required |= flag(of, "required");
                    let urls = |name| list_in(of, name, |url| url.as_str().map(str::to_owned));
                    rules.types = Some((urls("in"), urls("not_in")));
                }
                _ => {
                    rules.required |= flag(of, "required");
                    rules.number = Some(Number::read(of));
                }
            }
        }
        rules
    }

    fn asks_something(&self) -> bool {
        self.required
            || self.opened
            || self.number.is_some()
            || self.text.is_some()
            || self.flag.is_some()
            || self.choice.is_some()
            || self.types.is_some()
            || self.list.as_ref().is_some_and(|list| {
                list.fewest > 0 || list.most.is_some() || list.unique || list.items.asks_something()
            })
            || self.map.as_ref().is_some_and(|map| {
                map.fewest > 0 || map.most.is_some() || map.keys.asks_something() || map.values.asks_something()
            })
    }
}

impl Number {
    fn read(of: &DynamicMessage) -> Number {
        let one = |name| value_in(of, name).and_then(|value| number(&value));
        let many = |name| list_in(of, name, number);
        Number {
            exactly: one("const"),
            below: one("lt"),
            at_most: one("lte"),
            above: one("gt"),
            at_least: one("gte"),
            among: many("in"),
            not_among: many("not_in"),
            unless_empty: flag(of, "ignore_empty"),
        }
    }
}

impl Text {
    fn read(of: &DynamicMessage) -> Text {
        let one = |name| value_in(of, name).and_then(|value| raw(&value).map(<[u8]>::to_vec));
        let many = |name| list_in(of, name, |value| raw(value).map(<[u8]>::to_vec));
        let pattern = value_in(of, "pattern").and_then(|value| value.as_str().map(str::to_owned));
        // Lengths of `bytes` fields are in bytes.
        let of_bytes = of.descriptor().name() == "BytesRules";
        let measure = |text: &str, bytes: &str| match of_bytes {
            true => (None, size(of, text)),
            false => (size(of, text), size(of, bytes)),
        };
        let ((length, bytes), (shortest, fewest_bytes), (longest, most_bytes)) =
            (measure("len", "len_bytes"), measure("min_len", "min_bytes"), measure("max_len", "max_bytes"));
        Text {
            exactly: one("const"),
            length,
            shortest,
            longest,
            bytes,
            fewest_bytes,
            most_bytes,
            pattern: pattern.and_then(|pattern| regex::Regex::new(&pattern).ok()),
            prefix: one("prefix"),
            suffix: one("suffix"),
            contains: one("contains"),
            lacks: one("not_contains"),
            among: many("in"),
            not_among: many("not_in"),
            form: Form::read(of),
            unless_empty: flag(of, "ignore_empty"),
        }
    }
}

impl Form {
    fn read(of: &DynamicMessage) -> Option<Form> {
        const FORMS: [(&str, Form); 8] = [
            ("email", Form::Email),
            ("hostname", Form::Hostname),
            ("ip", Form::Ip),
            ("ipv4", Form::Ipv4),
            ("ipv6", Form::Ipv6),
            ("uri", Form::Uri),
            ("address", Form::Address),
            ("uuid", Form::Uuid),
        ];
        if let Some((_, form)) = FORMS.iter().find(|(name, _)| flag(of, name)) {
            return Some(*form);
        }
        let strict = of.get_field_by_name("strict").and_then(|strict| strict.as_bool());
        let known = value_in(of, "well_known_regex").and_then(|value| value.as_enum_number())?;
        match (known, strict.unwrap_or(true)) {
            (1, true) => Some(Form::HeaderName),
            (1, false) => Some(Form::LooseHeaderName),
            (2, true) => Some(Form::HeaderValue),
            (2, false) => Some(Form::LooseHeaderValue),
            _ => None,
        }
    }
}

impl Choice {
    fn read(of: &DynamicMessage) -> Choice {
        let many = |name| list_in(of, name, Value::as_i32);
        Choice {
            exactly: value_in(of, "const").and_then(|value| value.as_i32()),
            known_only: flag(of, "defined_only"),
            among: many("in"),
            not_among: many("not_in"),
        }
    }
}

/// The value of a number, or of a duration or timestamp in seconds.
pub(super) fn number(value: &Value) -> Option<f64> {
    Some(match value {
        Value::I32(n) => f64::from(*n),
        Value::U32(n) => f64::from(*n),
        Value::I64(n) => *n as f64,
        Value::U64(n) => *n as f64,
        Value::F32(n) => f64::from(*n),
        Value::F64(n) => *n,
        Value::Message(m) => {
            let seconds = m.get_field_by_name("seconds")?.as_i64()?;
            let nanos = m.get_field_by_name("nanos")?.as_i32()?;
            seconds as f64 + f64::from(nanos) / 1e9
        }
        _ => return None,
    })
}

/// The bytes of a string or of bytes.
pub(super) fn raw(value: &Value) -> Option<&[u8]> {
    match value {
        Value::String(text) => Some(text.as_bytes()),
        Value::Bytes(bytes) => Some(bytes),
        _ => None,
    }
}

/// The value of a field that is set.
fn value_in(message: &DynamicMessage, name: &str) -> Option<Value> {
    let present = message.has_field_by_name(name);
    present.then(|| message.get_field_by_name(name).map(std::borrow::Cow::into_owned))?
}

fn message_in(message: &DynamicMessage, name: &str) -> Option<DynamicMessage> {
    match value_in(message, name) {
        Some(Value::Message(inner)) => Some(inner),
        _ => None,
    }
}

fn flag(message: &DynamicMessage, name: &str) -> bool {
    value_in(message, name).and_then(|value| value.as_bool()) == Some(true)
}

fn size(message: &DynamicMessage, name: &str) -> Option<usize> {
    value_in(message, name)?.as_u64().and_then(|n| usize::try_from(n).ok())
}

/// The converted items of a repeated field.
fn list_in<T>(message: &DynamicMessage, name: &str, item: impl Fn(&Value) -> Option<T>) -> Vec<T> {
    match value_in(message, name) {
        Some(Value::List(items)) => items.iter().filter_map(item).collect(),
        _ => Vec::new(),
    }
}

fn extension(options: &DynamicMessage, name: &str) -> Option<Value> {
    let extension = descriptor_pool().get_extension_by_name(name)?;
    let present = extension.containing_message() == options.descriptor() && options.has_extension(&extension);
    present.then(|| options.get_extension(&extension).into_owned())
}

fn flag_of(options: &DynamicMessage, name: &str) -> bool {
    extension(options, name).and_then(|value| value.as_bool()) == Some(true)
}
