//! `printf`: the verbs and flags of Go that make sense for JSON values.

use serde_json::Value;

use crate::Problem;
use crate::functions::{FunctionResult, whole};
use crate::text::{quoted, shown};

/// Maximum width and precision.
const MAX_WIDTH: usize = 1024;

/// The flags of a verb.
#[derive(Default)]
struct Flags {
    left: bool,
    zeros: bool,
    plus: bool,
    width: usize,
    precision: Option<usize>,
}

/// Formats the arguments after the first by the first.
pub(crate) fn printf(arguments: &[Value]) -> FunctionResult {
    let [Value::String(form), rest @ ..] = arguments else {
        return Err("the first argument is not a string".into());
    };
    let mut rest = rest.iter();
    let mut out = String::new();
    let mut chars = form.chars().peekable();
    while let Some(c) = chars.next() {
        if c != '%' {
            out.push(c);
            continue;
        }
        let flags = flags(&mut chars)?;
        match chars.next() {
            Some('%') => out.push('%'),
            Some(verb) => {
                let value = rest.next().ok_or(Problem::from("not enough values for the format"))?;
                out.push_str(&padded(&one(verb, value, &flags)?, &flags));
            }
            None => return Err("`%` is not supported".into()),
        }
    }
    match rest.next() {
        None => Ok(out.into()),
        Some(_) => Err("too many values for the format".into()),
    }
}

fn flags(chars: &mut std::iter::Peekable<std::str::Chars<'_>>) -> Result<Flags, Problem> {
    let mut flags = Flags::default();
    while let Some(flag) = chars.next_if(|c| matches!(c, '-' | '0' | '+' | ' ' | '#')) {
        match flag {
            '-' => flags.left = true,
            '0' => flags.zeros = true,
            '+' => flags.plus = true,
            _ => {}
        }
    }
    let mut number = || -> Result<Option<usize>, Problem> {
        let mut digits = String::new();
        while let Some(digit) = chars.next_if(char::is_ascii_digit) {
            digits.push(digit);
        }
        if digits.is_empty() {
            return Ok(None);
        }
        let number = digits.parse().ok().filter(|number| *number <= MAX_WIDTH);
        number.map(Some).ok_or_else(|| format!("a width must be at most {MAX_WIDTH}").into())
    };
    flags.width = number()?.unwrap_or_default();
    if chars.next_if_eq(&'.').is_some() {
        let mut digits = String::new();
        while let Some(digit) = chars.next_if(char::is_ascii_digit) {
            digits.push(digit);
        }
        let precision = digits.parse().unwrap_or(if digits.is_empty() { 0 } else { MAX_WIDTH });
        flags.precision = Some(precision.min(MAX_WIDTH));
    }
    Ok(flags)
}

fn one(verb: char, value: &Value, flags: &Flags) -> Result<String, Problem> {
    let text = || match value {
        Value::Null => "<nil>".to_owned(),
        value => shown(value),
    };
    let cut = |text: String| match flags.precision {
        Some(precision) => text.chars().take(precision).collect(),
        None => text,
    };
    Ok(match verb {
        's' | 'v' => cut(text()),
        't' => text(),
        'q' => quoted(&cut(text())),
        'T' => crate::functions::kind_of(value).to_owned(),
        'd' if flags.plus && whole(value) >= 0 => format!("+{}", text()),
        'd' => text(),
        'x' => match value {
            Value::String(text) => text.bytes().map(|byte| format!("{byte:02x}")).collect(),
            value => format!("{:x}", whole(value)),
        },
        'X' => format!("{:X}", whole(value)),
        'o' => format!("{:o}", whole(value)),
        'b' => format!("{:b}", whole(value)),
        'c' => u32::try_from(whole(value)).ok().and_then(char::from_u32).unwrap_or('\u{fffd}').to_string(),
        'f' | 'F' => format!("{:.*}", flags.precision.unwrap_or(6), float(value)),
        'e' => format!("{:e}", float(value)),
        'g' => float(value).to_string(),
        other => return Err(format!("`%{other}` is not supported").into()),
    })
}

fn float(value: &Value) -> f64 {
    value.as_f64().unwrap_or_default()
}

fn padded(text: &str, flags: &Flags) -> String {
    let missing = flags.width.saturating_sub(text.chars().count());
    match (flags.left, flags.zeros, text.strip_prefix('-')) {
        (true, ..) => format!("{text}{}", " ".repeat(missing)),
        (false, true, Some(digits)) => format!("-{}{digits}", "0".repeat(missing)),
        (false, true, None) => format!("{}{text}", "0".repeat(missing)),
        (false, false, _) => format!("{}{text}", " ".repeat(missing)),
    }
}
