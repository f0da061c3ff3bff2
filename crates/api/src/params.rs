//! Query parameters.

use config::parse_bool;

use crate::error::ApiError;

/// Maximum length of a query, in bytes.
const QUERY_LIMIT: usize = 16 * 1024;
/// Maximum number of parameters.
const COUNT_LIMIT: usize = 64;

/// The decoded parameters of a query, in order.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Params(Vec<(String, String)>);

impl Params {
    /// Parses the query, without the question mark.
    ///
    /// # Errors
    /// The query is too long or not correctly encoded.
    pub fn parse(query: &str) -> Result<Params, ApiError> {
        if query.len() > QUERY_LIMIT {
            let text = format!("the query has {} bytes; at most {QUERY_LIMIT} are allowed", query.len());
            return Err(ApiError::bad_request(text));
        }
        let mut params = Vec::new();
        for pair in query.split('&').filter(|pair| !pair.is_empty()) {
            if params.len() == COUNT_LIMIT {
                return Err(ApiError::bad_request(format!("the query has more than {COUNT_LIMIT} parameters")));
            }
            let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
            let decode = |text: &str| {
                percent_decode(text, true)
                    .map_err(|why| ApiError::bad_request(format!("parameter {} of the query {why}", params.len() + 1)))
            };
            let pair = (decode(name)?, decode(value)?);
            params.push(pair);
        }
        Ok(Params(params))
    }

    /// The value of a parameter; none if it is missing or empty.
    pub fn get(&self, name: &str) -> Option<&str> {
        let (_, value) = self.0.iter().find(|(n, value)| n == name && !value.is_empty())?;
        Some(value)
    }

    /// All values of a parameter.
    pub fn all(&self, name: &str) -> impl Iterator<Item = &str> {
        self.0.iter().filter(move |(n, _)| n == name).map(|(_, value)| value.as_str())
    }

    /// Whether a boolean parameter is set; without a value it is true.
    ///
    /// # Errors
    /// The value is not a boolean.
    pub fn flag(&self, name: &str) -> Result<bool, ApiError> {
        match self.0.iter().find(|(n, _)| n == name) {
            None => Ok(false),
            Some((_, value)) if value.is_empty() => Ok(true),
            Some((_, value)) => parse_bool(value).ok_or_else(|| wrong(name, value, "is not a boolean")),
        }
    }

    /// The value of an integer parameter; none if it is missing.
    ///
    /// # Errors
    /// The value is not a number.
    pub fn number(&self, name: &str) -> Result<Option<u64>, ApiError> {
        self.get(name).map(|value| value.parse().map_err(|_| wrong(name, value, "is not a whole number"))).transpose()
    }
}

/// Decodes `%XX` (and `+` as a space, in queries).
pub(crate) fn percent_decode(text: &str, plus: bool) -> Result<String, &'static str> {
    let mut out = Vec::with_capacity(text.len());
    let mut bytes = text.bytes();
    while let Some(byte) = bytes.next() {
        match byte {
            b'%' => {
                let mut digit = || bytes.next().and_then(|b| char::from(b).to_digit(16));
                let (Some(high), Some(low)) = (digit(), digit()) else {
                    return Err("has a percent sign that two hexadecimal digits do not follow");
                };
                // Both digits are less than 16.
                out.push((high * 16 + low) as u8);
            }
            b'+' if plus => out.push(b' '),
            byte => out.push(byte),
        }
    }
    String::from_utf8(out).map_err(|_| "is not UTF-8")
}

/// The error for an invalid value. Long values are shortened.
pub(crate) fn wrong(name: &str, value: &str, why: &str) -> ApiError {
    let value: String = value.chars().take(100).collect();
    ApiError::bad_request(format!("{name}: Invalid value: {value:?}: {why}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn values_are_decoded() {
        let params = Params::parse("labelSelector=a%3Db%2Cc&watch&limit=5&x=1+2&dryRun=All&dryRun=None").unwrap();
        assert_eq!(params.get("labelSelector"), Some("a=b,c"));
        assert!(params.flag("watch").unwrap());
        assert_eq!(params.number("limit").unwrap(), Some(5));
        assert_eq!(params.get("x"), Some("1 2"));
        assert_eq!(params.all("dryRun").count(), 2);
        assert!(params.number("x").unwrap_err().message.contains("not a whole number"));
        assert!(Params::parse("a=%f").unwrap_err().message.contains("parameter 1"));
        assert_eq!(Params::parse(&"a&".repeat(100)).unwrap_err().code, 400);
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(256))]

        #[test]
        fn any_query_is_answered(query in ".{0,200}") {
            let _ = Params::parse(&query);
        }
    }
}
