//! The environment variables of the agent.
//!
//! Each part of the agent reads its own variables into a typed value of settings. Names and defaults are those of Istio's agent.

use std::collections::BTreeMap;
use std::fmt::{self, Display};
use std::str::FromStr;
use std::time::Duration;

/// A variable with a value that cannot be used.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("the environment variable {name} is {value:?}: {remedy}")]
pub struct EnvironmentError {
    /// The name of the variable.
    pub name: String,
    /// The value, as it was given.
    pub value: String,
    /// A value that would be accepted.
    pub remedy: String,
}

/// The variables of a process. An empty value is the same as none.
#[derive(Clone, Default)]
pub struct Environment(BTreeMap<String, String>);

/// Shows names only: a value may be a secret.
impl fmt::Debug for Environment {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(self.0.keys()).finish()
    }
}

impl<K: Into<String>, V: Into<String>> FromIterator<(K, V)> for Environment {
    fn from_iter<I: IntoIterator<Item = (K, V)>>(variables: I) -> Environment {
        Environment(variables.into_iter().map(|(name, value)| (name.into(), value.into())).collect())
    }
}

impl Environment {
    /// The variables of this process. Variables that are not UTF-8 are left out.
    #[must_use]
    pub fn of_process() -> Environment {
        std::env::vars_os().filter_map(|(name, value)| name.into_string().ok().zip(value.into_string().ok())).collect()
    }

    /// The value of a variable, which may be empty.
    #[must_use]
    pub fn raw(&self, name: &str) -> Option<&str> {
        self.0.get(name).map(String::as_str)
    }

    /// The value of a variable that is not empty.
    #[must_use]
    pub fn text(&self, name: &str) -> Option<&str> {
        self.raw(name).filter(|value| !value.is_empty())
    }

    /// The value of a variable, or its default.
    #[must_use]
    pub fn text_or<'a>(&'a self, name: &str, default: &'a str) -> &'a str {
        self.text(name).unwrap_or(default)
    }

    /// The variables whose names begin with a prefix, in order, as the rest of the name and the value.
    pub fn with_prefix<'a>(&'a self, prefix: &'a str) -> impl Iterator<Item = (&'a str, &'a str)> {
        self.0.iter().filter_map(move |(name, value)| Some((name.strip_prefix(prefix)?, value.as_str())))
    }

    /// Whether a variable is true, in one of the spellings of Go's `strconv.ParseBool`.
    ///
    /// # Errors
    /// The value is not a boolean.
    pub fn flag(&self, name: &str, default: bool) -> Result<bool, EnvironmentError> {
        let Some(value) = self.text(name) else { return Ok(default) };
        protos::parse_bool(value).ok_or_else(|| error(name, value, "give true or false"))
    }

    /// The error that a variable has a value that cannot be used.
    #[must_use]
    pub fn wrong(&self, name: &str, remedy: &str) -> EnvironmentError {
        error(name, self.text_or(name, ""), remedy)
    }

    /// A number, or another value that is parsed from text.
    ///
    /// # Errors
    /// The value cannot be parsed.
    pub fn parsed<T>(&self, name: &str, default: T) -> Result<T, EnvironmentError>
    where
        T: FromStr,
        T::Err: Display,
    {
        let Some(value) = self.text(name) else { return Ok(default) };
        value.parse().map_err(|reason: T::Err| error(name, value, &reason.to_string()))
    }

    /// A duration as Go writes it, like `1h30m` or `500ms`.
    ///
    /// # Errors
    /// The value is not a duration, or it is negative.
    pub fn duration(&self, name: &str, default: Duration) -> Result<Duration, EnvironmentError> {
        let Some(value) = self.text(name) else { return Ok(default) };
        protos::parse_duration(value).ok_or_else(|| error(name, value, "give a duration, like 30s, 5m or 24h"))
    }
}

fn error(name: &str, value: &str, remedy: &str) -> EnvironmentError {
    EnvironmentError { name: name.to_owned(), value: value.chars().take(100).collect(), remedy: remedy.to_owned() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_parsed_or_refused_with_their_name() {
        let environment: Environment =
            [("A", "true"), ("B", "x"), ("C", ""), ("D", "1h30m"), ("E", "7"), ("X_ONE", "1")].into_iter().collect();
        assert_eq!(environment.flag("A", false), Ok(true));
        assert_eq!(environment.flag("C", true), Ok(true), "an empty value is none");
        assert_eq!(environment.duration("D", Duration::ZERO), Ok(Duration::from_secs(5400)));
        assert_eq!(environment.parsed("E", 0), Ok(7));
        assert_eq!(environment.with_prefix("X_").collect::<Vec<_>>(), [("ONE", "1")]);
        for wrong in [
            environment.flag("B", true).unwrap_err(),
            environment.duration("B", Duration::ZERO).unwrap_err(),
            environment.parsed("B", 1).unwrap_err(),
        ] {
            assert!(wrong.to_string().starts_with("the environment variable B is \"x\": "), "{wrong}");
        }
    }

    #[test]
    fn values_are_not_shown() {
        let environment: Environment = [("A", "secret")].into_iter().collect();
        assert!(!format!("{environment:?}").contains("secret"));
    }
}
