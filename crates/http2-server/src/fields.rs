//! The header fields of requests (RFC 9113, section 8).

use http::header::{CONNECTION, CONTENT_LENGTH, TE, TRANSFER_ENCODING, UPGRADE};
use http::uri::PathAndQuery;
use http::{HeaderMap, HeaderName, HeaderValue, Method, Request, Uri};

use crate::hpack::FIELD_BYTES;

/// The size of all fields of a request that is accepted: names and values, and 32 bytes for each.
pub(crate) const MAX_BYTES: usize = 16 << 10;
/// The fields of a request or of its trailers, as far as they were read.
#[derive(Default)]
pub(crate) struct Fields {
    method: Option<Method>,
    path: Option<PathAndQuery>,
    has_scheme: bool,
    has_authority: bool,
    headers: HeaderMap,
    size: usize,
    is_malformed: bool,
}

/// Why fields are no request.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Refused {
    Malformed,
    TooLarge,
}

impl Fields {
    /// Adds a field.
    pub(crate) fn add(&mut self, name: &[u8], value: &[u8]) {
        self.size += name.len() + value.len() + FIELD_BYTES;
        // No memory is used for fields that are refused.
        if self.size > MAX_BYTES || self.is_malformed {
            return;
        }
        let is_valid = match name.split_first() {
            Some((b':', name)) => self.add_pseudo(name, value),
            _ => self.add_regular(name, value),
        };
        self.is_malformed = is_valid.is_none();
    }

    /// Adds a pseudo-header field, without its colon. None may occur twice, or after other fields.
    fn add_pseudo(&mut self, name: &[u8], value: &[u8]) -> Option<()> {
        let is_first = match name {
            b"method" => self.method.replace(Method::from_bytes(value).ok()?).is_none(),
            b"path" => self.path.replace(PathAndQuery::try_from(value).ok().filter(|_| !value.is_empty())?).is_none(),
            b"scheme" => !std::mem::replace(&mut self.has_scheme, true),
            // Nothing depends on it. The C library of gRPC sends the encoded path of a Unix socket, which is no valid authority.
            b"authority" => !std::mem::replace(&mut self.has_authority, true),
            _ => false,
        };
        (is_first && self.headers.is_empty()).then_some(())
    }

    fn add_regular(&mut self, name: &[u8], value: &[u8]) -> Option<()> {
        let is_lowercase = !name.iter().any(u8::is_ascii_uppercase);
        let name = HeaderName::from_bytes(name).ok().filter(|_| is_lowercase)?;
        let value = HeaderValue::from_bytes(value).ok()?;
        let is_of_connection = [CONNECTION, TRANSFER_ENCODING, UPGRADE].contains(&name)
            || matches!(name.as_str(), "keep-alive" | "proxy-connection")
            || (name == TE && value != "trailers");
        self.headers.append(name, value);
        (!is_of_connection).then_some(())
    }

    /// The request with these fields, and the length of its body if it has one.
    pub(crate) fn into_request(self) -> Result<(Request<()>, Option<u64>), Refused> {
        self.check()?;
        let (Some(method), Some(path), true) = (self.method, self.path, self.has_scheme) else {
            return Err(Refused::Malformed);
        };
        let length = match self.headers.get(CONTENT_LENGTH) {
            Some(length) => Some(length.to_str().ok().and_then(|text| text.parse().ok()).ok_or(Refused::Malformed)?),
            None => None,
        };
        let mut request = Request::new(());
        *request.method_mut() = method;
        *request.uri_mut() = Uri::from(path);
        *request.version_mut() = http::Version::HTTP_2;
        *request.headers_mut() = self.headers;
        Ok((request, length))
    }

    /// Whether these may be the trailers of a request.
    pub(crate) fn are_trailers(&self) -> bool {
        let has_pseudo = self.method.is_some() || self.path.is_some() || self.has_scheme || self.has_authority;
        self.check().is_ok() && !has_pseudo
    }

    fn check(&self) -> Result<(), Refused> {
        match (self.is_malformed, self.size > MAX_BYTES) {
            (true, _) => Err(Refused::Malformed),
            (_, true) => Err(Refused::TooLarge),
            _ => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fields(fields: &[(&str, &str)]) -> Fields {
        let mut all = Fields::default();
        fields.iter().for_each(|(name, value)| all.add(name.as_bytes(), value.as_bytes()));
        all
    }

    const HEAD: [(&str, &str); 4] =
        [(":method", "POST"), (":scheme", "http"), (":path", "/a?b"), (":authority", "%2Frun%2Fxds")];

    #[test]
    fn a_request_has_its_method_path_and_fields() {
        let (request, length) = fields(&[&HEAD[..], &[("te", "trailers"), ("content-length", "7")]].concat())
            .into_request()
            .expect("valid");
        assert_eq!((request.method(), request.uri().to_string(), length), (&Method::POST, "/a?b".into(), Some(7)));
        assert_eq!(request.headers()["te"], "trailers");
    }

    #[test]
    fn malformed_requests_are_refused() {
        let invalid = [
            ("Name", "a"),
            ("na me", "a"),
            ("name", "a\nb"),
            ("", ""),
            ("connection", "close"),
            ("te", "gzip"),
            ("upgrade", "h2c"),
            ("transfer-encoding", "chunked"),
            ("keep-alive", "1"),
            ("content-length", "x"),
            (":method", "GET"),
            (":status", "200"),
            (":", ""),
        ];
        for field in invalid {
            let refused = fields(&[&HEAD[..], &[field]].concat()).into_request().map(drop);
            assert_eq!(refused, Err(Refused::Malformed), "{field:?}");
        }
        for missing in [0, 1, 2] {
            let mut head = HEAD.to_vec();
            let removed = head.remove(missing);
            assert_eq!(fields(&head).into_request().map(drop), Err(Refused::Malformed), "without {removed:?}");
            head.extend([("name", "value"), removed]);
            assert_eq!(fields(&head).into_request().map(drop), Err(Refused::Malformed), "{removed:?} at the end");
        }
    }

    #[test]
    fn large_requests_are_refused() {
        let value = "v".repeat(1000);
        let large: Vec<_> = HEAD.into_iter().chain([("name", value.as_str()); 17]).collect();
        let refused = fields(&large);
        assert!(refused.headers.len() < 17, "fields beyond the limit are not kept");
        assert_eq!(refused.into_request().map(drop), Err(Refused::TooLarge));
    }

    #[test]
    fn trailers_have_no_pseudo_header_fields() {
        assert!(fields(&[("grpc-status", "0")]).are_trailers());
        assert!(!fields(&HEAD[..1]).are_trailers());
    }
}
