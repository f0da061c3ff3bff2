//! Booleans as text, in the spellings of Go's `strconv.ParseBool`.

/// Parses a boolean, such as `true`, `T` or `1`. Other spellings are none.
pub fn parse_bool(text: &str) -> Option<bool> {
    match text {
        "1" | "t" | "T" | "true" | "TRUE" | "True" => Some(true),
        "0" | "f" | "F" | "false" | "FALSE" | "False" => Some(false),
        _ => None,
    }
}
