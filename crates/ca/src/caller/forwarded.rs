//! The header `x-forwarded-client-cert` of Envoy, from gateways in `TRUSTED_GATEWAY_CIDR`.
//!
//! Unlike istiod, Rutter accepts only headers with one element. A gateway that appends to the header of its client
//! (`APPEND_FORWARD`) would let the client choose its identity.

use std::net::IpAddr;

use ipnet::IpNet;
use names::Identity;

use super::{Caller, CallerError, Method};

/// The largest accepted header, in bytes.
pub const MAX_HEADER: usize = 16 * 1024;

/// The addresses of trusted gateways. Unlike in istiod, loopback addresses count only if they are listed: any user of a machine
/// can connect from them.
#[derive(Clone, Default, PartialEq, Eq, Debug)]
pub struct TrustedRanges(Vec<IpNet>);

impl TrustedRanges {
    /// Parses `CIDR,…`. Returns the entries that are no CIDR as well, which are ignored.
    pub fn parse(text: &str) -> (TrustedRanges, Vec<String>) {
        let (mut ranges, mut invalid) = (Vec::new(), Vec::new());
        for entry in text.split(',').map(str::trim).filter(|entry| !entry.is_empty()) {
            match entry.parse() {
                Ok(range) => ranges.push(range),
                Err(_) => invalid.push(entry.to_owned()),
            }
        }
        (TrustedRanges(ranges), invalid)
    }

    /// Whether a header from this address counts.
    pub fn contains(&self, address: IpAddr) -> bool {
        self.0.iter().any(|range| range.contains(&address.to_canonical()))
    }
}

impl Caller {
    /// A caller behind a gateway.
    ///
    /// # Errors
    /// The gateway is not trusted, or the header does not have exactly one element with one SPIFFE identity.
    pub fn from_forwarded(header: &str, gateway: IpAddr, trusted: &TrustedRanges) -> Result<Caller, CallerError> {
        let error = |reason| Err(CallerError::Forwarded(reason));
        if !trusted.contains(gateway) {
            return error("the gateway is not in TRUSTED_GATEWAY_CIDR");
        }
        if header.len() > MAX_HEADER {
            return error("it is too long");
        }
        let Some(elements) = split(header, ',') else {
            return error("a quote is not closed");
        };
        let [element] = elements[..] else {
            return error("it has several elements; set forwardClientCertDetails of the gateway to SANITIZE_SET");
        };
        let pairs = split(element, ';').unwrap_or_default();
        let pairs = pairs.iter().filter_map(|pair| pair.split_once('='));
        let uris: Vec<&str> =
            pairs.filter(|(key, _)| key.trim().eq_ignore_ascii_case("uri")).map(|(_, uri)| uri).collect();
        match uris[..] {
            [uri] => match Identity::parse(uri.trim().trim_matches('"')) {
                Ok(identity) => Ok(Caller::new(Method::ForwardedCertificate, identity)),
                Err(_) => error("its URI is not a SPIFFE identity"),
            },
            _ => error("it does not have exactly one URI"),
        }
    }
}

/// Splits a text at separators outside of quotes; `None` if a quote is not closed.
fn split(text: &str, separator: char) -> Option<Vec<&str>> {
    let (mut parts, mut start, mut quoted, mut escaped) = (Vec::new(), 0, false, false);
    for (at, c) in text.char_indices() {
        match c {
            _ if escaped => escaped = false,
            '\\' if quoted => escaped = true,
            '"' => quoted = !quoted,
            _ if c == separator && !quoted => {
                parts.push(&text[start..at]);
                start = at + c.len_utf8();
            }
            _ => {}
        }
    }
    parts.push(&text[start..]);
    (!quoted).then_some(parts)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn caller(header: &str, gateway: &str) -> Result<String, CallerError> {
        let (trusted, invalid) = TrustedRanges::parse("10.0.0.0/8, 10.1.2.3,fd00::/8,::1/128");
        assert_eq!(invalid, ["10.1.2.3"], "as with istiod, a range is required");
        Caller::from_forwarded(header, gateway.parse().unwrap(), &trusted).map(|caller| caller.identity.to_string())
    }

    #[test]
    fn one_element_of_a_trusted_gateway_counts() {
        let id = "spiffe://cluster.local/ns/shop/sa/cart";
        let header = format!("By=spiffe://td/ns/a/sa/gw;Hash=ab;Subject=\"CN=a\\\"b,O=c;d\";URI={id};DNS=x");
        for gateway in ["10.9.9.9", "::1", "::ffff:10.0.0.1", "fd00::1"] {
            assert_eq!(caller(&header, gateway).unwrap(), id);
        }
        for other in ["192.0.2.1", "127.0.0.1"] {
            assert!(caller(&header, other).unwrap_err().to_string().contains("TRUSTED_GATEWAY_CIDR"), "{other}");
        }
        let error = caller(&format!("URI=spiffe://td/ns/a/sa/b,{header}"), "::1").unwrap_err().to_string();
        assert!(error.contains("SANITIZE_SET"), "{error}");
        for bad in ["", "URI=", "URI=https://a", "Subject=\"a", &format!("URI={id};URI={id}"), "DNS=a.example"] {
            assert!(caller(bad, "::1").is_err(), "{bad}");
        }
        assert!(caller(&"a".repeat(MAX_HEADER + 1), "::1").is_err());
    }

    proptest! {
        #[test]
        fn no_header_panics(header in "\\PC{0,200}", quoted in "[\";,=\\\\aURI]{0,60}") {
            let _ = caller(&header, "::1");
            let _ = caller(&quoted, "::1");
        }
    }
}
