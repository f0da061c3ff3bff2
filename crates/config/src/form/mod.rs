//! Formats of texts and numbers that schemas of CRDs do not express. Declarations of fields refer to them by name
//! (`is host`, see `schema::facts`).

mod access_log;
mod authorization;
mod cel;
mod filter;
pub(crate) mod header;
pub(crate) mod host;
mod lua;
mod number;
mod operators;
mod re2;
mod regex;
mod token;

pub(crate) use access_log::{fields as log_fields, file as log_file, format as log_format};
pub(crate) use authorization::{attribute, path_template, service_account, trust_domain_pattern, wildcard};
pub(crate) use cel::{RESERVED as CEL_RESERVED, cel};
pub(crate) use filter::filter_name;
pub(crate) use header::{changed_header, header_name, header_value, logged_header, matched_header};
pub use header::{is_claim as is_claim_header, is_name as is_header_name};
pub(crate) use host::{
    destination_host, gateway_host, gateway_name, host, host_port, ingress_host, name, name_or_address, service,
    sidecar_host,
};
pub(crate) use lua::lua;
pub(crate) use number::{
    delay, duration, duration_or_zero, port_number, port_or_zero, positive, prime, redirect_code, retry_on, seconds,
    status,
};
pub use regex::{DEFAULT_PROGRAM_SIZE, MAX_PROGRAM_SIZE, regex_program_size};
pub(crate) use regex::{check_regex, own_regex, regex};
pub(crate) use token::{http_url, key_set, module_url};

use std::net::IpAddr;

use names::cluster::LONGEST_SNI;
use names::{CIPHER_SUITES, Protocol, TrustDomain};

use crate::problem::Severity;

/// A format. Returns why a text does not have it.
pub(crate) type Form = fn(&str) -> Result<(), Fault>;

/// Why a text does not have a format.
#[derive(Debug)]
pub(crate) struct Fault {
    pub(crate) severity: Severity,
    pub(crate) code: &'static str,
    pub(crate) message: String,
    pub(crate) hint: Option<String>,
}

impl Fault {
    /// An error.
    pub(crate) fn new(code: &'static str, message: impl Into<String>) -> Fault {
        Fault { severity: Severity::Error, code, message: message.into(), hint: None }
    }

    /// A warning.
    pub(crate) fn warning(code: &'static str, message: impl Into<String>) -> Fault {
        Fault { severity: Severity::Warning, ..Fault::new(code, message) }
    }

    /// The same with a hint that says what to write instead.
    pub(crate) fn hint(mut self, hint: impl Into<String>) -> Fault {
        self.hint = Some(hint.into());
        self
    }
}

/// An error with the code `bad-value` unless the text is good.
fn good(good: bool, message: impl FnOnce() -> String) -> Result<(), Fault> {
    if good { Ok(()) } else { Err(Fault::new("bad-value", message())) }
}

/// Some text.
pub(crate) fn text(text: &str) -> Result<(), Fault> {
    good(!text.is_empty(), || "an entry must not be empty".to_owned())
}

/// A text that becomes part of a header. Envoy rejects line breaks and NUL characters.
pub(crate) fn one_line(text: &str) -> Result<(), Fault> {
    good(!text.contains(['\0', '\r', '\n']), || {
        "the text must not contain line breaks or NUL characters; percent-encode them".to_owned()
    })
}

/// A DNS label: the name of a port, a subset, a namespace or a Service.
pub(crate) fn label(text: &str) -> Result<(), Fault> {
    good(host::is_label(text), || format!("{text:?} is not a valid name; use letters, digits and dashes"))
}

/// A key of Kubernetes labels: a name of at most 63 characters with an optional DNS prefix and `/`.
pub(crate) fn label_key(key: &str) -> Result<(), Fault> {
    let (prefix, name) = key.rsplit_once('/').unwrap_or(("", key));
    let prefix_fits = prefix.is_empty() || (prefix.len() <= 253 && prefix.split('.').all(host::is_label));
    let fits = prefix_fits && !key.starts_with('/') && is_label_word(name);
    good(fits, || format!("{key:?} is not a valid label key"))
}

