//! Evaluation of templates.

use std::borrow::Cow;
use std::cell::Cell;

use serde_json::Value;

use crate::lex::LineError;
use crate::parse::{Node, Operand, Pipeline};
use crate::{Error, Host, MAX_INCLUDES, MAX_STEPS, MAX_TEXT, Problem, Templates, functions, text};

/// Bytes of copied values that count as one step.
const BYTES_PER_STEP: usize = 64;

/// The state of a rendering.
struct Run<'t> {
    templates: &'t Templates,
    host: &'t dyn Host,
    /// Remaining output budget in bytes.
    left: Cell<usize>,
    /// Remaining steps.
    steps: Cell<usize>,
}

pub(crate) fn render(templates: &Templates, name: &str, value: &Value, host: &dyn Host) -> Result<String, Error> {
    let run = Run { templates, host, left: Cell::new(MAX_TEXT), steps: Cell::new(MAX_STEPS) };
    run.template(name, value, 0).map_err(|error| match error {
        TemplateError::Own((line, problem)) => Error::new(name, line, problem),
        TemplateError::Included(error) => error,
    })
}

/// An error in this template or in an included one.
enum TemplateError {
    Own(LineError),
    Included(Error),
}

/// The way in which nodes end.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Flow {
    Next,
    Break,
    Continue,
}

impl Run<'_> {
    fn template(&self, name: &str, dot: &Value, depth: usize) -> Result<String, TemplateError> {
        let wrong = |message: String| TemplateError::Own((1, message.into()));
        let found = self.templates.named.get(name);
        let template = found.ok_or_else(|| wrong(format!("unknown template `{name}`")))?;
        if depth > MAX_INCLUDES {
            return Err(wrong(format!("more than {MAX_INCLUDES} nested templates")));
        }
        let mut frame = Frame { run: self, root: dot, variables: Vec::new(), depth, out: String::new(), nested: None };
        match frame.nodes(&template.nodes, dot) {
            Ok(_) => Ok(frame.out),
            Err((line, problem)) => {
                let error = frame.nested.take();
                let error = error.unwrap_or_else(|| Error::new(&template.file, line, problem));
                Err(TemplateError::Included(error))
            }
        }
    }

    fn step(&self, steps: usize) -> Result<(), Problem> {
        let left = self.steps.get().checked_sub(steps);
        self.steps.set(left.ok_or("the template takes too many steps")?);
        Ok(())
    }

    /// Counts a value that is copied.
    fn copied(&self, value: &Value) -> Result<(), Problem> {
        match value {
            Value::Array(_) | Value::Object(_) => self.step(1 + text::weight(value) / BYTES_PER_STEP),
            Value::String(text) => self.step(1 + text.len() / BYTES_PER_STEP),
            _ => self.step(1),
        }
    }
}

/// The evaluation of one template.
struct Frame<'r, 't> {
    run: &'r Run<'t>,
    /// The value of `$`.
    root: &'r Value,
    variables: Vec<(String, Value)>,
    depth: usize,
    out: String,
    /// The error of an included template.
    nested: Option<Error>,
}

