//! Collects settings from flags, environment and file, and reports errors.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fmt;
use std::path::{Path, PathBuf};

use clap::{Arg, ArgMatches, Command};
use config::json_path::json_text;
use serde_json::Value as Json;

use crate::table::{Setting, TABLE};
use crate::value::{Value, ValueError};

/// The flag that names the settings file.
const FILE_FLAG: &str = "settings";
/// The environment variable that names the settings file.
const FILE_VARIABLE: &str = "RUTTER_SETTINGS";

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
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Problems(pub Vec<Problem>);

impl fmt::Display for Problems {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let lines: Vec<String> = self.0.iter().map(Problem::to_string).collect();
        f.write_str(&lines.join("\n"))
    }
}

impl std::error::Error for Problems {}

/// The text and source of each given setting, before parsing.
#[derive(Clone, Default, Debug)]
pub struct Given(BTreeMap<String, (String, Source)>);

impl Given {
    /// Collects flags, environment and settings file. `environment` returns the value of a variable.
    ///
    /// # Errors
    /// The settings file cannot be read or has unknown keys.
    pub fn gather(matches: &ArgMatches, environment: &dyn Fn(&str) -> Option<OsString>) -> Result<Given, Problems> {
        let text = |value: OsString| value.to_string_lossy().into_owned();
        let mut given = Given::default();
        let named = matches.get_one::<String>(FILE_FLAG).cloned().or_else(|| environment(FILE_VARIABLE).map(text));
        if let Some(file) = named.filter(|file| !file.is_empty()) {
            given.add_file(Path::new(&file))?;
        }
        for setting in TABLE {
            let istio = setting
                .istio_variable
                .and_then(|name| Some((name, environment(name)?)))
                .filter(|(_, value)| !value.is_empty());
            if let Some((name, value)) = istio {
                given.set(&setting.name(), text(value), Source::Environment(name.to_owned()));
            }
            if let Some(value) = environment(&setting.variable()) {
                given.set(&setting.name(), text(value), Source::Environment(setting.variable()));
            }
            if let Some(value) = matches.get_one::<String>(&setting.name()) {
                given.set(&setting.name(), value.clone(), Source::Flag);
            }
        }
        Ok(given)
    }

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

    fn add_file(&mut self, file: &Path) -> Result<(), Problems> {
        let shown = file.display().to_string();
        let failed = |reason: String| Problems(vec![Problem::File { file: shown.clone(), reason }]);
        let bytes = std::fs::read(file).map_err(|e| failed(e.to_string()))?;
        let read = config::parse_yaml_json(&bytes, &shown, &config::Limits::default());
        let mut documents = read.documents.into_iter();
        let (document, more) = (documents.next(), documents.next());
        let duplicates = document.iter().flat_map(|document| &document.duplicates);
        if let Some(error) = read.errors.iter().chain(duplicates).next() {
            let place = format!("line {}, column {}", error.line, error.column);
            return Err(failed(format!("{place}: {}", error.message)));
        }
        let values = match document.map_or(Json::Null, |document| document.value) {
            Json::Null if more.is_none() => return Ok(()),
            Json::Object(values) if more.is_none() => values,
            _ => return Err(failed("expected one map of settings".to_owned())),
        };
        let mut unknown = Vec::new();
        for (key, value) in values {
            if TABLE.iter().any(|s| s.name() == key) {
                let value = match value {
                    Json::Array(_) | Json::Object(_) => {
                        return Err(failed(format!("{key}: expected text, a number, true or false")));
                    }
                    value => json_text(&value),
                };
                self.set(&key, value, Source::File(file.to_owned()));
            } else {
                unknown.push(Problem::Unknown { file: shown.clone(), hint: similar(&key), key });
            }
        }
        if unknown.is_empty() { Ok(()) } else { Err(Problems(unknown)) }
    }
}

/// Adds a flag for each setting and the flag for the settings file.
pub fn flags(command: Command) -> Command {
    let file = Arg::new(FILE_FLAG)
        .long(FILE_FLAG)
        .value_name("FILE")
        .help(format!("YAML file with settings (`name: value`) [env: {FILE_VARIABLE}]"));
    TABLE.iter().fold(command.arg(file), |command, setting| command.arg(flag(setting)))
}

fn flag(setting: &Setting) -> Arg {
    let default = if setting.default.is_empty() { String::new() } else { format!(" [default: {}]", setting.default) };
    let first_word = setting.form.split([' ', ',']).next().unwrap_or("VALUE");
    let shown = if first_word.chars().any(|c| c.is_ascii_lowercase()) { "CHOICE" } else { first_word };
    let mut arg = Arg::new(setting.name())
        .long(setting.name())
        .value_name(shown)
        .allow_hyphen_values(true)
        .help_heading(setting.group)
        .help(format!("{}{default} [env: {}]", setting.paragraph(), setting.variable()));
    if let Some(alias) = setting.alias {
        arg = arg.alias(alias);
    }
    arg
}

/// A "did you mean" suggestion, or empty.
fn similar(key: &str) -> String {
    let name = config::nearest(key, TABLE.iter().map(Setting::name));
    name.map_or(String::new(), |name| format!("; did you mean `{name}`?"))
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