/// A value of Kubernetes labels.
pub(crate) fn label_value(value: &str) -> Result<(), Fault> {
    let fits = value.is_empty() || is_label_word(value);
    good(fits, || format!("{value:?} is not a valid label value"))
}

fn is_label_word(word: &str) -> bool {
    let inner = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'_' | b'.');
    let ends = [word.bytes().next(), word.bytes().last()];
    word.len() <= 63 && word.bytes().all(inner) && ends.iter().all(|b| b.is_some_and(|b| b.is_ascii_alphanumeric()))
}

/// A key of the labels of a selector.
pub(crate) fn selector_key(key: &str) -> Result<(), Fault> {
    good(!key.is_empty(), || "a label key must not be empty".to_owned())?;
    selector_value(key)
}

/// A value of the labels of a selector.
pub(crate) fn selector_value(value: &str) -> Result<(), Fault> {
    good(!value.contains('*'), || "wildcards are not supported in selectors".to_owned())
}

/// The name of a protocol.
pub(crate) fn protocol(name: &str) -> Result<(), Fault> {
    good(!Protocol::parse(name).is_unsupported(), || {
        let known = Protocol::ALL.iter().filter(|p| !p.is_unsupported());
        let known: Vec<&str> = known.map(|p| p.name()).collect();
        format!("unknown protocol {name:?}; supported protocols are {}", known.join(", "))
    })
}

/// An IP address.
pub(crate) fn ip(text: &str) -> Result<(), Fault> {
    good(text.parse::<IpAddr>().is_ok(), || format!("{text:?} is not an IP address"))
}

/// An IP address or `None`.
pub(crate) fn ip_or_none(text: &str) -> Result<(), Fault> {
    if text == "None" { Ok(()) } else { ip(text) }
}

/// An IP address or CIDR range.
pub(crate) fn subnet(text: &str) -> Result<(), Fault> {
    let fits = text.parse::<IpAddr>().is_ok() || text.parse::<ipnet::IpNet>().is_ok();
    good(fits, || format!("{text:?} is not an IP address or CIDR range"))
}

/// A CIDR range.
pub(crate) fn cidr(text: &str) -> Result<(), Fault> {
    good(text.contains('/'), || format!("{text:?} is not a CIDR range such as 10.0.0.0/8"))?;
    subnet(text)
}

/// Prefix of Unix domain socket addresses.
pub(crate) const UNIX: &str = "unix://";

/// The path of a Unix domain socket, or `@name` in the abstract namespace.
pub(crate) fn unix_path(socket: &str) -> Result<(), Fault> {
    let absolute = socket.starts_with('/') && !socket.ends_with('/');
    good(absolute || socket.starts_with('@'), || format!("{socket:?} is not the absolute path of a Unix domain socket"))
}

/// An address to listen on: a Unix domain socket or an IP address.
pub(crate) fn bind(text: &str) -> Result<(), Fault> {
    text.strip_prefix(UNIX).map_or_else(|| ip(text), unix_path)
}

/// The address of an application that a sidecar forwards to.
pub(crate) fn local_endpoint(endpoint: &str) -> Result<(), Fault> {
    if let Some(socket) = endpoint.strip_prefix(UNIX) {
        return unix_path(socket);
    }
    let (host, port) = endpoint.rsplit_once(':').unwrap_or(("-", ""));
    good(matches!(host, "" | "127.0.0.1" | "0.0.0.0" | "[::1]" | "[::]"), || {
        "the address must have the form 127.0.0.1:PORT, 0.0.0.0:PORT, [::1]:PORT, [::]:PORT or unix:///path".to_owned()
    })?;
    port_number(port)
}

/// A trust domain.
pub(crate) fn trust_domain(text: &str) -> Result<(), Fault> {
    TrustDomain::parse(text).map_err(|error| Fault::new("bad-value", error.to_string()))?;
    let name = text.strip_suffix('.').unwrap_or(text);
    good(name.split('.').all(host::is_label), || format!("{text:?} is not a valid trust domain; use a DNS name"))
}