impl<'r> Frame<'r, '_> {
    fn nodes(&mut self, nodes: &[Node], dot: &Value) -> Result<Flow, LineError> {
        let known = self.variables.len();
        for node in nodes {
            let flow = self.node(node, dot)?;
            if flow != Flow::Next {
                self.variables.truncate(known);
                return Ok(flow);
            }
        }
        self.variables.truncate(known);
        Ok(Flow::Next)
    }

    fn node(&mut self, node: &Node, dot: &Value) -> Result<Flow, LineError> {
        let at = |line: usize| move |problem: Problem| (line, problem);
        match node {
            Node::Text(plain) => self.write(plain).map_err(at(1))?,
            Node::Write(pipeline, line) => self.write_value(pipeline, dot).map_err(at(*line))?,
            Node::Assign(pipeline, line) => {
                let value = self.pipeline(pipeline, dot).map_err(at(*line))?;
                self.assign(pipeline, value.into_owned()).map_err(at(*line))?;
            }
            Node::If(branches, otherwise, line) => {
                for (condition, body) in branches {
                    let known = self.variables.len();
                    let value = self.pipeline(condition, dot).map_err(at(*line))?;
                    let holds = text::is_true(&value);
                    if let Some(name) = condition.variables.first() {
                        let value = value.into_owned();
                        self.variables.push((name.clone(), value));
                    }
                    if holds {
                        let flow = self.nodes(body, dot);
                        self.variables.truncate(known);
                        return flow;
                    }
                }
                return self.nodes(otherwise, dot);
            }
            Node::With(pipeline, body, otherwise, line) => {
                let value = self.pipeline(pipeline, dot).map_err(at(*line))?.into_owned();
                if !text::is_true(&value) {
                    return self.nodes(otherwise, dot);
                }
                let known = self.variables.len();
                if let Some(name) = pipeline.variables.first() {
                    self.variables.push((name.clone(), value.clone()));
                }
                let flow = self.nodes(body, &value);
                self.variables.truncate(known);
                return flow;
            }
            Node::Range(pipeline, body, otherwise, line) => return self.range(pipeline, body, otherwise, *line, dot),
            Node::Template(name, value, line) => {
                let value = match value {
                    Some(pipeline) => self.pipeline(pipeline, dot).map_err(at(*line))?.into_owned(),
                    None => Value::Null,
                };
                let made = self.include(name, &value).map_err(at(*line))?;
                self.out.push_str(&made);
            }
            Node::Break(_) => return Ok(Flow::Break),
            Node::Continue(_) => return Ok(Flow::Continue),
        }
        Ok(Flow::Next)
    }

    fn range(
        &mut self,
        pipeline: &Pipeline,
        body: &[Node],
        otherwise: &[Node],
        line: usize,
        dot: &Value,
    ) -> Result<Flow, LineError> {
        let at = |problem: Problem| (line, problem);
        let value = self.pipeline(pipeline, dot).map_err(at)?.into_owned();
        let elements = elements(value).map_err(at)?;
        if elements.is_empty() {
            return self.nodes(otherwise, dot);
        }
        for (key, element) in elements {
            self.run.step(1).map_err(at)?;
            let known = self.variables.len();
            match pipeline.variables.as_slice() {
                [] => {}
                [one] => self.variables.push((one.clone(), element.clone())),
                [first, second, ..] => {
                    self.variables.push((first.clone(), key));
                    self.variables.push((second.clone(), element.clone()));
                }
            }
            let flow = self.nodes(body, &element)?;
            self.variables.truncate(known);
            if flow == Flow::Break {
                break;
            }
        }
        Ok(Flow::Next)
    }

    fn write_value(&mut self, pipeline: &Pipeline, dot: &Value) -> Result<(), Problem> {
        let shown = match &*self.pipeline(pipeline, dot)? {
            Value::Null => self.run.host.missing().to_owned(),
            value => text::shown(value),
        };
        self.write(&shown)
    }

    fn write(&mut self, text: &str) -> Result<(), Problem> {
        self.spend(text.len())?;
        self.out.push_str(text);
        Ok(())
    }

    fn spend(&self, bytes: usize) -> Result<(), Problem> {
        self.run.step(1)?;
        let left = self.run.left.get().checked_sub(bytes);
        self.run.left.set(left.ok_or("the output is too large")?);
        Ok(())
    }

    fn include(&mut self, name: &str, dot: &Value) -> Result<String, Problem> {
        self.run.template(name, dot, self.depth + 1).map_err(|failure| match failure {
            TemplateError::Own((_, problem)) => problem,
            TemplateError::Included(error) => {
                let problem = Problem::from(error.message.clone());
                self.nested = Some(error);
                problem
            }
        })
    }

    fn assign(&mut self, pipeline: &Pipeline, value: Value) -> Result<(), Problem> {
        let [name] = pipeline.variables.as_slice() else {
            return Err("cannot assign one value to two variables".into());
        };
        if pipeline.declares {
            self.variables.push((name.clone(), value));
            return Ok(());
        }
        *self.variable(name)? = value;
        Ok(())
    }

    fn variable(&mut self, name: &str) -> Result<&mut Value, Problem> {
        let known = self.variables.iter_mut().rev().find(|(known, _)| known == name);
        known.map(|(_, value)| value).ok_or_else(|| format!("unknown variable `${name}`").into())
    }

    fn pipeline<'v>(&mut self, pipeline: &'v Pipeline, dot: &'v Value) -> Result<Cow<'v, Value>, Problem>
    where
        'r: 'v,
    {
        let mut value = None;
        for command in &pipeline.commands {
            value = Some(self.command(command, value, dot)?);
        }
        Ok(value.unwrap_or(Cow::Owned(Value::Null)))
    }

    fn command<'v>(
        &mut self,
        command: &'v [Operand],
        before: Option<Cow<'v, Value>>,
        dot: &'v Value,
    ) -> Result<Cow<'v, Value>, Problem>
    where
        'r: 'v,
    {
        let (first, rest) = command.split_first().ok_or("missing value")?;
        let Operand::Function(name) = first else {
            return match rest.is_empty() && before.is_none() {
                true => self.operand(first, dot),
                false => self.method(first, rest, before, dot).map(Cow::Owned),
            };
        };
        // These two functions evaluate their arguments lazily.
        if let "and" | "or" = name.as_str() {
            let mut last = Cow::Owned(Value::Null);
            for operand in rest {
                last = self.operand(operand, dot)?;
                if text::is_true(&last) == (name == "or") {
                    return Ok(last);
                }
            }
            return Ok(before.unwrap_or(last));
        }
        if let ("set" | "unset", Some(Operand::Variable(variable, fields))) = (name.as_str(), rest.first())
            && fields.is_empty()
        {
            return self.change(name, variable, &rest[1..], before, dot).map(Cow::Owned);
        }
        let arguments = self.arguments(rest, before, dot)?;
        if name == "include" {
            return match arguments.as_slice() {
                [Value::String(name), value] => self.include(name, value).map(|text| Cow::Owned(text.into())),
                _ => Err("include: expected a name and a value".into()),
            };
        }
        let called = self.run.host.call(name, &arguments).or_else(|| functions::call(name, &arguments));
        let called = called.ok_or_else(|| format!("unknown function `{name}`"))?;
        let made = called.map_err(|message| format!("{name}: {message}"))?;
        self.spend(text::weight(&made))?;
        Ok(Cow::Owned(made))
    }

    fn arguments<'v>(
        &mut self,
        operands: &'v [Operand],
        before: Option<Cow<'v, Value>>,
        dot: &'v Value,
    ) -> Result<Vec<Value>, Problem>
    where
        'r: 'v,
    {
        let mut arguments = Vec::with_capacity(operands.len() + 1);
        for operand in operands {
            let value = self.operand(operand, dot)?;
            self.run.copied(&value)?;
            arguments.push(value.into_owned());
        }
        arguments.extend(before.map(Cow::into_owned));
        Ok(arguments)
    }

    /// Calls a method of the host: the last field of the operand, with arguments.
    fn method<'v>(
        &mut self,
        called: &'v Operand,
        rest: &'v [Operand],
        before: Option<Cow<'v, Value>>,
        dot: &'v Value,
    ) -> Result<Value, Problem>
    where
        'r: 'v,
    {
        let none = || Problem::from("only functions take arguments");
        let (receiver, name) = match called {
            Operand::Dot(fields) => {
                let (name, fields) = fields.split_last().ok_or_else(none)?;
                (self.descend(Cow::Borrowed(dot), fields)?, name)
            }
            Operand::Variable(variable, fields) => {
                let (name, fields) = fields.split_last().ok_or_else(none)?;
                let value = self.value_of(variable)?;
                (self.descend(value, fields)?, name)
            }
            Operand::Group(pipeline, fields) => {
                let (name, fields) = fields.split_last().ok_or_else(none)?;
                let value = self.pipeline(pipeline, dot)?;
                (self.descend(value, fields)?, name)
            }
            Operand::Function(_) | Operand::Literal(_) => return Err(none()),
        };
        let arguments = self.arguments(rest, before, dot)?;
        let made = self.run.host.method(&receiver, name, &arguments).ok_or_else(none)?;
        let made = made.map_err(|message| format!("{name}: {message}"))?;
        self.spend(text::weight(&made))?;
        Ok(made)
    }

    /// `set` and `unset` of a variable.
    fn change<'v>(
        &mut self,
        function: &str,
        variable: &str,
        rest: &'v [Operand],
        before: Option<Cow<'v, Value>>,
        dot: &'v Value,
    ) -> Result<Value, Problem>
    where
        'r: 'v,
    {
        let arguments = self.arguments(rest, before, dot)?;
        let map = self.variable(variable)?;
        let Value::Object(fields) = map else {
            return Err(format!("{function}: `${variable}` is not a map").into());
        };
        match (function, arguments.as_slice()) {
            ("set", [key, value]) => drop(fields.insert(text::shown(key), value.clone())),
            ("unset", [key]) => drop(fields.remove(&text::shown(key))),
            _ => return Err(format!("{function}: wrong number of arguments").into()),
        }
        let made = map.clone();
        self.spend(text::weight(&made))?;
        Ok(made)
    }

    fn value_of<'v>(&self, variable: &str) -> Result<Cow<'v, Value>, Problem>
    where
        'r: 'v,
    {
        if variable.is_empty() {
            return Ok(Cow::Borrowed(self.root));
        }
        let found = self.variables.iter().rev().find(|(known, _)| known == variable);
        let (_, value) = found.ok_or_else(|| format!("unknown variable `${variable}`"))?;
        self.run.copied(value)?;
        Ok(Cow::Owned(value.clone()))
    }

    fn operand<'v>(&mut self, operand: &'v Operand, dot: &'v Value) -> Result<Cow<'v, Value>, Problem>
    where
        'r: 'v,
    {
        self.run.step(1)?;
        match operand {
            Operand::Function(_) => self.command(std::slice::from_ref(operand), None, dot),
            Operand::Dot(fields) => self.descend(Cow::Borrowed(dot), fields),
            Operand::Literal(value) => Ok(Cow::Borrowed(value)),
            Operand::Group(pipeline, fields) => {
                let value = self.pipeline(pipeline, dot)?;
                self.descend(value, fields)
            }
            Operand::Variable(name, fields) => {
                let value = self.value_of(name)?;
                self.descend(value, fields)
            }
        }
    }

    /// A nested field. A missing field is null; a field of null is an error.
    fn descend<'v>(&self, value: Cow<'v, Value>, fields: &[String]) -> Result<Cow<'v, Value>, Problem> {
        let mut value = value;
        for field in fields {
            let found = match value {
                Cow::Borrowed(Value::Object(object)) => object.get(field).map(Cow::Borrowed),
                Cow::Owned(Value::Object(ref mut object)) => object.remove(field).map(Cow::Owned),
                _ => None,
            };
            value = match found {
                Some(found) => found,
                None => match self.run.host.method(&value, field, &[]) {
                    Some(made) => Cow::Owned(made?),
                    None => match &*value {
                        Value::Object(_) => Cow::Owned(Value::Null),
                        Value::Null => return Err(format!("cannot read `.{field}` of a missing value").into()),
                        _ => return Err(format!("cannot read `.{field}` of a value without fields").into()),
                    },
                },
            };
        }
        Ok(value)
    }
}

/// The keys (or indexes) and values for `range`.
fn elements(value: Value) -> Result<Vec<(Value, Value)>, Problem> {
    match value {
        Value::Null => Ok(Vec::new()),
        Value::Array(items) => Ok(items.into_iter().enumerate().map(|(at, item)| (at.into(), item)).collect()),
        Value::Object(fields) => {
            let mut fields: Vec<(String, Value)> = fields.into_iter().collect();
            fields.sort_by(|a, b| a.0.cmp(&b.0));
            Ok(fields.into_iter().map(|(key, value)| (key.into(), value)).collect())
        }
        Value::Number(count) if count.is_u64() || count.is_i64() => {
            let count = count.as_i64().filter(|count| *count <= MAX_STEPS as i64).ok_or("the number is too large")?;
            Ok((0..count).map(|at| (at.into(), at.into())).collect())
        }
        _ => Err("`range` expects a list or a map".into()),
    }
}
