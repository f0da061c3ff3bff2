//! Checks messages against the rules of their `.proto` files, as Envoy does before it accepts a configuration.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use prost_reflect::{DynamicMessage, FieldDescriptor, Kind, ReflectMessage, Value};

use super::rules::{Choice, FieldRules, Form, List, MessageRules, Number, Pairs, Rules, Text, number, raw};
use super::{Problem, Step, Trail, is_any, is_wrapper, unpack};

/// How a message is used.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Completeness {
    /// As it is. Required fields must be set.
    Whole,
    /// Merged into another message. Only fields that are set are checked, but items of lists and maps must be complete.
    Part,
}

/// An additional check of each message. Returns the invalid field and the reason.
pub type Extra<'a> = &'a dyn Fn(&DynamicMessage) -> Option<(&'static str, String)>;

/// Returns the problems of a message and of the messages packed in it. Packed messages of unknown type are not checked.
pub fn check(message: &DynamicMessage, completeness: Completeness, extra: Extra<'_>) -> Vec<Problem> {
    let mut checker = Checker { trail: Trail::default(), extra };
    checker.message(message, completeness);
    checker.trail.problems
}

/// The rules of a field that concern it as a whole.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Limits {
    /// The fields of its message are checked, too.
    pub opened: bool,
    /// The items of the list must differ.
    pub unique: bool,
    fewest: usize,
    most: Option<usize>,
}

impl Limits {
    /// The rules of a field.
    pub fn of(field: &FieldDescriptor) -> Limits {
        let rules = MessageRules::of(field.parent_message());
        let Some(FieldRules { rules, .. }) = rules.fields.iter().find(|of| of.field == *field) else {
            return Limits::default();
        };
        let (fewest, most) = match (&rules.list, &rules.map) {
            (Some(list), _) => (list.fewest, list.most),
            (_, Some(map)) => (map.fewest, map.most),
            _ => (0, None),
        };
        Limits { opened: rules.opened, unique: rules.list.as_ref().is_some_and(|list| list.unique), fewest, most }
    }

    /// The reason why a list or map may not have this many entries, at least one.
    pub fn violated(&self, count: usize) -> Option<String> {
        miscounted(count, self.fewest, self.most)
    }
}

struct Checker<'a> {
    trail: Trail,
    extra: Extra<'a>,
}

