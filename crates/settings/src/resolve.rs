//! Collects settings from flags, environment and file.

use std::ffi::OsString;
use std::path::Path;

use clap::{Arg, ArgMatches, Command};
use config::json_path::json_text;
use serde_json::Value as Json;

use crate::given::{Given, Problem, Problems, Source};
use crate::table::{Setting, TABLE};

/// The flag that names the settings file.
const FILE_FLAG: &str = "settings";
/// The environment variable that names the settings file.
const FILE_VARIABLE: &str = "RUTTER_SETTINGS";

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
