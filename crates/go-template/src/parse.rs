//! Parses pieces into a tree.

use std::vec::IntoIter;

use serde_json::Value;

use crate::MAX_NESTING;
use crate::Problem;
use crate::lex::{LineError, Piece, Word};

/// A node of a template.
#[derive(Clone, PartialEq, Debug)]
pub(crate) enum Node {
    /// Literal text.
    Text(String),
    /// The output of a pipeline; the number is its line.
    Write(Pipeline, usize),
    /// An assignment to a variable.
    Assign(Pipeline, usize),
    /// `if`: the first branch whose condition is true.
    If(Vec<(Pipeline, Vec<Node>)>, Vec<Node>, usize),
    /// `with`: changes `.`, unless the value is empty.
    With(Pipeline, Vec<Node>, Vec<Node>, usize),
    /// `range`: for each element.
    Range(Pipeline, Vec<Node>, Vec<Node>, usize),
    /// `template`: includes another template.
    Template(String, Option<Pipeline>, usize),
    /// `break`: ends the innermost `range`.
    Break(usize),
    /// `continue`: ends this turn of the innermost `range`.
    Continue(usize),
}

/// Commands; each receives the result of the one before.
#[derive(Clone, PartialEq, Debug, Default)]
pub(crate) struct Pipeline {
    /// The variables that receive the value.
    pub(crate) variables: Vec<String>,
    /// Whether the variables are declared here.
    pub(crate) declares: bool,
    pub(crate) commands: Vec<Vec<Operand>>,
}

/// An operand of a command.
#[derive(Clone, PartialEq, Debug)]
pub(crate) enum Operand {
    Function(String),
    Dot(Vec<String>),
    Variable(String, Vec<String>),
    Literal(Value),
    Group(Pipeline, Vec<String>),
}

/// The nodes of a text.
#[derive(Default)]
pub(crate) struct Read {
    pub(crate) nodes: Vec<Node>,
    pub(crate) defined: Vec<(String, Vec<Node>)>,
}

pub(crate) fn read(pieces: Vec<Piece>) -> Result<Read, LineError> {
    let mut parser = Parser { pieces: pieces.into_iter(), defined: Vec::new(), line: 1 };
    let (nodes, end) = parser.block(0)?;
    match end {
        End::Text => Ok(Read { nodes, defined: parser.defined }),
        End::Over => Err((parser.line, "`end` without a block".into())),
        End::Else(_) => Err((parser.line, "`else` without `if`, `with` or `range`".into())),
    }
}

struct Parser {
    pieces: IntoIter<Piece>,
    defined: Vec<(String, Vec<Node>)>,
    line: usize,
}

/// The end of a block.
enum End {
    Text,
    Over,
    /// `else`, with the words that follow.
    Else(Vec<Word>),
}

impl Parser {
    /// Parses nodes up to the end of a block.
    fn block(&mut self, depth: usize) -> Result<(Vec<Node>, End), LineError> {
        if depth > MAX_NESTING {
            return Err((self.line, format!("more than {MAX_NESTING} nested blocks").into()));
        }
        let mut nodes = Vec::new();
        while let Some(piece) = self.pieces.next() {
            let (words, line) = match piece {
                Piece::Text(text) => {
                    nodes.push(Node::Text(text));
                    continue;
                }
                Piece::Action(words, line) => (words, line),
            };
            self.line = line;
            let keyword = match words.first() {
                Some(Word::Name(name)) => name.as_str(),
                _ => "",
            };
            match keyword {
                "end" => return Ok((nodes, End::Over)),
                "else" => return Ok((nodes, End::Else(words[1..].to_vec()))),
                "if" => nodes.push(self.conditions(&words[1..], line, depth)?),
                "with" | "range" => {
                    let pipeline = self.pipeline(&words[1..])?;
                    let (body, otherwise) = self.branches(depth)?;
                    nodes.push(match keyword {
                        "with" => Node::With(pipeline, body, otherwise, line),
                        _ => Node::Range(pipeline, body, otherwise, line),
                    });
                }
                "define" => self.define(&words[1..], depth)?,
                "block" => nodes.push(self.inline_block(&words[1..], line, depth)?),
                "break" if words.len() == 1 => nodes.push(Node::Break(line)),
                "continue" if words.len() == 1 => nodes.push(Node::Continue(line)),
                "template" => nodes.push(self.template(&words[1..], line)?),
                _ => {
                    let pipeline = self.pipeline(&words)?;
                    nodes.push(match pipeline.variables.is_empty() {
                        true => Node::Write(pipeline, line),
                        false => Node::Assign(pipeline, line),
                    });
                }
            }
        }
        Ok((nodes, End::Text))
    }

