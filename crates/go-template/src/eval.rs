//! Evaluation of templates.

use std::cell::Cell;

use serde_json::Value;

use crate::lex::LineError;
use crate::parse::{Node, Operand, Pipeline};
use crate::{Error, Host, MAX_INCLUDES, MAX_TEXT, Problem, Templates, functions, text};

/// The state of a rendering.
struct Run<'t> {
    templates: &'t Templates,
    host: &'t dyn Host,
    /// Remaining output budget in bytes.
    left: Cell<usize>,
}

pub(crate) fn render(templates: &Templates, name: &str, value: &Value, host: &dyn Host) -> Result<String, Error> {
    let run = Run { templates, host, left: Cell::new(MAX_TEXT) };
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

impl Run<'_> {
    fn template(&self, name: &str, dot: &Value, depth: usize) -> Result<String, TemplateError> {
        let wrong = |message: String| TemplateError::Own((1, message.into()));
        let found = self.templates.named.get(name);
        let template = found.ok_or_else(|| wrong(format!("unknown template `{name}`")))?;
        if depth > MAX_INCLUDES {
            return Err(wrong(format!("more than {MAX_INCLUDES} nested templates")));
        }
        let mut frame =
            Frame { run: self, variables: vec![(String::new(), dot.clone())], depth, out: String::new(), nested: None };
        match frame.nodes(&template.nodes, dot) {
            Ok(()) => Ok(frame.out),
            Err((line, problem)) => {
                let error = frame.nested.take();
                let error = error.unwrap_or_else(|| Error::new(&template.file, line, problem));
                Err(TemplateError::Included(error))
            }
        }
    }
}

/// The evaluation of one template.
struct Frame<'r, 't> {
    run: &'r Run<'t>,
    variables: Vec<(String, Value)>,
    depth: usize,
    out: String,
    /// The error of an included template.
    nested: Option<Error>,
}

impl Frame<'_, '_> {
    fn nodes(&mut self, nodes: &[Node], dot: &Value) -> Result<(), LineError> {
        let known = self.variables.len();
        for node in nodes {
            self.node(node, dot)?;
        }
        self.variables.truncate(known);
        Ok(())
    }

    fn node(&mut self, node: &Node, dot: &Value) -> Result<(), LineError> {
        let at = |line: usize| move |problem: Problem| (line, problem);
        match node {
            Node::Text(plain) => self.write(plain).map_err(at(1)),
            Node::Write(pipeline, line) => {
                let value = self.pipeline(pipeline, dot).map_err(at(*line))?;
                self.write(&text::shown(&value)).map_err(at(*line))
            }
            Node::Assign(pipeline, line) => {
                let value = self.pipeline(pipeline, dot).map_err(at(*line))?;
                self.assign(pipeline, value).map_err(at(*line))
            }
            Node::If(branches, otherwise, line) => {
                for (condition, body) in branches {
                    if text::is_true(&self.pipeline(condition, dot).map_err(at(*line))?) {
                        return self.nodes(body, dot);
                    }
                }
                self.nodes(otherwise, dot)
            }
            Node::With(pipeline, body, otherwise, line) => {
                let value = self.pipeline(pipeline, dot).map_err(at(*line))?;
                if !text::is_true(&value) {
                    return self.nodes(otherwise, dot);
                }
                let known = self.variables.len();
                if let Some(name) = pipeline.variables.first() {
                    self.variables.push((name.clone(), value.clone()));
                }
                self.nodes(body, &value)?;
                self.variables.truncate(known);
                Ok(())
            }
            Node::Range(pipeline, body, otherwise, line) => {
                let value = self.pipeline(pipeline, dot).map_err(at(*line))?;
                let elements = elements(value).map_err(at(*line))?;
                if elements.is_empty() {
                    return self.nodes(otherwise, dot);
                }
                for (key, element) in elements {
                    let known = self.variables.len();
                    match pipeline.variables.as_slice() {
                        [] => {}
                        [one] => self.variables.push((one.clone(), element.clone())),
                        [first, second, ..] => {
                            self.variables.push((first.clone(), key));
                            self.variables.push((second.clone(), element.clone()));
                        }
                    }
                    self.nodes(body, &element)?;
                    self.variables.truncate(known);
                }
                Ok(())
            }
            Node::Template(name, value, line) => {
                let value = match value {
                    Some(pipeline) => self.pipeline(pipeline, dot).map_err(at(*line))?,
                    None => Value::Null,
                };
                let made = self.include(name, &value).map_err(at(*line))?;
                self.out.push_str(&made);
                Ok(())
            }
        }
    }

