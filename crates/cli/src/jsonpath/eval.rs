//! From steps and a value to values and text.

use std::cmp::Ordering;

use serde_json::Value as Json;

use super::{Filter, MAX_VISITED, Operand, Operator, PathError, Piece, Step};

type Result<T> = std::result::Result<T, PathError>;

/// The text of pieces.
pub(super) fn render(pieces: &[Piece], value: &Json) -> Result<String> {
    let mut out = String::new();
    let mut walk = Walk {
        root: value,
        visited: 0,
    };
    walk.render(pieces, value, &mut out)?;
    Ok(out)
}

/// The values that a path leads to.
pub(super) fn find<'v>(steps: &[Step], value: &'v Json) -> Result<Vec<&'v Json>> {
    Walk {
        root: value,
        visited: 0,
    }
    .path(steps, value)
}

/// A value as text.
pub(super) fn text(value: &Json) -> String {
    match value {
        Json::String(text) => text.clone(),
        Json::Null => String::new(),
        value => value.to_string(),
    }
}

struct Walk<'v> {
    root: &'v Json,
    visited: usize,
}

impl<'v> Walk<'v> {
    fn render(&mut self, pieces: &[Piece], value: &'v Json, out: &mut String) -> Result<()> {
        for piece in pieces {
            match piece {
                Piece::Text(text) => out.push_str(text),
                Piece::Query(steps) => {
                    let texts: Vec<String> = self.path(steps, value)?.into_iter().map(text).collect();
                    out.push_str(&texts.join(" "));
                }
                Piece::Range(steps, inner) => {
                    for item in self.path(steps, value)? {
                        self.visit(1)?;
                        self.render(inner, item, out)?;
                    }
                }
            }
        }
        Ok(())
    }

    fn path(&mut self, steps: &[Step], value: &'v Json) -> Result<Vec<&'v Json>> {
        let mut values = vec![value];
        for step in steps {
            let mut next = Vec::new();
            for value in values {
                self.step(step, value, &mut next)?;
            }
            self.visit(next.len())?;
            values = next;
        }
        Ok(values)
    }

    fn step(&mut self, step: &Step, value: &'v Json, out: &mut Vec<&'v Json>) -> Result<()> {
        match step {
            Step::Root => out.push(self.root),
            Step::Field(name) => out.extend(value.get(name)),
            Step::Fields(names) => out.extend(names.iter().filter_map(|name| value.get(name))),
            Step::Wild => out.extend(children(value)),
            Step::Descend => self.descend(value, out)?,
            Step::Indexes(indexes) => {
                if let Json::Array(items) = value {
                    for index in indexes {
                        out.push(at(items, *index)?);
                    }
                }
            }
            Step::Slice { start, end, step } => {
                if let Json::Array(items) = value {
                    let (start, end) = (bound(*start, items, 0), bound(*end, items, items.len()));
                    let step = usize::try_from(*step).unwrap_or(usize::MAX);
                    out.extend(items.get(start..end).unwrap_or_default().iter().step_by(step));
                }
            }
            Step::Filter(filter) => {
                for item in children(value) {
                    self.visit(1)?;
                    if self.holds(filter, item)? {
                        out.push(item);
                    }
                }
            }
        }
        Ok(())
    }

    fn descend(&mut self, value: &'v Json, out: &mut Vec<&'v Json>) -> Result<()> {
        self.visit(1)?;
        out.push(value);
        for child in children(value) {
            self.descend(child, out)?;
        }
        Ok(())
    }

    fn holds(&mut self, filter: &Filter, item: &'v Json) -> Result<bool> {
        let left = self.operand(&filter.left, item)?;
        let Some((operator, right)) = &filter.test else {
            return Ok(!left.is_empty());
        };
        let right = self.operand(right, item)?;
        Ok(left
            .iter()
            .any(|left| right.iter().any(|right| compare(left, *operator, right))))
    }

    fn operand(&mut self, operand: &Operand, item: &'v Json) -> Result<Vec<Json>> {
        match operand {
            Operand::Literal(value) => Ok(vec![value.clone()]),
            Operand::Path(steps) => Ok(self.path(steps, item)?.into_iter().cloned().collect()),
        }
    }

    fn visit(&mut self, values: usize) -> Result<()> {
        self.visited += values;
        match self.visited > MAX_VISITED {
            true => Err(PathError::new(format!(
                "the path leads to more than {MAX_VISITED} values"
            ))),
            false => Ok(()),
        }
    }
}

/// The items of a list, or the values of an object by key.
fn children(value: &Json) -> Vec<&Json> {
    match value {
        Json::Array(items) => items.iter().collect(),
        Json::Object(fields) => {
            let mut sorted: Vec<_> = fields.iter().collect();
            sorted.sort_by_key(|(key, _)| *key);
            sorted.into_iter().map(|(_, value)| value).collect()
        }
        _ => Vec::new(),
    }
}

fn at(items: &[Json], index: i64) -> Result<&Json> {
    let length = i64::try_from(items.len()).unwrap_or(i64::MAX);
    let from_start = if index < 0 { index.saturating_add(length) } else { index };
    usize::try_from(from_start)
        .ok()
        .and_then(|index| items.get(index))
        .ok_or_else(|| PathError::new(format!("there is no item {index}: the list has {length}")))
}

/// A bound of a slice as an index, at most the length.
fn bound(bound: Option<i64>, items: &[Json], default: usize) -> usize {
    let Some(bound) = bound else { return default };
    let length = i64::try_from(items.len()).unwrap_or(i64::MAX);
    let from_start = if bound < 0 { bound.saturating_add(length) } else { bound };
    usize::try_from(from_start.clamp(0, length)).unwrap_or(0)
}

fn compare(left: &Json, operator: Operator, right: &Json) -> bool {
    let order = match (left, right) {
        (Json::Number(left), Json::Number(right)) => match (left.as_i64(), right.as_i64()) {
            (Some(left), Some(right)) => Some(left.cmp(&right)),
            _ => left.as_f64().partial_cmp(&right.as_f64()),
        },
        (Json::String(left), Json::String(right)) => Some(left.cmp(right)),
        (Json::Bool(left), Json::Bool(right)) => Some(left.cmp(right)),
        _ => (left == right).then_some(Ordering::Equal),
    };
    match operator {
        Operator::Equal => order == Some(Ordering::Equal),
        Operator::NotEqual => order != Some(Ordering::Equal),
        Operator::Less => order == Some(Ordering::Less),
        Operator::LessOrEqual => matches!(order, Some(Ordering::Less | Ordering::Equal)),
        Operator::Greater => order == Some(Ordering::Greater),
        Operator::GreaterOrEqual => matches!(order, Some(Ordering::Greater | Ordering::Equal)),
    }
}