    fn not_closed<T>(&self, what: &str, line: usize) -> Result<T, LineError> {
        Err((line, format!("`{what}` without `end`").into()))
    }

    fn conditions(&mut self, words: &[Word], line: usize, depth: usize) -> Result<Node, LineError> {
        let mut branches = Vec::new();
        let mut condition = self.pipeline(words)?;
        loop {
            let (body, end) = self.block(depth + 1)?;
            branches.push((condition, body));
            match end {
                End::Text => return self.not_closed("if", line),
                End::Over => return Ok(Node::If(branches, Vec::new(), line)),
                End::Else(words) if words.is_empty() => {
                    let (otherwise, end) = self.block(depth + 1)?;
                    return match end {
                        End::Over => Ok(Node::If(branches, otherwise, line)),
                        _ => self.not_closed("if", line),
                    };
                }
                End::Else(words) if words[0] == Word::Name("if".to_owned()) => {
                    condition = self.pipeline(&words[1..])?;
                }
                End::Else(_) => return Err((self.line, "only `if` may follow `else`".into())),
            }
        }
    }

    fn branches(&mut self, depth: usize) -> Result<(Vec<Node>, Vec<Node>), LineError> {
        let line = self.line;
        let (body, end) = self.block(depth + 1)?;
        match end {
            End::Over => Ok((body, Vec::new())),
            End::Else(words) if words.is_empty() => {
                let (otherwise, end) = self.block(depth + 1)?;
                match end {
                    End::Over => Ok((body, otherwise)),
                    _ => self.not_closed("else", line),
                }
            }
            End::Else(words) if words[0] == Word::Name("with".to_owned()) => {
                let (line, pipeline) = (self.line, self.pipeline(&words[1..])?);
                let (inner, otherwise) = self.branches(depth + 1)?;
                Ok((body, vec![Node::With(pipeline, inner, otherwise, line)]))
            }
            End::Else(_) => Err((self.line, "this `else` does not take a condition".into())),
            End::Text => self.not_closed("with` or `range", line),
        }
    }

    fn define(&mut self, words: &[Word], depth: usize) -> Result<(), LineError> {
        let line = self.line;
        let [Word::Literal(Value::String(name))] = words else {
            return Err((line, "`define` expects a quoted name".into()));
        };
        let (nodes, end) = self.block(depth + 1)?;
        let End::Over = end else {
            return self.not_closed("define", line);
        };
        self.defined.push((name.clone(), nodes));
        Ok(())
    }

    /// `block`: a definition that is included at its place.
    fn inline_block(&mut self, words: &[Word], line: usize, depth: usize) -> Result<Node, LineError> {
        let node = self.template(words, line)?;
        self.define(&words[..1], depth)?;
        Ok(node)
    }

    fn template(&mut self, words: &[Word], line: usize) -> Result<Node, LineError> {
        let [Word::Literal(Value::String(name)), rest @ ..] = words else {
            return Err((line, "`template` expects a quoted name".into()));
        };
        let value = match rest {
            [] => None,
            rest => Some(self.pipeline(rest)?),
        };
        Ok(Node::Template(name.clone(), value, line))
    }