    fn write(&mut self, text: &str) -> Result<(), Problem> {
        self.spend(text.len())?;
        self.out.push_str(text);
        Ok(())
    }

    fn spend(&self, bytes: usize) -> Result<(), Problem> {
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
        let known = self.variables.iter_mut().rev().find(|(known, _)| known == name);
        known.ok_or_else(|| format!("unknown variable `${name}`"))?.1 = value;
        Ok(())
    }

    fn pipeline(&mut self, pipeline: &Pipeline, dot: &Value) -> Result<Value, Problem> {
        let mut value = None;
        for command in &pipeline.commands {
            value = Some(self.command(command, value, dot)?);
        }
        Ok(value.unwrap_or(Value::Null))
    }

    fn command(&mut self, command: &[Operand], before: Option<Value>, dot: &Value) -> Result<Value, Problem> {
        let (first, rest) = command.split_first().ok_or("missing value")?;
        let Operand::Function(name) = first else {
            return match rest.is_empty() && before.is_none() {
                true => self.operand(first, dot),
                false => Err("only functions take arguments".into()),
            };
        };
        // These two functions evaluate their arguments lazily.
        if let "and" | "or" = name.as_str() {
            let mut last = Value::Null;
            for operand in rest {
                last = self.operand(operand, dot)?;
                if text::is_true(&last) == (name == "or") {
                    return Ok(last);
                }
            }
            return Ok(before.unwrap_or(last));
        }
        let mut arguments = Vec::with_capacity(rest.len() + 1);
        for operand in rest {
            arguments.push(self.operand(operand, dot)?);
        }
        arguments.extend(before);
        if name == "include" {
            return match arguments.as_slice() {
                [Value::String(name), value] => self.include(name, value).map(Value::String),
                _ => Err("include: expected a name and a value".into()),
            };
        }
        let called = functions::call(name, &arguments).or_else(|| self.run.host.call(name, &arguments));
        let called = called.ok_or_else(|| format!("unknown function `{name}`"))?;
        let made = called.map_err(|message| format!("{name}: {message}"))?;
        self.spend(text::weight(&made))?;
        Ok(made)
    }

    fn operand(&mut self, operand: &Operand, dot: &Value) -> Result<Value, Problem> {
        match operand {
            Operand::Function(_) => self.command(std::slice::from_ref(operand), None, dot),
            Operand::Dot(fields) => descend(dot, fields),
            Operand::Literal(value) => Ok(value.clone()),
            Operand::Group(pipeline, fields) => {
                let value = self.pipeline(pipeline, dot)?;
                descend(&value, fields)
            }
            Operand::Variable(name, fields) => {
                let found = self.variables.iter().rev().find(|(known, _)| known == name);
                let (_, value) = found.ok_or_else(|| format!("unknown variable `${name}`"))?;
                descend(value, fields)
            }
        }
    }
}

/// A nested field. A missing field is null; a field of null is an error.
fn descend(value: &Value, fields: &[String]) -> Result<Value, Problem> {
    let mut value = value;
    for field in fields {
        value = match value {
            Value::Object(object) => object.get(field).unwrap_or(&Value::Null),
            Value::Null => return Err(format!("cannot read `.{field}` of a missing value").into()),
            _ => return Err(format!("cannot read `.{field}` of a value without fields").into()),
        };
    }
    Ok(value.clone())
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
        _ => Err("`range` expects a list or a map".into()),
    }
}
