//! Names and values of HTTP headers.

use crate::form::{Fault, operators};

/// Whether a text consists of the characters that RFC 7230 allows in a header name.
pub fn is_name(name: &str) -> bool {
    let token = |b: u8| b.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&b);
    !name.is_empty() && name.bytes().all(token)
}

/// The name of a header.
pub(crate) fn header_name(name: &str) -> Result<(), Fault> {
    if is_name(name) {
        return Ok(());
    }
    Err(Fault::new("bad-header", format!("{name:?} is not a valid header name")))
}

/// The name of a header or pseudo-header to log.
pub(crate) fn logged_header(name: &str) -> Result<(), Fault> {
    header_name(name.trim_start_matches(':'))
}

/// The name of a header to match. Pseudo-headers and JWT claims (`@request.auth.claims.…`) are allowed.
pub(crate) fn matched_header(name: &str) -> Result<(), Fault> {
    const PSEUDO: [&str; 5] = [":method", ":scheme", ":authority", ":path", ":status"];
    if PSEUDO.contains(&name) || is_claim(name) {
        return Ok(());
    }
    header_name(name)
}

/// Whether the name of a header refers to a JWT claim.
pub fn is_claim(name: &str) -> bool {
    let prefix = name.get(.."@request.auth.claims".len());
    prefix.is_some_and(|p| p.eq_ignore_ascii_case("@request.auth.claims"))
        && name["@request.auth.claims".len()..].starts_with(['.', '['])
}

/// Whether a header is the authority.
pub(crate) fn is_authority(name: &str) -> bool {
    name.eq_ignore_ascii_case(":authority") || name.eq_ignore_ascii_case("host")
}

/// The name of a header to set, add or remove.
pub(crate) fn changed_header(name: &str) -> Result<(), Fault> {
    fits("name", name)?;
    let message = match name {
        "" => "the header name must not be empty".to_owned(),
        name if is_authority(name) => return Ok(()),
        name if name.starts_with(':') => format!("the header {name:?} cannot be changed"),
        name => return header_name(name),
    };
    Err(Fault::new("bad-header", message))
}

/// Maximum length of the name and of the value of a header to set in bytes.
const MAX_LENGTH: usize = 16_384;

fn fits(what: &str, text: &str) -> Result<(), Fault> {
    if text.len() <= MAX_LENGTH {
        return Ok(());
    }
    let message =
        format!("the {what} of a header must not be longer than {MAX_LENGTH} bytes, and this one has {}", text.len());
    Err(Fault::new("out-of-range", message))
}

/// The value of a header to set.
pub(crate) fn header_value(value: &str) -> Result<(), Fault> {
    fits("value", value)?;
    let problem = value_problem(value).map(|problem| format!("{value:?} is not a valid header value: {problem}"));
    problem.map_or(Ok(()), |message| Err(Fault::new("bad-header", message)))
}

/// Reports why Envoy would reject a header value: control characters, or an invalid command operator (`%OPERATOR%` or
/// `%OPERATOR(ARGUMENTS)%`).
fn value_problem(value: &str) -> Option<&'static str> {
    if value.bytes().any(|b| (b < 0x20 && b != b'\t') || b == 0x7f) {
        return Some("it contains control characters");
    }
    format_problem(value)
}

/// Reports why Envoy would reject a format string: an invalid `%OPERATOR%`, `%OPERATOR(ARGUMENTS)%` or
/// `%OPERATOR(ARGUMENTS):LENGTH%`.
pub(super) fn format_problem(text: &str) -> Option<&'static str> {
    let mut rest = text;
    while let Some((_, after)) = rest.split_once('%') {
        if let Some(after) = after.strip_prefix('%') {
            rest = after;
            continue;
        }
        let arguments = after.find(['%', '(']).is_some_and(|end| after[end..].starts_with('('));
        let name = after.split(['%', '(', ':']).next().unwrap_or_default();
        rest = match operator_end(after) {
            Some(_) if operators::problem(name, arguments).is_some() => return operators::problem(name, arguments),
            Some(after) => after,
            None => return Some("a % must start a command operator such as %HOSTNAME% or be escaped as %%"),
        };
    }
    None
}

/// Returns the text after the operator that starts at `text`; `None` if it is not terminated correctly.
fn operator_end(text: &str) -> Option<&str> {
    let end = text.find(['%', '(', ':'])?;
    let Some(arguments) = text[end..].strip_prefix('(') else {
        return after_length(&text[end..]);
    };
    let after = match arguments.trim_start_matches(' ').strip_prefix('[') {
        Some(list) => list_end(list)?.trim_start_matches(' ').strip_prefix(')')?,
        None => &arguments[closing(arguments, ')')? + 1..],
    };
    after_length(after.trim_start_matches(' '))
}

/// Returns the text after the end of an operator, which can include a maximum length.
fn after_length(text: &str) -> Option<&str> {
    let rest = match text.strip_prefix(':') {
        Some(length) => {
            let digits = length.trim_start_matches(|c: char| c.is_ascii_digit());
            (digits.len() < length.len()).then_some(digits)?
        }
        None => text,
    };
    rest.strip_prefix('%')
}

/// Returns the text after a list of double-quoted strings. `text` starts after the `[`.
fn list_end(text: &str) -> Option<&str> {
    let mut rest = text;
    loop {
        let string = rest.trim_start_matches(' ').strip_prefix('"')?;
        let after = string[closing(string, '"')? + 1..].trim_start_matches(' ');
        match after.strip_prefix(',') {
            Some(next) => rest = next,
            None => return after.strip_prefix(']'),
        }
    }
}

/// Position of an unescaped character.
fn closing(text: &str, end: char) -> Option<usize> {
    let mut escaped = false;
    text.char_indices().find_map(|(position, c)| {
        let found = c == end && !escaped;
        escaped = c == '\\' && !escaped;
        found.then_some(position)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values() {
        for good in [
            "",
            "abc",
            "100%%",
            "a %HOSTNAME% b",
            "%REQ(x-a)%",
            "%FILTER_STATE(a.b)%",
            "%UPSTREAM_METADATA([\"a\", \"b\\\"c\"])%",
            "%START_TIME(%s)%",
            "%REQ(x-a):10%",
            "%PROTOCOL:3%%DURATION%",
            "tab\tok",
        ] {
            assert_eq!(value_problem(good), None, "{good}");
        }
        for bad in [
            "%",
            "abc%123",
            "%START_TIME%%",
            "%NO_SUCH%",
            "%REQ%",
            "%PER_REQUEST_STATE(a.b)%",
            "%REQ(x%",
            "%A([\"x\")%",
            "%A(\"x\"",
            "%A() x%",
            "%REQ(x-a):%",
            "%REQ(x-a):a%",
            "%DURATION:%",
            "a\nb",
            "\u{7f}",
        ] {
            assert!(value_problem(bad).is_some(), "{bad}");
        }
    }

    #[test]
    fn names() {
        assert!(is_claim("@request.auth.claims.sub") && is_claim("@request.auth.claims[a][b]"));
        assert!(!is_claim("@request.auth.claims") && !is_claim("@request.auth.claimsx") && !is_claim("\u{e9}"));
        assert!(is_name("x-a") && !is_name("") && !is_name("a b") && !is_name(":path"));
    }
}
