//! Given settings before they are parsed, and the errors of parsing them.

use std::collections::BTreeMap;
use std::fmt;
use std::path::PathBuf;

use crate::value::{Value, ValueError};

/// The source of a value.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Source {
    /// The command line.
    Flag,
    /// An environment variable.
    Environment(String),
    /// A settings file.
    File(PathBuf),
    /// The default in the table.
    Default,
}

impl fmt::Display for Source {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Source::Flag => f.write_str("from the command line"),
            Source::Environment(variable) => write!(f, "from the environment variable {variable}"),
            Source::File(file) => write!(f, "from {}", file.display()),
            Source::Default => f.write_str("the default"),
        }
    }
}

/// An invalid setting.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum Problem {
    /// A value does not have the accepted form.
    #[error("{setting} is `{value}` ({source_of_value}): {reason}; expected {form}")]
    Value {
        /// The setting's name.
        setting: String,
        /// The value.
        value: String,
        /// The source of the value.
        source_of_value: Source,
        /// The error.
        reason: ValueError,
        /// The accepted form.
        form: &'static str,
    },
    /// A key of the settings file is not a setting.
    #[error("{file}: unknown setting `{key}`{hint}")]
    Unknown {
        /// The file.
        file: String,
        /// The key.
        key: String,
        /// A suggestion, or empty.
        hint: String,
    },
    /// The settings file cannot be read.
    #[error("{file}: {reason}")]
    File {
        /// The file.
        file: String,
        /// The cause.
        reason: String,
    },
}

/// All invalid settings.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("{}", .0.iter().map(Problem::to_string).collect::<Vec<_>>().join("\n"))]
pub struct Problems(pub Vec<Problem>);

/// The text and source of each given setting, before parsing.
#[derive(Clone, Default, Debug)]
pub struct Given(BTreeMap<String, (String, Source)>);

impl Given {
    /// Sets a value, replacing an earlier one. The name is in kebab-case.
    pub fn set(&mut self, name: &str, value: String, from: Source) {
        self.0.insert(name.to_owned(), (value, from));
    }

    /// Parses one setting; adds an error to `problems`.
    pub(crate) fn value<T: Value>(&self, field: &str, default: &str, problems: &mut Vec<Problem>) -> Option<T> {
        let name = field.replace('_', "-");
        let (value, from) = match self.0.get(&name) {
            Some((value, from)) => (value.as_str(), from.clone()),
            None => (default, Source::Default),
        };
        let problem = |reason| Problem::Value {
            setting: name,
            value: value.to_owned(),
            source_of_value: from,
            reason,
            form: T::FORM,
        };
        T::parse(value).map_err(|reason| problems.push(problem(reason))).ok()
    }
}
