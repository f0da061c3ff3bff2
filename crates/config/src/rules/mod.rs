//! Evaluation of the CEL rules of schemas (`x-kubernetes-validations`).
//!
//! Every source of objects and the admission of the API server evaluate the same compiled rules.

mod cost;
mod path;
mod value;

use std::collections::{HashMap, HashSet};
use std::sync::{Arc, LazyLock, RwLock};

use kube_cel::KubeCelExt;
use kube_cel::cel::extractors::This;
use kube_cel::cel::{Context, ExecutionError, Program, Value};
use regex::Regex;
use serde_json::Value as Json;

use crate::schema::{ListKind, Rule, Schema, Shape};

pub use path::Path;

use cost::Budget;

/// The compiled rules of a schema.
pub struct Rules {
    /// Keyed by the address of the schema, which `root` keeps alive.
    rules: HashMap<usize, Vec<CompiledRule>>,
    /// Addresses of schemas that have rules, or contain a schema that has rules.
    marked: HashSet<usize>,
    root: Arc<Schema>,
}

struct CompiledRule {
    program: Option<Program>,
    rule: Rule,
    /// Whether the rule reads `oldSelf`.
    transition: bool,
    /// Nesting depth of comprehensions.
    loops: u32,
}

/// A rule that a value violates.
pub struct Violation<'a> {
    /// The value.
    pub path: &'a Path<'a>,
    /// The value.
    pub value: &'a Json,
    /// The message of the rule, or the expression if the rule has no message.
    pub message: String,
    /// Why the rule does not hold.
    pub outcome: Outcome,
}

/// Why a rule does not hold.
pub enum Outcome {
    /// It evaluates to false.
    False,
    /// It cannot be evaluated; the text says why.
    Failed(String),
    /// The object is too large to evaluate the rule within the budget.
    TooExpensive(&'static str),
}

fn address(schema: &Schema) -> usize {
    std::ptr::from_ref(schema).addr()
}

impl Rules {
    /// The rules of a schema. They are compiled at the first call.
    pub fn of(schema: &Arc<Schema>) -> Arc<Rules> {
        static KNOWN: LazyLock<RwLock<HashMap<usize, Arc<Rules>>>> = LazyLock::new(RwLock::default);
        // The entry keeps the schema alive, so the address is not reused.
        let address = Arc::as_ptr(schema).addr();
        if let Ok(known) = KNOWN.read()
            && let Some(rules) = known.get(&address)
        {
            return rules.clone();
        }
        let rules = Arc::new(Rules::compile(schema));
        if let Ok(mut known) = KNOWN.write() {
            known.insert(address, rules.clone());
        }
        rules
    }

    /// A rule that does not compile is not enforced (a test checks that there is none).
    fn compile(root: &Arc<Schema>) -> Rules {
        let mut rules = Rules { rules: HashMap::new(), marked: HashSet::new(), root: root.clone() };
        rules.collect(root);
        rules
    }

    fn collect(&mut self, schema: &Schema) -> bool {
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

    /// Whether the schema has no rules.
    pub fn is_empty(&self) -> bool {
        self.rules.is_empty()
    }

    /// Rules that do not compile.
    pub fn invalid(&self) -> impl Iterator<Item = &'static str> {
        let rules = self.rules.values().flatten().filter(|rule| rule.program.is_none());
        rules.map(|rule| rule.rule.rule)
    }

    /// Evaluates the rules of an object and of all values in it. Defaults must be filled in. `old` is the object before
    /// the update; without it, transition rules are skipped. Stops when `report` returns false.
    pub fn check(&self, object: &Json, old: Option<&Json>, report: &mut dyn FnMut(&Violation<'_>) -> bool) {
        let mut evaluation = Evaluation { rules: self, budget: Budget::default(), report, stopped: false };
        evaluation.check(object, old, &self.root, &Path::Root);
    }
}

impl CompiledRule {
    fn new(rule: &Rule) -> CompiledRule {
        let program = Program::compile(rule.rule).ok();
        CompiledRule {
            transition: program.as_ref().is_some_and(|program| program.references().has_variable("oldSelf")),
            loops: program.as_ref().map_or(0, |program| cost::loops(program.expression())),
            program,
            rule: rule.clone(),
        }
    }
}

/// The functions that rules may call.
fn functions() -> &'static Context<'static> {
    static FUNCTIONS: LazyLock<Context<'static>> = LazyLock::new(|| {
        let mut context = Context::default().with_all();
        // Rules contain few regular expressions and evaluate them often. Compilation dominates the cost.
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
    });
    &FUNCTIONS
}

/// An evaluation of all rules of an object.
struct Evaluation<'a> {
    rules: &'a Rules,
    budget: Budget,
    report: &'a mut dyn FnMut(&Violation<'_>) -> bool,
    stopped: bool,
}

impl Evaluation<'_> {
    fn check(&mut self, value: &Json, old: Option<&Json>, schema: &Schema, path: &Path<'_>) {
        if self.stopped || !self.rules.marked.contains(&address(schema)) || value.is_null() {
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
        let Some(rules) = self.rules.rules.get(&address(schema)) else {
            return;
        };
        let mut context = functions().new_inner_scope();
        context.add_variable_from_value("self", value::convert(value, Some(schema)));
        if let Some(old) = old {
            context.add_variable_from_value("oldSelf", value::convert(old, Some(schema)));
        }
        for rule in rules {
            let Some(program) = rule.program.as_ref().filter(|_| !rule.transition || old.is_some()) else {
                continue;
            };
            let outcome = match self.budget.spend(rule.loops, value).then(|| program.execute(&context)) {
                None => Outcome::TooExpensive(rule.rule.rule),
                Some(Ok(Value::Bool(true))) => continue,
                Some(Ok(Value::Bool(false))) => Outcome::False,
                Some(Ok(_)) => Outcome::Failed("the result is not a boolean".to_owned()),
                Some(Err(error)) => Outcome::Failed(error.to_string()),
            };
            let message = match rule.rule.message {
                "" => format!("failed rule: {}", rule.rule.rule.trim()),
                message => message.to_owned(),
            };
            self.stopped |= !(self.report)(&Violation { path, value, message, outcome });
        }
    }
}

/// The item of the old list with the keys of `item`. Items of lists without keys cannot be matched.
fn same_item<'o>(old: &'o Json, item: &Json, items: &Schema, kind: &ListKind) -> Option<&'o Json> {
    let ListKind::Map { keys, .. } = kind else {
        return None;
    };
    let wanted = items.identity(item, keys)?;
    old.as_array()?.iter().find(|old| items.identity(old, keys).as_ref() == Some(&wanted))
}
