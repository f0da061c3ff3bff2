//! Functions of Helm's function library for dates. A date is a number (seconds since 1970) or a text in the form of RFC 3339, as
//! Kubernetes writes it. All dates are in UTC.

use std::fmt::Write as _;

use chrono::{DateTime, Datelike as _, NaiveDate, SecondsFormat, TimeDelta, Timelike as _, Utc};
use serde_json::Value;

use crate::Problem;
use crate::functions::{Function, FunctionResult};
use crate::text::shown;

const HTML: &str = "2006-01-02";
/// Units of `durationRound`, in seconds.
const UNITS: [(&str, i64); 6] =
    [("y", 31_536_000), ("mo", 2_592_000), ("d", 86_400), ("h", 3_600), ("m", 60), ("s", 1)];
/// Elements of Go's layouts; of two that begin alike, the longer one is first.
const ELEMENTS: [&str; 28] = [
    "January", "Jan", "Monday", "Mon", "2006", "Z07:00", "Z0700", "-07:00", "-0700", "-07", "MST", ".000", "002", "01",
    "02", "03", "04", "05", "06", "15", "PM", "pm", "_2", "1", "2", "3", "4", "5",
];

/// Name, number of arguments (0: any number) and implementation of each function.
pub(crate) const FUNCTIONS: &[(&str, usize, Function)] = &[
    ("date", 2, |a| Ok(formatted(&shown(&a[0]), date(&a[1])?).into())),
    ("dateInZone", 3, in_zone),
    ("date_in_zone", 3, in_zone),
    ("htmlDate", 1, |a| Ok(formatted(HTML, date(&a[0])?).into())),
    ("htmlDateInZone", 2, |a| in_zone(&[HTML.into(), a[0].clone(), a[1].clone()])),
    ("toDate", 2, |a| Ok(written(parsed(&shown(&a[0]), &shown(&a[1]))?))),
    ("dateModify", 2, modified),
    ("date_modify", 2, modified),
    ("must_date_modify", 2, modified),
    ("unixEpoch", 1, |a| Ok(date(&a[0])?.timestamp().to_string().into())),
    ("duration", 1, |a| {
        let seconds: i64 = shown(&a[0]).parse().map_err(|_| format!("{}: expected seconds", shown(&a[0])))?;
        Ok(duration_text(seconds).into())
    }),
    ("durationRound", 1, |a| {
        let seconds = match &a[0] {
            // Go's durations are in nanoseconds.
            Value::Number(number) => number.as_i64().unwrap_or_default() / 1_000_000_000,
            value => seconds(&shown(value))?.num_seconds(),
        };
        let largest = UNITS.iter().find(|(_, size)| seconds.abs() > *size).unwrap_or(&("s", 1));
        Ok(format!("{}{}", seconds / largest.1, largest.0).into())
    }),
];

/// The date of a value.
///
/// # Errors
/// The value is no date.
pub fn date(value: &Value) -> Result<DateTime<Utc>, Problem> {
    let found = match value {
        Value::Number(number) => number.as_i64().and_then(|seconds| DateTime::from_timestamp(seconds, 0)),
        Value::String(text) => DateTime::parse_from_rfc3339(text).ok().map(|date| date.to_utc()),
        _ => None,
    };
    found.ok_or_else(|| {
        format!("{} is no date: expected seconds since 1970, or 2006-01-02T15:04:05Z", shown(value)).into()
    })
}

/// The value of a date.
pub fn written(date: DateTime<Utc>) -> Value {
    date.to_rfc3339_opts(SecondsFormat::AutoSi, true).into()
}

/// `1h2m3s`, as Go writes durations.
pub fn duration_text(seconds: i64) -> String {
    let size = seconds.unsigned_abs();
    let (hours, minutes, rest) = (size / 3600, size / 60 % 60, size % 60);
    let sign = if seconds < 0 { "-" } else { "" };
    match (hours, minutes) {
        (0, 0) => format!("{sign}{rest}s"),
        (0, _) => format!("{sign}{minutes}m{rest}s"),
        _ => format!("{sign}{hours}h{minutes}m{rest}s"),
    }
}

fn in_zone(arguments: &[Value]) -> FunctionResult {
    match shown(&arguments[2]).as_str() {
        "" | "UTC" | "Local" => Ok(formatted(&shown(&arguments[0]), date(&arguments[1])?).into()),
        zone => Err(format!("the time zone {zone} is not available: only UTC is").into()),
    }
}

/// `dateModify "-1.5h" DATE`.
fn modified(arguments: &[Value]) -> FunctionResult {
    let by = seconds(&shown(&arguments[0]))?;
    let date = date(&arguments[1])?.checked_add_signed(by);
    Ok(written(date.ok_or("the date is out of range")?))
}

