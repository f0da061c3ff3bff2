//! Collects settings from flags, environment and file, and reports errors.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fmt;
use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};

use clap::{Arg, ArgMatches, Command};
use serde::Deserialize;
use serde::de::{Deserializer, Visitor};

use crate::table::{Setting, TABLE};
use crate::value::{Value, ValueError};

/// The flag that names the settings file.
const FILE_FLAG: &str = "settings";
/// The environment variable that names the settings file.
const FILE_VARIABLE: &str = "RUTTER_SETTINGS";
/// Maximum size of a settings file, in bytes.
const FILE_LIMIT: u64 = 1 << 20;

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
        let named = matches
            .get_one::<String>(FILE_FLAG)
            .cloned()
            .or_else(|| environment(FILE_VARIABLE).map(text));
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
        let failed = |reason: String| {
            Problems(vec![Problem::File {
                file: shown.clone(),
                reason,
            }])
        };
        let mut text = String::new();
        let opened = File::open(file).map_err(|e| failed(e.to_string()))?;
        opened
            .take(FILE_LIMIT + 1)
            .read_to_string(&mut text)
            .map_err(|e| failed(e.to_string()))?;
        if text.len() as u64 > FILE_LIMIT {
            return Err(failed(format!("the file is larger than {FILE_LIMIT} bytes")));
        }
        if text.trim().is_empty() {
            return Ok(());
        }
        let values: BTreeMap<String, Scalar> = serde_saphyr::from_str(&text).map_err(|e| failed(e.to_string()))?;
        let mut unknown = Vec::new();
        for (key, Scalar(value)) in values {
            if TABLE.iter().any(|s| s.name() == key) {
                self.set(&key, value, Source::File(file.to_owned()));
            } else {
                unknown.push(Problem::Unknown {
                    file: shown.clone(),
                    hint: similar(&key),
                    key,
                });
            }
        }
        if unknown.is_empty() {
            Ok(())
        } else {
            Err(Problems(unknown))
        }
    }
}

/// Adds a flag for each setting and the flag for the settings file.
pub fn flags(command: Command) -> Command {
    let file = Arg::new(FILE_FLAG).long(FILE_FLAG).value_name("FILE").help(format!(
        "YAML file with settings (`name: value`) [env: {FILE_VARIABLE}]"
    ));
    TABLE
        .iter()
        .fold(command.arg(file), |command, setting| command.arg(flag(setting)))
}

fn flag(setting: &Setting) -> Arg {
    let default = if setting.default.is_empty() {
        String::new()
    } else {
        format!(" [default: {}]", setting.default)
    };
    let first_word = setting.form.split([' ', ',']).next().unwrap_or("VALUE");
    let shown = if first_word.chars().any(|c| c.is_ascii_lowercase()) {
        "CHOICE"
    } else {
        first_word
    };
    let mut arg = Arg::new(setting.name())
        .long(setting.name())
        .value_name(shown)
        .allow_hyphen_values(true)
        .help_heading(setting.group)
        .help(format!(
            "{}{default} [env: {}]",
            setting.paragraph(),
            setting.variable()
        ));
    if let Some(alias) = setting.alias {
        arg = arg.alias(alias);
    }
    arg
}

/// A "did you mean" suggestion: a setting whose name contains the key or has the same letters.
fn similar(key: &str) -> String {
    let bare = |name: &str| name.to_ascii_lowercase().replace(['-', '_'], "");
    let wanted = bare(key);
    let close = TABLE.iter().map(Setting::name).find(|name| {
        let name = bare(name);
        name == wanted || (wanted.len() > 3 && (name.contains(&wanted) || wanted.contains(&name)))
    });
    close
        .map(|name| format!("; did you mean `{name}`?"))
        .unwrap_or_default()
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

/// Any YAML scalar, as text.
struct Scalar(String);

impl<'de> Deserialize<'de> for Scalar {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Scalar, D::Error> {
        struct Text;
        impl Visitor<'_> for Text {
            type Value = Scalar;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("text, a number, true or false")
            }
            fn visit_str<E>(self, v: &str) -> Result<Scalar, E> {
                Ok(Scalar(v.to_owned()))
            }
            fn visit_bool<E>(self, v: bool) -> Result<Scalar, E> {
                Ok(Scalar(v.to_string()))
            }
            fn visit_i64<E>(self, v: i64) -> Result<Scalar, E> {
                Ok(Scalar(v.to_string()))
            }
            fn visit_u64<E>(self, v: u64) -> Result<Scalar, E> {
                Ok(Scalar(v.to_string()))
            }
            fn visit_f64<E>(self, v: f64) -> Result<Scalar, E> {
                Ok(Scalar(v.to_string()))
            }
            fn visit_unit<E>(self) -> Result<Scalar, E> {
                Ok(Scalar(String::new()))
            }
        }
        deserializer.deserialize_any(Text)
    }
}