/// A region, without zone and wildcard.
pub(crate) fn region(text: &str) -> Result<(), Fault> {
    good(!text.contains(['/', '*']), || {
        format!("{text:?} is not a valid region; zones and wildcards are not supported")
    })
}

/// A TLS server name.
pub(crate) fn server_name(sni: &str) -> Result<(), Fault> {
    good(sni.len() <= LONGEST_SNI, || {
        format!("the server name must not exceed {LONGEST_SNI} bytes, but has {}", sni.len())
    })
}

/// The hash of a certificate. Its length is all that Envoy validates: 32 bytes.
pub(crate) fn certificate_hash(hash: &str) -> Result<(), Fault> {
    good((64..=95).contains(&hash.len()), || {
        "a hash must have 64 hexadecimal digits, optionally with colons between the bytes".to_owned()
    })
}

/// The hash of a public key.
pub(crate) fn key_hash(hash: &str) -> Result<(), Fault> {
    good(hash.len() == 44, || "the hash of a public key must have 44 base64 characters".to_owned())
}

/// Cipher suite that Istio accepts but Envoy no longer supports.
const OLD_CIPHER: &str = "DES-CBC3-SHA";

/// The name of a cipher suite, `ALL`, or an expression such as `-ALL`, which Envoy interprets.
pub(crate) fn cipher(suite: &str) -> Result<(), Fault> {
    let is_expression = !suite.starts_with(char::is_alphanumeric);
    if is_expression || suite == "ALL" || suite == OLD_CIPHER || CIPHER_SUITES.contains(&suite) {
        return Ok(());
    }
    Err(Fault::warning("no-effect", format!("unknown cipher suite {suite:?} is ignored")))
}

/// Curves that Envoy has for key exchange.
pub const CURVES: [&str; 5] = ["P-256", "P-384", "P-521", "X25519", "X25519MLKEM768"];

/// The name of a curve.
pub(crate) fn curve(name: &str) -> Result<(), Fault> {
    if CURVES.contains(&name) {
        return Ok(());
    }
    let fault = Fault::warning("no-effect", format!("the unknown curve {name:?} is ignored"));
    Err(fault.hint(format!("the curves are {}", CURVES.join(", "))))
}

/// The name of a gRPC status code.
pub(crate) fn grpc_status(status: &str) -> Result<(), Fault> {
    const NAMES: &str = "OK CANCELLED UNKNOWN INVALID_ARGUMENT DEADLINE_EXCEEDED NOT_FOUND ALREADY_EXISTS \
                         PERMISSION_DENIED RESOURCE_EXHAUSTED FAILED_PRECONDITION ABORTED OUT_OF_RANGE UNIMPLEMENTED \
                         INTERNAL UNAVAILABLE DATA_LOSS UNAUTHENTICATED";
    let known = NAMES.split_ascii_whitespace().any(|name| name == status);
    good(known, || format!("{status:?} is not a gRPC status code"))
}

/// The start of a path.
pub(crate) fn absolute_path(path: &str) -> Result<(), Fault> {
    good(path.starts_with('/'), || "the path prefix must start with a slash".to_owned())
}

/// Maximum size of a body, and the size above which a warning is reported, in bytes.
const MAX_BODY: usize = 1 << 20;
const LARGE_BODY: usize = 100 << 10;

/// The body of a response.
pub(crate) fn body(text: &str) -> Result<(), Fault> {
    if text.len() > MAX_BODY {
        return Err(Fault::new("out-of-range", "the body must not exceed 1 MiB"));
    }
    if text.len() > LARGE_BODY {
        let message = "a body larger than 100 KiB slows down configuration updates";
        return Err(Fault::warning("costly", message));
    }
    Ok(())
}

/// The body of a response in base64.
pub(crate) fn base64_body(text: &str) -> Result<(), Fault> {
    body(&text[..text.len() / 4 * 3])
}
