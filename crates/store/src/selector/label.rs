//! Label selectors.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use super::lexer::{Lexer, Token};
use super::{SelectorError, check_length};

/// A label selector: all requirements must match. The default selects everything.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct LabelSelector {
    requirements: Vec<Requirement>,
}

/// One requirement. Values are sorted and unique.
#[derive(Clone, PartialEq, Eq, Debug)]
enum Requirement {
    In(Arc<str>, Vec<Arc<str>>),
    NotIn(Arc<str>, Vec<Arc<str>>),
    Exists(Arc<str>),
    Absent(Arc<str>),
    Greater(Arc<str>, i64),
    Less(Arc<str>, i64),
}

impl LabelSelector {
    /// Parses a selector in Kubernetes syntax: comma-separated requirements of the form `label`, `!label`,
    /// `label=value` (or `==`), `label!=value`, `label in (a,b)`, `label notin (a,b)`, `label>1`, `label<1`. An empty
    /// text selects everything.
    ///
    /// # Errors
    /// A description with the character position. Labels and values must be valid.
    pub fn parse(text: &str) -> Result<LabelSelector, SelectorError> {
        check_length(text)?;
        let mut lexer = Lexer::new(text);
        let mut requirements = Vec::new();
        if lexer.peek().is_none() {
            return Ok(LabelSelector::default());
        }
        loop {
            requirements.push(requirement(&mut lexer)?);
            match lexer.next() {
                None => return Ok(LabelSelector { requirements }),
                Some(Token::Comma) => {}
                other => {
                    let found = Token::describe(other);
                    return Err(lexer.error(&format!("a comma or the end was expected, not {found}")));
                }
            }
        }
    }

    /// Requires that a label has a value.
    ///
    /// # Errors
    /// The label or value is invalid.
    pub fn equal(label: &str, value: &str) -> Result<LabelSelector, SelectorError> {
        LabelSelector::one_of(label, [value])
    }

    /// Requires that a label has one of several values.
    ///
    /// # Errors
    /// The label or a value is invalid, or there are no values.
    pub fn one_of<'a>(label: &str, values: impl IntoIterator<Item = &'a str>) -> Result<LabelSelector, SelectorError> {
        Ok(LabelSelector { requirements: vec![Requirement::In(checked_label(label)?, checked_values(label, values)?)] })
    }

    /// Requires that a label exists.
    ///
    /// # Errors
    /// The label is invalid.
    pub fn exists(label: &str) -> Result<LabelSelector, SelectorError> {
        Ok(LabelSelector { requirements: vec![Requirement::Exists(checked_label(label)?)] })
    }

    /// Adds the requirements of another selector.
    #[must_use]
    pub fn and(mut self, other: LabelSelector) -> LabelSelector {
        self.requirements.extend(other.requirements);
        self
    }

    /// Whether labels match all requirements.
    pub fn matches(&self, labels: &BTreeMap<Arc<str>, Arc<str>>) -> bool {
        self.requirements.iter().all(|requirement| requirement.holds(labels))
    }

    /// Whether it selects everything.
    pub fn is_empty(&self) -> bool {
        self.requirements.is_empty()
    }
}

impl fmt::Display for LabelSelector {
    /// In the syntax of [`LabelSelector::parse`].
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, requirement) in self.requirements.iter().enumerate() {
            let comma = if index == 0 { "" } else { "," };
            write!(f, "{comma}{requirement}")?;
        }
        Ok(())
    }
}

impl Requirement {
    fn holds(&self, labels: &BTreeMap<Arc<str>, Arc<str>>) -> bool {
        let number = |label: &Arc<str>| labels.get(label).and_then(|value| value.parse::<i64>().ok());
        match self {
            Requirement::In(label, values) => labels.get(label).is_some_and(|value| values.contains(value)),
            Requirement::NotIn(label, values) => labels.get(label).is_none_or(|value| !values.contains(value)),
            Requirement::Exists(label) => labels.contains_key(label),
            Requirement::Absent(label) => !labels.contains_key(label),
            Requirement::Greater(label, than) => number(label).is_some_and(|number| number > *than),
            Requirement::Less(label, than) => number(label).is_some_and(|number| number < *than),
        }
    }
}

impl fmt::Display for Requirement {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Requirement::In(label, values) if values.len() == 1 => write!(f, "{label}={}", values[0]),
            Requirement::NotIn(label, values) if values.len() == 1 => write!(f, "{label}!={}", values[0]),
            Requirement::In(label, values) => write!(f, "{label} in ({})", values.join(",")),
            Requirement::NotIn(label, values) => write!(f, "{label} notin ({})", values.join(",")),
            Requirement::Exists(label) => f.write_str(label),
            Requirement::Absent(label) => write!(f, "!{label}"),
            Requirement::Greater(label, than) => write!(f, "{label}>{than}"),
            Requirement::Less(label, than) => write!(f, "{label}<{than}"),
        }
    }
}

