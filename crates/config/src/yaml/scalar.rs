//! Resolution of plain scalars by the rules of the YAML parser of Kubernetes (booleans and octals of YAML 1.1). Unlike
//! there, `y` and `n` are strings, because users mean names and labels.

/// The meaning of a text.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(crate) enum Scalar<'a> {
    Null,
    Bool(bool),
    Int(i128),
    Float(f64),
    Text(&'a str),
}

impl Scalar<'_> {
    /// Resolves a plain scalar.
    pub(crate) fn resolve(text: &str) -> Scalar<'_> {
        match text {
            "" | "~" | "null" | "Null" | "NULL" => return Scalar::Null,
            "true" | "True" | "TRUE" | "yes" | "Yes" | "YES" | "on" | "On" | "ON" => return Scalar::Bool(true),
            "false" | "False" | "FALSE" | "no" | "No" | "NO" | "off" | "Off" | "OFF" => return Scalar::Bool(false),
            ".inf" | ".Inf" | ".INF" | "+.inf" | "+.Inf" | "+.INF" => return Scalar::Float(f64::INFINITY),
            "-.inf" | "-.Inf" | "-.INF" => return Scalar::Float(f64::NEG_INFINITY),
            ".nan" | ".NaN" | ".NAN" => return Scalar::Float(f64::NAN),
            _ => {}
        }
        // Most scalars are words, which the first byte shows.
        if !matches!(text.as_bytes()[0], b'0'..=b'9' | b'+' | b'-' | b'.') {
            return Scalar::Text(text);
        }
        if let Some(value) = parse_int(text) {
            return Scalar::Int(value);
        }
        match parse_float(text) {
            Some(value) => Scalar::Float(value),
            None => Scalar::Text(text),
        }
    }
}

/// An integer: decimal, `0x`, `0b`, `0o`, or octal by a leading zero; `_` between digits.
pub(crate) fn parse_int(text: &str) -> Option<i128> {
    let (negative, digits) = match text.as_bytes().first()? {
        b'-' => (true, &text[1..]),
        b'+' => (false, &text[1..]),
        _ => (false, text),
    };
    let (radix, digits) = match digits.as_bytes() {
        [b'0', b'x' | b'X', ..] => (16, &digits[2..]),
        [b'0', b'b' | b'B', ..] => (2, &digits[2..]),
        [b'0', b'o' | b'O', ..] => (8, &digits[2..]),
        [b'0', b'0'..=b'9' | b'_', ..] => (8, &digits[1..]),
        _ => (10, digits),
    };
    let first = digits.chars().next()?;
    if !first.is_digit(radix) || digits.len() > 64 {
        return None;
    }
    let mut value: i128 = 0;
    for c in digits.chars().filter(|c| *c != '_') {
        value = value.checked_mul(i128::from(radix))?.checked_add(i128::from(c.to_digit(radix)?))?;
    }
    Some(if negative { -value } else { value })
}

/// A decimal number with a fraction or an exponent.
fn parse_float(text: &str) -> Option<f64> {
    let allowed = |b: u8| b.is_ascii_digit() || matches!(b, b'+' | b'-' | b'.' | b'e' | b'E');
    let has_digit = text.bytes().any(|b| b.is_ascii_digit());
    if text.len() > 64 || !has_digit || !text.bytes().all(allowed) {
        return None;
    }
    text.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn meanings() {
        for (text, want) in [
            ("", Scalar::Null),
            ("~", Scalar::Null),
            ("yes", Scalar::Bool(true)),
            ("Off", Scalar::Bool(false)),
            ("y", Scalar::Text("y")),
            ("0", Scalar::Int(0)),
            ("-12", Scalar::Int(-12)),
            ("+12", Scalar::Int(12)),
            ("0644", Scalar::Int(0o644)),
            ("0o17", Scalar::Int(15)),
            ("0xff", Scalar::Int(255)),
            ("0b101", Scalar::Int(5)),
            ("1_000", Scalar::Int(1000)),
            ("089", Scalar::Float(89.0)),
            ("1.5", Scalar::Float(1.5)),
            ("1e3", Scalar::Float(1000.0)),
            ("-.5", Scalar::Float(-0.5)),
            ("1.2.3", Scalar::Text("1.2.3")),
            ("10s", Scalar::Text("10s")),
            ("-", Scalar::Text("-")),
            ("0x", Scalar::Text("0x")),
            ("2026-01-01", Scalar::Text("2026-01-01")),
            ("infinity", Scalar::Text("infinity")),
            ("99999999999999999999999999999999999999999999", Scalar::Float(1e44)),
        ] {
            assert_eq!(Scalar::resolve(text), want, "{text:?}");
        }
    }
}