/// A duration of Go, such as `1h30m` or `-1.5h`.
fn seconds(text: &str) -> Result<TimeDelta, Problem> {
    let wrong = || Problem::from(format!("{text:?} is no duration: expected a form such as 1h30m"));
    let mut rest = text.strip_prefix(['-', '+']).unwrap_or(text);
    let mut sum = 0_f64;
    if rest.is_empty() {
        return Err(wrong());
    }
    while !rest.is_empty() && rest != "0" {
        let digits = rest.find(|c: char| !c.is_ascii_digit() && c != '.').ok_or_else(wrong)?;
        let number: f64 = rest[..digits].parse().map_err(|_| wrong())?;
        let (unit, after) =
            rest[digits..].split_at(rest[digits..].find(|c: char| c.is_ascii_digit()).unwrap_or(rest.len() - digits));
        sum += number
            * match unit {
                "ns" => 1e-9,
                "us" | "µs" => 1e-6,
                "ms" => 1e-3,
                "s" => 1.0,
                "m" => 60.0,
                "h" => 3600.0,
                _ => return Err(wrong()),
            };
        rest = after;
    }
    let sign = if text.starts_with('-') { -1.0 } else { 1.0 };
    // A number that is too large is the largest one.
    let millis = (sign * sum * 1000.0).round() as i64;
    TimeDelta::try_milliseconds(millis).ok_or_else(wrong)
}

/// The elements of a layout, and the text between them.
fn elements(layout: &str) -> impl Iterator<Item = Result<&'static str, char>> {
    let mut rest = layout;
    std::iter::from_fn(move || {
        if let Some(element) = ELEMENTS.into_iter().find(|element| rest.starts_with(element)) {
            rest = &rest[element.len()..];
            return Some(Ok(element));
        }
        let c = rest.chars().next()?;
        rest = &rest[c.len_utf8()..];
        Some(Err(c))
    })
}

/// A date in a layout of Go.
fn formatted(layout: &str, date: DateTime<Utc>) -> String {
    let mut out = String::new();
    for part in elements(layout) {
        let hour = date.hour12().1;
        let _ = match part {
            Err(c) => write!(out, "{c}"),
            Ok("2006") => write!(out, "{:04}", date.year()),
            Ok("06") => write!(out, "{:02}", date.year() % 100),
            Ok("01") => write!(out, "{:02}", date.month()),
            Ok("1") => write!(out, "{}", date.month()),
            Ok("January") => write!(out, "{}", month(date)),
            Ok("Jan") => write!(out, "{}", &month(date)[..3]),
            Ok("Monday") => write!(out, "{}", day(date)),
            Ok("Mon") => write!(out, "{}", &day(date)[..3]),
            Ok("002") => write!(out, "{:03}", date.ordinal()),
            Ok("02") => write!(out, "{:02}", date.day()),
            Ok("_2") => write!(out, "{:2}", date.day()),
            Ok("2") => write!(out, "{}", date.day()),
            Ok("15") => write!(out, "{:02}", date.hour()),
            Ok("03") => write!(out, "{hour:02}"),
            Ok("3") => write!(out, "{hour}"),
            Ok("04") => write!(out, "{:02}", date.minute()),
            Ok("4") => write!(out, "{}", date.minute()),
            Ok("5") => write!(out, "{}", date.second()),
            Ok("05") => write!(out, "{:02}", date.second()),
            Ok(".000") => write!(out, ".{:03}", date.timestamp_subsec_millis()),
            Ok("PM") => write!(out, "{}", if date.hour12().0 { "PM" } else { "AM" }),
            Ok("pm") => write!(out, "{}", if date.hour12().0 { "pm" } else { "am" }),
            Ok("MST") => write!(out, "UTC"),
            Ok("-0700") => write!(out, "+0000"),
            Ok("-07:00") => write!(out, "+00:00"),
            Ok("-07") => write!(out, "+00"),
            // `Z07:00` and `Z0700`.
            Ok(_) => write!(out, "Z"),
        };
    }
    out
}

fn month(date: DateTime<Utc>) -> &'static str {
    let index = u8::try_from(date.month()).ok().and_then(|month| chrono::Month::try_from(month).ok());
    index.map_or("   ", |month| month.name())
}

fn day(date: DateTime<Utc>) -> &'static str {
    const DAYS: [&str; 7] = ["Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday"];
    DAYS[date.weekday().num_days_from_monday() as usize % 7]
}

/// Parses a date in a layout of numbers.
fn parsed(layout: &str, text: &str) -> Result<DateTime<Utc>, Problem> {
    let wrong = || Problem::from(format!("{text:?} has not the form {layout:?}, or is not in UTC"));
    let (mut rest, mut fields) = (text, [0_u32, 1, 1, 0, 0, 0]);
    for part in elements(layout) {
        let (at, digits) = match part {
            Ok("2006") => (0, 4),
            Ok("01") => (1, 2),
            Ok("02") => (2, 2),
            Ok("15") => (3, 2),
            Ok("04") => (4, 2),
            Ok("05") => (5, 2),
            Ok("Z07:00" | "Z0700") => {
                rest = rest.strip_prefix('Z').ok_or_else(wrong)?;
                continue;
            }
            Ok(other) => return Err(format!("the element {other:?} of a layout cannot be read").into()),
            Err(c) => {
                rest = rest.strip_prefix(c).ok_or_else(wrong)?;
                continue;
            }
        };
        let (number, after) = rest.split_at_checked(digits).ok_or_else(wrong)?;
        fields[at] = number.parse().map_err(|_| wrong())?;
        rest = after;
    }
    let [year, month, day, hour, minute, second] = fields;
    let date = NaiveDate::from_ymd_opt(i32::try_from(year).unwrap_or_default(), month, day);
    let date = date.and_then(|date| date.and_hms_opt(hour, minute, second)).filter(|_| rest.is_empty());
    date.map(|date| date.and_utc()).ok_or_else(wrong)
}