/// Parses one requirement.
fn requirement(lexer: &mut Lexer<'_>) -> Result<Requirement, SelectorError> {
    let absent = lexer.peek() == Some(Token::Not);
    if absent {
        lexer.next();
    }
    let label = match lexer.next() {
        Some(Token::Word(word)) => checked_label(word).map_err(|error| lexer.error(&error.0))?,
        other => return Err(lexer.error(&format!("a label was expected, not {}", Token::describe(other)))),
    };
    if absent {
        return Ok(Requirement::Absent(label));
    }
    match lexer.peek() {
        None | Some(Token::Comma) => return Ok(Requirement::Exists(label)),
        _ => {}
    }
    match lexer.next() {
        Some(Token::Equal) => Ok(Requirement::In(label.clone(), vec![value(lexer, &label)?])),
        Some(Token::NotEqual) => Ok(Requirement::NotIn(label.clone(), vec![value(lexer, &label)?])),
        Some(Token::Word("in")) => Ok(Requirement::In(label.clone(), set(lexer, &label)?)),
        Some(Token::Word("notin")) => Ok(Requirement::NotIn(label.clone(), set(lexer, &label)?)),
        Some(Token::Greater) => Ok(Requirement::Greater(label, number(lexer)?)),
        Some(Token::Less) => Ok(Requirement::Less(label, number(lexer)?)),
        other => {
            let found = Token::describe(other);
            Err(lexer.error(&format!("an operator (=, ==, !=, in, notin, >, <) was expected, not {found}")))
        }
    }
}

/// Parses the value after an operator. It may be empty.
fn value(lexer: &mut Lexer<'_>, label: &str) -> Result<Arc<str>, SelectorError> {
    match lexer.peek() {
        None | Some(Token::Comma) => Ok(Arc::from("")),
        _ => match lexer.next() {
            Some(Token::Word(word)) => checked_value(label, word).map_err(|error| lexer.error(&error.0)),
            other => Err(lexer.error(&format!("a value was expected, not {}", Token::describe(other)))),
        },
    }
}

/// Parses the number after `>` or `<`.
fn number(lexer: &mut Lexer<'_>) -> Result<i64, SelectorError> {
    let token = lexer.next();
    match token {
        Some(Token::Word(word)) => word.parse().map_err(|_| lexer.error(&format!("{word:?} is not a whole number"))),
        other => Err(lexer.error(&format!("a whole number was expected, not {}", Token::describe(other)))),
    }
}

/// Parses values in parentheses. An empty item is the empty value.
fn set(lexer: &mut Lexer<'_>, label: &str) -> Result<Vec<Arc<str>>, SelectorError> {
    if lexer.next() != Some(Token::Open) {
        return Err(lexer.error("\"(\" was expected"));
    }
    if lexer.peek() == Some(Token::Close) {
        lexer.next();
        return Err(lexer.error(&format!("the set of values for {label} is empty")));
    }
    let mut values = Vec::new();
    loop {
        if matches!(lexer.peek(), Some(Token::Comma | Token::Close)) {
            values.push(Arc::from(""));
        } else {
            match lexer.next() {
                Some(Token::Word(word)) => {
                    values.push(checked_value(label, word).map_err(|error| lexer.error(&error.0))?);
                }
                other => return Err(lexer.error(&format!("a value was expected, not {}", Token::describe(other)))),
            }
        }
        match lexer.next() {
            Some(Token::Comma) => {}
            Some(Token::Close) => return Ok(sorted(values)),
            other => {
                let found = Token::describe(other);
                return Err(lexer.error(&format!("\",\" or \")\" was expected, not {found}")));
            }
        }
    }
}

fn checked_values<'a>(label: &str, values: impl IntoIterator<Item = &'a str>) -> Result<Vec<Arc<str>>, SelectorError> {
    let values: Vec<Arc<str>> =
        values.into_iter().map(|value| checked_value(label, value)).collect::<Result<_, _>>()?;
    if values.is_empty() {
        return Err(SelectorError(format!("the set of values for {label} is empty")));
    }
    Ok(sorted(values))
}

fn sorted(mut values: Vec<Arc<str>>) -> Vec<Arc<str>> {
    values.sort();
    values.dedup();
    values
}

/// Validates a label name: at most 63 letters, digits, `-`, `_` or `.`, starting and ending with a letter or digit;
/// optionally prefixed with a DNS name of at most 253 characters and `/`.
fn checked_label(label: &str) -> Result<Arc<str>, SelectorError> {
    let (prefix, name) = match label.split_once('/') {
        Some((prefix, name)) => (Some(prefix), name),
        None => (None, label),
    };
    let prefix_holds = prefix.is_none_or(|prefix| {
        prefix.len() <= 253
            && prefix.split('.').all(|part| {
                let bytes = part.as_bytes();
                let inner = |b: &u8| b.is_ascii_lowercase() || b.is_ascii_digit() || *b == b'-';
                !part.is_empty() && bytes.iter().all(inner) && bytes[0] != b'-' && bytes[bytes.len() - 1] != b'-'
            })
    });
    if !prefix_holds {
        return Err(SelectorError(format!("{label:?} is no label: what is before \"/\" must be a DNS name")));
    }
    if name.is_empty() || !is_plain(name) {
        return Err(SelectorError(format!(
            "{label:?} is no label: a name is 1 to 63 letters, digits, \"-\", \"_\" and \".\", with a letter or digit at both ends"
        )));
    }
    Ok(label.into())
}

/// Validates a label value: empty, or like a name.
fn checked_value(label: &str, value: &str) -> Result<Arc<str>, SelectorError> {
    if is_plain(value) {
        return Ok(value.into());
    }
    Err(SelectorError(format!(
        "{value:?} is no value for {label}: at most 63 letters, digits, \"-\", \"_\" and \".\", with a letter or digit at both ends"
    )))
}

fn is_plain(text: &str) -> bool {
    let bytes = text.as_bytes();
    let ends = [bytes.first(), bytes.last()];
    bytes.len() <= 63
        && bytes.iter().all(|b| b.is_ascii_alphanumeric() || b"-_.".contains(b))
        && ends.iter().flatten().all(|b| b.is_ascii_alphanumeric())
}
