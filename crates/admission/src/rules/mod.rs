//! Rules in CEL: compiled once per kind, evaluated against values.

mod cost;
mod value;

use std::collections::{HashMap, HashSet};
use std::sync::{Arc, RwLock};

use config::schema::{ListKind, Rule, Schema, Shape};
use kube_cel::KubeCelExt;
use kube_cel::cel::extractors::This;
use kube_cel::cel::{Context, ExecutionError, Program, Value};
use regex::Regex;
use serde_json::Value as Json;

use crate::cause::{Causes, Reason, type_name};
use crate::path::Path;
use crate::walk::{Patterns, identity};

pub(crate) use cost::Budget;

/// A kind's patterns and rules.
pub(crate) struct Compiled {
    pub(crate) patterns: Patterns,
    /// By the address of their schema, which lives as long as `root`.
    rules: HashMap<usize, Vec<CompiledRule>>,
    /// Schemas with rules on them or below them.
    marked: HashSet<usize>,
    root: Arc<Schema>,
}

struct CompiledRule {
    program: Option<Program>,
    rule: Rule,
    /// Whether it speaks of the old value.
    transition: bool,
    /// Loops in loops.
    loops: u32,
}

fn address(schema: &Schema) -> usize {
    std::ptr::from_ref(schema).addr()
}

impl Compiled {
    /// Compiles what a schema says. A pattern or rule that does not compile is not enforced (a test holds that there is
    /// none).
    pub(crate) fn new(root: &Arc<Schema>) -> Compiled {
        let mut compiled = Compiled {
            patterns: HashMap::new(),
            rules: HashMap::new(),
            marked: HashSet::new(),
            root: root.clone(),
        };
        compiled.collect(root);
        compiled
    }

    /// Whether there are rules at all.
    pub(crate) fn has_rules(&self) -> bool {
        !self.rules.is_empty()
    }

    /// Patterns and rules that do not compile.
    pub(crate) fn broken(&self) -> Vec<String> {
        let mut patterns = Vec::new();
        collect_patterns(&self.root, &mut patterns);
        let patterns = patterns
            .into_iter()
            .filter(|pattern| !self.patterns.contains_key(pattern))
            .map(str::to_owned);
        let rules = self.rules.values().flatten().filter(|rule| rule.program.is_none());
        patterns.chain(rules.map(|rule| rule.rule.rule.to_owned())).collect()
    }

    fn collect(&mut self, schema: &Schema) -> bool {
        if let Shape::Text {
            pattern: Some(pattern), ..
        } = &schema.shape
            && let Ok(regex) = Regex::new(pattern)
        {
            self.patterns.insert(pattern, regex);
        }
        let mut marked = !schema.rules.is_empty();
        if marked {
            let rules = schema.rules.iter().map(CompiledRule::new).collect();
            self.rules.insert(address(schema), rules);
        }
        match &schema.shape {
            Shape::Object(fields) => {
                for (_, field) in &fields.fields {
                    marked |= self.collect(field);
                }
            }
            Shape::Map(inner, _) | Shape::List(inner, ..) => marked |= self.collect(inner),
            _ => {}
        }
        if marked {
            self.marked.insert(address(schema));
        }
        marked
    }
}

fn collect_patterns(schema: &Schema, out: &mut Vec<&'static str>) {
    match &schema.shape {
        Shape::Text { pattern, .. } => out.extend(*pattern),
        Shape::Object(fields) => fields.fields.iter().for_each(|(_, field)| collect_patterns(field, out)),
        Shape::Map(inner, _) | Shape::List(inner, ..) => collect_patterns(inner, out),
        _ => {}
    }
}

impl CompiledRule {
    fn new(rule: &Rule) -> CompiledRule {
        let program = Program::compile(rule.rule).ok();
        CompiledRule {
            transition: program
                .as_ref()
                .is_some_and(|program| program.references().has_variable("oldSelf")),
            loops: program.as_ref().map_or(0, |program| cost::loops(program.expression())),
            program,
            rule: rule.clone(),
        }
    }
}