impl Checker<'_> {
    fn message(&mut self, message: &DynamicMessage, completeness: Completeness) {
        if self.trail.is_too_deep() {
            return;
        }
        let descriptor = message.descriptor();
        if is_any(&descriptor) {
            match unpack(message) {
                Some(Ok(inner)) => self.message(&inner, completeness),
                Some(Err(error)) => self.trail.wrong(format!("the packed message is broken: {error}")),
                None => {}
            }
            return;
        }
        if let Some((field, reason)) = (self.extra)(message) {
            self.trail.at(Step::Field(field.to_owned()), |trail| trail.wrong(reason));
        }
        let rules = MessageRules::of(&descriptor);
        let whole = completeness == Completeness::Whole;
        for one in rules.needed.iter().filter(|_| whole) {
            if !one.fields().any(|field| message.has_field(&field)) {
                let names: Vec<String> = one.fields().map(|field| field.json_name().to_owned()).collect();
                self.trail.wrong(format!("one of {} is needed", names.join(", ")));
            }
        }
        for of in &rules.fields {
            let present = message.has_field(&of.field);
            let chosen = of.field.containing_oneof().is_some_and(|one| !one.is_synthetic());
            // An absent number without presence is 0 and must be within the bounds. In a oneof, only the field that is
            // set is checked.
            if !present && (!whole || chosen || (of.field.supports_presence() && !of.rules.required)) {
                continue;
            }
            self.trail.path.push(Step::Field(of.field.json_name().to_owned()));
            if !present && of.field.supports_presence() {
                self.trail.wrong("is needed");
            } else {
                self.field(&of.field, &of.rules, &message.get_field(&of.field), completeness);
            }
            self.trail.path.pop();
        }
    }

    fn field(&mut self, field: &FieldDescriptor, rules: &Rules, value: &Value, completeness: Completeness) {
        match value {
            Value::List(items) => {
                if let Some(list) = &rules.list {
                    self.list(field, list, items, completeness);
                }
            }
            Value::Map(entries) => {
                let Some(pairs) = &rules.map else { return };
                if let Kind::Message(entry) = field.kind() {
                    let values = entry.map_entry_value_field();
                    self.pairs(&values, pairs, entries, completeness);
                }
            }
            value => self.one(field, rules, value, completeness),
        }
    }

    fn list(&mut self, field: &FieldDescriptor, rules: &List, items: &[Value], completeness: Completeness) {
        if rules.unless_empty && items.is_empty() {
            return;
        }
        self.count(items.len(), rules.fewest, rules.most, completeness);
        let twice = |(at, item): (usize, &Value)| items[..at].contains(item);
        if rules.unique && items.len() <= 1000 && items.iter().enumerate().any(twice) {
            self.trail.wrong("has an entry twice");
        }
        for (index, item) in items.iter().enumerate() {
            self.trail.path.push(Step::Index(index));
            self.one(field, &rules.items, item, Completeness::Whole);
            self.trail.path.pop();
        }
    }

    fn pairs(
        &mut self,
        values: &FieldDescriptor,
        rules: &Pairs,
        entries: &std::collections::HashMap<prost_reflect::MapKey, Value>,
        completeness: Completeness,
    ) {
        if rules.unless_empty && entries.is_empty() {
            return;
        }
        self.count(entries.len(), rules.fewest, rules.most, completeness);
        let mut sorted: Vec<_> = entries.iter().collect();
        sorted.sort_by_key(|(key, _)| *key);
        for (key, value) in sorted {
            let key = Value::from(key.clone());
            let shown = key.as_str().map_or_else(|| format!("{key:?}"), str::to_owned);
            self.trail.path.push(Step::Key(shown));
            self.scalar(values, &rules.keys, &key);
            self.one(values, &rules.values, value, Completeness::Whole);
            self.trail.path.pop();
        }
    }

    fn count(&mut self, count: usize, fewest: usize, most: Option<usize>, completeness: Completeness) {
        let fewest = if completeness == Completeness::Whole { fewest } else { 0 };
        if let Some(reason) = miscounted(count, fewest, most) {
            self.trail.wrong(reason);
        }
    }

    fn one(&mut self, field: &FieldDescriptor, rules: &Rules, value: &Value, completeness: Completeness) {
        let Value::Message(message) = value else {
            return self.scalar(field, rules, value);
        };
        let descriptor = message.descriptor();
        if is_wrapper(&descriptor) {
            if let Some(inner) = message.get_field_by_name("value") {
                self.scalar(field, rules, &inner);
            }
        } else if rules.number.is_some() {
            // A duration or timestamp.
            self.scalar(field, rules, value);
        } else {
            if let Some((among, not_among)) = &rules.types {
                let url = message.get_field_by_name("type_url");
                let url = url.as_ref().and_then(|url| url.as_str()).unwrap_or_default().to_owned();
                if !among.is_empty() && !among.contains(&url) || not_among.contains(&url) {
                    self.trail.wrong(format!("a message of type {url:?} may not be here"));
                }
            }
            if rules.opened {
                self.message(message, completeness);
            }
        }
    }

    fn scalar(&mut self, field: &FieldDescriptor, rules: &Rules, value: &Value) {
        let wrong = match value {
            Value::String(_) | Value::Bytes(_) => rules.text.as_ref().and_then(|of| text(of, value)),
            Value::Bool(is) => rules.flag.filter(|of| of != is).map(|of| format!("must be {of}")),
            Value::EnumNumber(chosen) => rules.choice.as_ref().and_then(|of| choice(of, field, *chosen)),
            value => {
                let bounds = rules.number.as_ref();
                bounds.and_then(|of| number(value).and_then(|value| outside(of, value)))
            }
        };
        if let Some(wrong) = wrong {
            self.trail.wrong(wrong);
        }
    }
}

fn miscounted(count: usize, fewest: usize, most: Option<usize>) -> Option<String> {
    match most {
        _ if count < fewest => Some(format!("needs {fewest} entries at least, and has {count}")),
        Some(most) if count > most => Some(format!("may have {most} entries at most, and has {count}")),
        _ => None,
    }
}

fn outside(of: &Number, value: f64) -> Option<String> {
    if of.unless_empty && value == 0.0 {
        return None;
    }
    if of.exactly.is_some_and(|exactly| exactly != value) {
        return of.exactly.map(|exactly| format!("must be {exactly}, not {value}"));
    }
    if !of.among.is_empty() && !of.among.contains(&value) || of.not_among.contains(&value) {
        return Some(format!("may not be {value}"));
    }
    let low = of.above.map(|n| (n, false)).or(of.at_least.map(|n| (n, true)));
    let high = of.below.map(|n| (n, false)).or(of.at_most.map(|n| (n, true)));
    // NaN is out of every range.
    let high_enough = low.is_none_or(|(n, itself)| value > n || (itself && value == n));
    let low_enough = high.is_none_or(|(n, itself)| value < n || (itself && value == n));
    let reversed = matches!((low, high), (Some((low, _)), Some((high, _))) if low > high);
    let inside = if reversed { high_enough || low_enough } else { high_enough && low_enough };
    if inside {
        return None;
    }
    let words = |bound: Option<(f64, bool)>, strictly: &str, weakly: &str| {
        bound.map(|(n, itself)| format!("{} {n}", if itself { weakly } else { strictly }))
    };
    let bounds = [words(low, "above", "at least"), words(high, "below", "at most")];
    let bounds: Vec<String> = bounds.into_iter().flatten().collect();
    let joined = bounds.join(if reversed { " or " } else { " and " });
    Some(format!("must be {joined}, not {value}"))
}

