//! Protobuf messages from the tables of types.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::table::{Line, Table, numbers};
use super::{read, rows};
use crate::schema::wire::{Entry, Field, Form, Message, Messages};

/// Kinds that are not stored: group, kind.
const OTHERS: [(&str, &str); 8] = [
    ("", "DeleteOptions"),
    ("authentication.k8s.io", "SelfSubjectReview"),
    ("authentication.k8s.io", "TokenReview"),
    ("authorization.k8s.io", "LocalSubjectAccessReview"),
    ("authorization.k8s.io", "SelfSubjectAccessReview"),
    ("authorization.k8s.io", "SelfSubjectRulesReview"),
    ("authorization.k8s.io", "SubjectAccessReview"),
    ("autoscaling", "Scale"),
];

/// The messages of all kinds, by group and kind, and the errors in the tables.
pub(in crate::schema) fn messages() -> (Messages, Vec<String>) {
    let mut builder = Builder { table: read(), made: BTreeMap::new(), faults: Vec::new() };
    let mut all = BTreeMap::new();
    for row in rows() {
        let mut message = (*builder.message(row.block)).clone();
        // The tables do not have the metadata of objects, which is field 1.
        let metadata = Form::Message(builder.message("ObjectMeta"));
        builder.put(&mut message, &[1], field("metadata", metadata));
        all.insert((row.group, row.kind), Arc::new(message));
    }
    for (group, kind) in OTHERS {
        all.insert((group, kind), builder.message(kind));
    }
    (all, builder.faults)
}

fn field(name: &'static str, form: Form) -> Field {
    Field { name, form, keeps_zero: false, nullable: false }
}

struct Builder {
    table: Table,
    made: BTreeMap<&'static str, Arc<Message>>,
    faults: Vec<String>,
}

impl Builder {
    fn message(&mut self, block: &'static str) -> Arc<Message> {
        if let Some(made) = self.made.get(block) {
            return made.clone();
        }
        let mut message = Message::default();
        let Some(lines) = self.table.lines(block).map(<[_]>::to_vec) else {
            self.faults.push(format!("there is no type {block}"));
            return message.into();
        };
        for line in lines {
            match line.strip_prefix("+ ") {
                Some(other) => {
                    let (other, at) = other.split_once(" #").unwrap_or((other, ""));
                    let inner = (*self.message(other)).clone();
                    match numbers(at)[..] {
                        [number] => drop(message.0.insert(number, Entry::Inline(inner))),
                        _ => self.faults.push(format!("{block}: {other} needs one number")),
                    }
                }
                None => self.line(block, line, &mut message),
            }
        }
        let message = Arc::new(message);
        self.made.insert(block, message.clone());
        message
    }

    fn line(&mut self, block: &str, line: &'static str, message: &mut Message) {
        let Some(read) = Line::read(line) else {
            return self.faults.push(format!("{block}: a field needs a type: {line}"));
        };
        let numbers = read.numbers();
        // `apiVersion` and `kind` are not part of the message.
        if numbers.is_empty() && matches!(read.name, "apiVersion" | "kind") {
            return;
        }
        let field = Field {
            keeps_zero: read.required || read.presence,
            nullable: read.has("null"),
            ..field(read.name, self.form(read.of_type))
        };
        self.put(message, &numbers, field);
    }

    fn put(&mut self, message: &mut Message, numbers: &[u32], field: Field) {
        let taken = |at: &u32| format!("{}: there is no free number {at}", field.name);
        match numbers {
            [] => self.faults.push(format!("{} has no number", field.name)),
            [number] => {
                if message.0.contains_key(number) {
                    return self.faults.push(taken(number));
                }
                message.0.insert(*number, Entry::Field(field));
            }
            [number, rest @ ..] => {
                let inner = message.0.entry(*number);
                match inner.or_insert_with(|| Entry::Inline(Message::default())) {
                    Entry::Inline(inner) => self.put(inner, rest, field),
                    Entry::Field(_) => self.faults.push(taken(number)),
                }
            }
        }
    }

    fn form(&mut self, of_type: &'static str) -> Form {
        if let Some(items) = of_type.strip_prefix('[').and_then(|t| t.strip_suffix(']')) {
            return Form::List(self.form(items).into());
        }
        if let Some(values) = of_type.strip_prefix('{').and_then(|t| t.strip_suffix('}')) {
            return Form::Map(self.form(values).into());
        }
        match of_type {
            "text" => Form::Text,
            "int32" => Form::Int32,
            "int64" => Form::Int64,
            "bool" => Form::Boolean,
            "bytes" => Form::Bytes,
            "time" => Form::Time,
            "micro-time" => Form::MicroTime,
            "quantity" => Form::Quantity,
            "IntOrString" => Form::IntOrText,
            "FieldsV1" => Form::Json,
            block => Form::Message(self.message(block)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_field_has_a_number_of_its_own() {
        let (all, faults) = messages();
        assert!(faults.is_empty(), "{faults:#?}");
        assert_eq!(all.len(), rows().len() + OTHERS.len());
    }

    #[test]
    fn numbers_are_those_of_kubernetes() {
        let (all, _) = messages();
        let pod = &all[&("", "Pod")];
        let names = |message: &Message| -> Vec<(u32, String)> {
            let name = |entry: &Entry| match entry {
                Entry::Field(field) => field.name.to_owned(),
                Entry::Inline(inner) => format!("{} fields", inner.0.len()),
            };
            message.entries().map(|(number, entry)| (number, name(entry))).collect()
        };
        let expected = [(1, "metadata"), (2, "spec"), (3, "status")].map(|(n, name)| (n, name.to_owned()));
        assert_eq!(names(pod), expected);
        let Some(Entry::Field(spec)) = pod.get(2) else { panic!("no spec") };
        let Form::Message(spec) = &spec.form else { panic!("spec is no message") };
        let Some(Entry::Field(volumes)) = spec.get(1) else { panic!("no volumes") };
        assert_eq!(volumes.name, "volumes");
        let Form::List(volume) = &volumes.form else { panic!("volumes are no list") };
        let Form::Message(volume) = &**volume else { panic!("a volume is no message") };
        assert_eq!(volume.get(1).map(|_| ()), Some(()));
        assert!(matches!(volume.get(2), Some(Entry::Inline(source)) if source.get(2).is_some()));
    }
}
