//! The log: structured lines on standard error.

use std::{fmt, io};

use anyhow::{Context, Result};
use runtime::LogLevels;
use settings::{LogFormat, Settings};
use tracing::field::Field;
use tracing_subscriber::field::MakeExt as _;
use tracing_subscriber::fmt::FormatFields;
use tracing_subscriber::fmt::format::{Writer, debug_fn};
use tracing_subscriber::layer::SubscriberExt as _;
use tracing_subscriber::util::SubscriberInitExt as _;
use tracing_subscriber::{EnvFilter, reload};

/// Starts logging as the settings say. Called once. Returns the levels, which may be changed later.
pub(crate) fn start(settings: &Settings) -> Result<LogLevels> {
    start_with(settings.log_level.directives(), settings.log_format)
}

/// Does the same, with these levels and this format.
pub(crate) fn start_with(directives: &str, format: LogFormat) -> Result<LogLevels> {
    let (filtered, handle) = reload::Layer::new(filter(directives)?);
    let subscriber = tracing_subscriber::registry().with(filtered);
    let lines = tracing_subscriber::fmt::layer().with_writer(io::stderr);
    match format {
        LogFormat::Text => {
            let ansi = io::IsTerminal::is_terminal(&io::stderr());
            subscriber.with(lines.with_ansi(ansi).fmt_fields(fields())).try_init()
        }
        LogFormat::Json => subscriber.with(lines.json().flatten_event(true)).try_init(),
    }
    .context("logging was started twice")?;
    let apply = move |directives: &str| {
        let filter = filter(directives).map_err(|error| error.to_string())?;
        handle.reload(filter).map_err(|error| error.to_string())
    };
    Ok(LogLevels::new(directives, Box::new(apply)))
}

fn filter(directives: &str) -> Result<EnvFilter> {
    let quiet = match directives.contains("kube_runtime") {
        true => "",
        // It says at each attempt what we say once.
        false => ",kube_runtime=error",
    };
    Ok(EnvFilter::try_new(format!("{directives}{quiet}"))?)
}

/// Formats fields as text. Control characters are escaped, so that a value from outside forges no lines.
fn fields() -> impl for<'w> FormatFields<'w> + Send + Sync + 'static {
    let write = |writer: &mut Writer<'_>, field: &Field, value: &dyn fmt::Debug| {
        let value = format!("{value:?}");
        match field.name() {
            "message" => write!(writer, "{}", Escaped(&value)),
            name => write!(writer, "{}={}", name.strip_prefix("r#").unwrap_or(name), Escaped(&value)),
        }
    };
    debug_fn(write).delimited(" ")
}

/// A text without characters that change how the text around it is shown.
struct Escaped<'a>(&'a str);

impl fmt::Display for Escaped<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut rest = self.0;
        while let Some(at) = rest.find(is_unsafe) {
            let (plain, after) = rest.split_at(at);
            f.write_str(plain)?;
            let mut characters = after.chars();
            if let Some(character) = characters.next() {
                write!(f, "{}", character.escape_default())?;
            }
            rest = characters.as_str();
        }
        f.write_str(rest)
    }
}

/// Control characters, line and paragraph separators, and those that change the direction of text.
fn is_unsafe(character: char) -> bool {
    character.is_control()
        || matches!(character, '\u{2028}' | '\u{2029}' | '\u{200e}' | '\u{200f}' | '\u{061c}')
        || ('\u{202a}'..='\u{202e}').contains(&character)
        || ('\u{2066}'..='\u{2069}').contains(&character)
}

#[cfg(test)]
mod tests {
    use std::sync::{Arc, Mutex, PoisonError};

    use super::*;

    #[derive(Clone, Default)]
    struct Lines(Arc<Mutex<Vec<u8>>>);

    impl io::Write for Lines {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0.lock().unwrap_or_else(PoisonError::into_inner).extend_from_slice(bytes);
            Ok(bytes.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn a_value_from_outside_forges_no_line() {
        let lines = Lines::default();
        let writer = lines.clone();
        let subscriber = tracing_subscriber::fmt()
            .with_writer(move || writer.clone())
            .with_ansi(false)
            .without_time()
            .fmt_fields(fields())
            .finish();
        let node = "a\n2026-01-01 ERROR forged\u{1b}[2J\r\u{202e}é";
        tracing::subscriber::with_default(subscriber, || {
            tracing::info!(proxy = %node, count = 3, "connected: {node}");
        });
        let text = String::from_utf8(lines.0.lock().unwrap_or_else(PoisonError::into_inner).clone()).expect("UTF-8");
        let safe = r"a\n2026-01-01 ERROR forged\u{1b}[2J\r\u{202e}é";
        assert_eq!(text, format!(" INFO rutter::log::tests: connected: {safe} proxy={safe} count=3\n"));
    }
}