fn choice(of: &Choice, field: &FieldDescriptor, chosen: i32) -> Option<String> {
    let Kind::Enum(of_values) = field.kind() else {
        return None;
    };
    let name = of_values.get_value(chosen).map(|value| value.name().to_owned());
    let shown = name.clone().unwrap_or_else(|| chosen.to_string());
    if of.known_only && name.is_none() {
        return Some(format!("{chosen} is no value of {}", of_values.name()));
    }
    let excluded = of.exactly.is_some_and(|exactly| exactly != chosen)
        || (!of.among.is_empty() && !of.among.contains(&chosen))
        || of.not_among.contains(&chosen);
    excluded.then(|| format!("may not be {shown}"))
}

fn text(of: &Text, value: &Value) -> Option<String> {
    let raw = raw(value)?;
    if of.unless_empty && raw.is_empty() {
        return None;
    }
    let characters = value.as_str().map_or(raw.len(), |text| text.chars().count());
    let contains = |part: &[u8]| part.is_empty() || raw.windows(part.len()).any(|window| window == part);
    let lossy = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    let shortest = of.shortest.filter(|n| characters < *n).or(of.fewest_bytes.filter(|n| raw.len() < *n));
    let longest = of.longest.filter(|n| characters > *n).or(of.most_bytes.filter(|n| raw.len() > *n));
    let exact = of.length.filter(|n| characters != *n).or(of.bytes.filter(|n| raw.len() != *n));
    let as_text = value.as_str().unwrap_or_default();
    [
        of.exactly.as_ref().filter(|e| **e != raw).map(|e| format!("must be {:?}", lossy(e))),
        shortest.map(|n| match n {
            1 => "may not be empty".to_owned(),
            n => format!("must be {n} characters long at least"),
        }),
        longest.map(|n| format!("may be {n} characters long at most")),
        exact.map(|n| format!("must be {n} characters long")),
        of.prefix.as_ref().filter(|p| !raw.starts_with(p)).map(|p| format!("must begin with {:?}", lossy(p))),
        of.suffix.as_ref().filter(|s| !raw.ends_with(s)).map(|s| format!("must end with {:?}", lossy(s))),
        of.contains.as_ref().filter(|c| !contains(c)).map(|c| format!("must contain {:?}", lossy(c))),
        of.lacks.as_ref().filter(|c| contains(c)).map(|c| format!("may not contain {:?}", lossy(c))),
        of.pattern.as_ref().filter(|p| !p.is_match(as_text)).map(|p| format!("must match {p}")),
        (!of.among.is_empty() && !of.among.iter().any(|one| one == raw)).then(|| {
            format!("must be one of {}", of.among.iter().map(|one| lossy(one)).collect::<Vec<_>>().join(", "))
        }),
        of.not_among.iter().any(|one| one == raw).then(|| format!("may not be {:?}", lossy(raw))),
        of.form.and_then(|form| not_of_form(form, value)),
    ]
    .into_iter()
    .flatten()
    .next()
}

fn not_of_form(form: Form, value: &Value) -> Option<String> {
    let text = value.as_str()?;
    let (fits, what) = match form {
        Form::Email => {
            (text.split_once('@').is_some_and(|(a, b)| !a.is_empty() && is_hostname(b)), "an e-mail address")
        }
        Form::Hostname => (is_hostname(text), "a host name"),
        Form::Ip => (text.parse::<IpAddr>().is_ok(), "an IP address"),
        Form::Ipv4 => (text.parse::<Ipv4Addr>().is_ok(), "an IPv4 address"),
        Form::Ipv6 => (text.parse::<Ipv6Addr>().is_ok(), "an IPv6 address"),
        Form::Address => (text.parse::<IpAddr>().is_ok() || is_hostname(text), "a host name or IP address"),
        Form::Uri => (text.contains(':') && !text.contains(char::is_whitespace), "a URI"),
        Form::Uuid => (is_uuid(text), "a UUID"),
        Form::HeaderName => (is_header_name(text), "the name of a header"),
        Form::HeaderValue => {
            (!text.chars().any(|c| matches!(c, '\0'..='\x08' | '\n'..='\x1f' | '\x7f')), "the value of a header")
        }
        Form::LooseHeaderName => (!text.is_empty() && one_line(text), "the name of a header"),
        Form::LooseHeaderValue => (one_line(text), "the value of a header"),
    };
    (!fits).then(|| format!("must be {what}"))
}

fn one_line(text: &str) -> bool {
    !text.contains(['\0', '\n', '\r'])
}

fn is_header_name(text: &str) -> bool {
    let name = text.strip_prefix(':').unwrap_or(text);
    let allowed = |c: char| c.is_ascii_alphanumeric() || "!#$%&'*+-.^_|~`".contains(c);
    !name.is_empty() && name.chars().all(allowed)
}

fn is_hostname(text: &str) -> bool {
    let label = |label: &str| {
        (1..=63).contains(&label.len())
            && !label.starts_with('-')
            && !label.ends_with('-')
            && label.chars().all(|c| c.is_ascii_alphanumeric() || c == '-')
    };
    let name = text.strip_suffix('.').unwrap_or(text);
    (1..=253).contains(&name.len()) && name.split('.').all(label)
}

fn is_uuid(text: &str) -> bool {
    let lengths = text.split('-').map(str::len);
    lengths.eq([8, 4, 4, 4, 12]) && text.chars().all(|c| c == '-' || c.is_ascii_hexdigit())
}