/// The functions that rules may call.
pub(crate) fn functions() -> Context<'static> {
    let mut context = Context::default().with_all();
    // Rules name few expressions, but evaluate them often; compiling one costs more than everything else.
    const MAX: usize = 1000;
    let known: RwLock<HashMap<String, Regex>> = RwLock::default();
    context.add_function("matches", move |This(text): This<Arc<String>>, pattern: Arc<String>| {
        if let Ok(known) = known.read()
            && let Some(regex) = known.get(pattern.as_str())
        {
            return Ok(regex.is_match(&text));
        }
        let regex = Regex::new(&pattern).map_err(|error| ExecutionError::function_error("matches", error))?;
        let found = regex.is_match(&text);
        if let Ok(mut known) = known.write()
            && known.len() < MAX
        {
            known.insert(pattern.to_string(), regex);
        }
        Ok(found)
    });
    context
}

/// An evaluation of all rules of an object.
pub(crate) struct Evaluation<'a> {
    pub(crate) compiled: &'a Compiled,
    pub(crate) functions: &'a Context<'static>,
    pub(crate) budget: Budget,
    pub(crate) causes: &'a mut Causes,
}

impl Evaluation<'_> {
    /// Evaluates the rules of a value and of all in it. `old` is what the value was, where that can be told.
    pub(crate) fn check(&mut self, value: &Json, old: Option<&Json>, schema: &Schema, path: &Path<'_>) {
        if self.causes.is_full() || !self.compiled.marked.contains(&address(schema)) || value.is_null() {
            return;
        }
        self.rules_of(value, old, schema, path);
        match (&schema.shape, value) {
            (Shape::Object(fields), Json::Object(object)) => {
                for (name, value) in object {
                    if let Some(schema) = fields.get(name) {
                        self.check(value, old.and_then(|old| old.get(name)), schema, &path.field(name));
                    }
                }
            }
            (Shape::Map(values, _), Json::Object(object)) => {
                for (key, value) in object {
                    self.check(value, old.and_then(|old| old.get(key)), values, &path.key(key));
                }
            }
            (Shape::List(items, kind, _), Json::Array(list)) => {
                for (index, item) in list.iter().enumerate() {
                    let old = old.and_then(|old| same_item(old, item, items, kind));
                    self.check(item, old, items, &path.index(index));
                }
            }
            _ => {}
        }
    }

    fn rules_of(&mut self, value: &Json, old: Option<&Json>, schema: &Schema, path: &Path<'_>) {
        let Some(rules) = self.compiled.rules.get(&address(schema)) else {
            return;
        };
        let mut context = self.functions.new_inner_scope();
        context.add_variable_from_value("self", value::convert(value, Some(schema)));
        if let Some(old) = old {
            context.add_variable_from_value("oldSelf", value::convert(old, Some(schema)));
        }
        for rule in rules {
            let Some(program) = rule.program.as_ref().filter(|_| !rule.transition || old.is_some()) else {
                continue;
            };
            if !self.budget.spend(rule.loops, value) {
                let text = format!(
                    "Invalid value: the object is too large for the rule to be checked: {}",
                    rule.rule.rule
                );
                self.causes.add(path, Reason::Invalid, text);
                continue;
            }
            let problem = match program.execute(&context) {
                Ok(Value::Bool(true)) => continue,
                Ok(Value::Bool(false)) => None,
                Ok(_) => Some("it is neither true nor false".to_owned()),
                Err(error) => Some(error.to_string()),
            };
            let said = match rule.rule.message {
                "" => format!("failed rule: {}", rule.rule.rule.trim()),
                message => message.to_owned(),
            };
            let problem = match problem {
                None => {
                    self.causes.broken_rule(path, value, &said);
                    continue;
                }
                Some(_) if self.causes.secret => "an error occurred".to_owned(),
                Some(error) => error,
            };
            let text = format!(
                "Invalid value: {:?}: {problem} evaluating rule: {said}",
                type_name(value)
            );
            self.causes.add(path, Reason::Invalid, text);
        }
    }
}

/// What an item of a list was. Items of lists without keys cannot be followed.
fn same_item<'o>(old: &'o Json, item: &Json, items: &Schema, kind: &ListKind) -> Option<&'o Json> {
    let ListKind::Map { keys, .. } = kind else {
        return None;
    };
    let wanted = identity(item, items, keys)?;
    old.as_array()?
        .iter()
        .find(|old| identity(old, items, keys).as_ref() == Some(&wanted))
}