    fn pipeline(&self, words: &[Word]) -> Result<Pipeline, LineError> {
        let mut words = words.iter().cloned();
        let pipeline = pipeline(&mut words, 0).map_err(|message| (self.line, message))?;
        match words.next() {
            None => Ok(pipeline.0),
            Some(_) => Err((self.line, "a `)` without `(`".into())),
        }
    }
}

/// Parses up to the end or a closing parenthesis, whose fields are returned.
fn pipeline(words: &mut impl Iterator<Item = Word>, depth: usize) -> Result<(Pipeline, Option<Vec<String>>), Problem> {
    if depth > MAX_NESTING {
        return Err(format!("more than {MAX_NESTING} nested parentheses").into());
    }
    let mut pipeline = Pipeline::default();
    let mut command: Vec<Operand> = Vec::new();
    let mut closed = None;
    while let Some(word) = words.next() {
        match word {
            Word::Name(name) => command.push(Operand::Function(name)),
            Word::Dot(fields) => command.push(Operand::Dot(fields)),
            Word::Variable(name, fields) => command.push(Operand::Variable(name, fields)),
            Word::Literal(value) => command.push(Operand::Literal(value)),
            Word::Open => {
                let (inner, fields) = self::pipeline(words, depth + 1)?;
                let fields = fields.ok_or("a `(` is not closed")?;
                command.push(Operand::Group(inner, fields));
            }
            Word::Close(fields) => {
                closed = Some(fields);
                break;
            }
            Word::Sign("|") => pipeline.commands.push(take(&mut command)?),
            Word::Sign(",") => pipeline.variables.push(variable(&mut command)?),
            Word::Sign(sign) => {
                pipeline.variables.push(variable(&mut command)?);
                pipeline.declares = sign == ":=";
            }
        }
    }
    pipeline.commands.push(take(&mut command)?);
    if pipeline.variables.len() > 2 {
        return Err("more than two variables".into());
    }
    Ok((pipeline, closed))
}

fn take(command: &mut Vec<Operand>) -> Result<Vec<Operand>, Problem> {
    match command.is_empty() {
        true => Err("missing value".into()),
        false => Ok(std::mem::take(command)),
    }
}

/// The only operand so far, which must be a variable.
fn variable(command: &mut Vec<Operand>) -> Result<String, Problem> {
    match std::mem::take(command).as_slice() {
        [Operand::Variable(name, fields)] if fields.is_empty() && !name.is_empty() => Ok(name.clone()),
        _ => Err("only variables can be assigned".into()),
    }
}

/// Adds the names of the functions in these nodes.
pub(crate) fn functions<'n>(nodes: &'n [Node], names: &mut std::collections::BTreeSet<&'n str>) {
    for node in nodes {
        match node {
            Node::Text(_) | Node::Break(_) | Node::Continue(_) => {}
            Node::Write(pipeline, _) | Node::Assign(pipeline, _) => in_pipeline(pipeline, names),
            Node::If(branches, otherwise, _) => {
                for (condition, body) in branches {
                    in_pipeline(condition, names);
                    functions(body, names);
                }
                functions(otherwise, names);
            }
            Node::With(pipeline, body, otherwise, _) | Node::Range(pipeline, body, otherwise, _) => {
                in_pipeline(pipeline, names);
                functions(body, names);
                functions(otherwise, names);
            }
            Node::Template(_, pipeline, _) => pipeline.iter().for_each(|pipeline| in_pipeline(pipeline, names)),
        }
    }
}

fn in_pipeline<'n>(pipeline: &'n Pipeline, names: &mut std::collections::BTreeSet<&'n str>) {
    for operand in pipeline.commands.iter().flatten() {
        match operand {
            Operand::Function(name) => drop(names.insert(name)),
            Operand::Group(inner, _) => in_pipeline(inner, names),
            Operand::Dot(_) | Operand::Variable(..) | Operand::Literal(_) => {}
        }
    }
}
