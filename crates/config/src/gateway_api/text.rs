//! Patterns (RE2) of texts and their explanations.

/// The API group of the Gateway API.
pub(crate) const GATEWAY_GROUP: &str = "gateway.networking.k8s.io";

/// API group: a DNS name, or empty for the core group.
pub(crate) const GROUP: &str = r"^$|^[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*$";
/// Name of a kind.
pub(crate) const KIND: &str = r"^[a-zA-Z]([-a-zA-Z0-9]*[a-zA-Z0-9])?$";
/// DNS label, such as the name of a namespace.
pub(crate) const LABEL: &str = r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?$";
/// DNS name, such as the name of a listener.
pub(crate) const DNS_NAME: &str = r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*$";
/// DNS name, optionally with the prefix `*.`.
pub(crate) const HOSTNAME: &str = r"^(\*\.)?[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*$";
/// Domain-prefixed path, such as `istio.io/gateway-controller`.
pub(crate) const CONTROLLER: &str =
    r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*\/[A-Za-z0-9\/\-._~%!$&'()*+,;=:]+$";
/// Type of an address: `Hostname`, `IPAddress`, `NamedAddress` or a domain-prefixed path.
pub(crate) const ADDRESS_TYPE: &str = r"^Hostname|IPAddress|NamedAddress|[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*\/[A-Za-z0-9\/\-._~%!$&'()*+,;=:]+$";
/// Protocol of a listener, optionally domain-prefixed.
pub(crate) const PROTOCOL: &str = r"^[a-zA-Z0-9]([-a-zA-Z0-9]*[a-zA-Z0-9])?$|[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*\/[A-Za-z0-9]+$";
/// Value of a label.
pub(crate) const LABEL_VALUE: &str = r"^(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?$";
/// Name of a header.
pub(crate) const HEADER_NAME: &str = r"^[A-Za-z0-9!#$%&'*+\-.^_\x60|~]+$";
/// Value of a header: visible characters, separated by single blanks.
pub(crate) const HEADER_VALUE: &str = r"^[!-~]+([\t ]?[!-~]+)*$";
/// Path of a request.
pub(crate) const PATH: &str = r"^(?:[-A-Za-z0-9/._~!$&'()*+,;=:@]|[%][0-9a-fA-F]{2})+$";
/// CORS origin, or `*`.
pub(crate) const ORIGIN: &str =
    r"(^\*$)|(^(http(s)?):\/\/(((\*\.)?([a-zA-Z0-9\-]+\.)*[a-zA-Z0-9-]+|\*)(:([0-9]{1,5}))?)$)";
/// URI with a scheme and a host.
pub(crate) const ABSOLUTE_URI: &str = r"^(([^:/?#]+):)(//([^/?#]*))([^?#]*)(\?([^#]*))?(#(.*))?";
/// `System`, or a domain-prefixed name.
pub(crate) const WELL_KNOWN_CAS: &str = r"^(System|([a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*/([A-Za-z0-9][-A-Za-z0-9_.]{0,61})?[A-Za-z0-9]))$";
/// Type of a condition.
pub(crate) const CONDITION_TYPE: &str =
    r"^([a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*/)?(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])$";
/// Reason of a condition.
pub(crate) const REASON: &str = r"^[A-Za-z]([A-Za-z0-9_,:]*[A-Za-z0-9_])?$";

/// Explains a pattern in words, with an example.
pub(crate) fn meaning(pattern: &str) -> Option<&'static str> {
    Some(match pattern {
        GROUP => {
            "an API group must be a lower-case DNS name such as gateway.networking.k8s.io, or empty for the core group"
        }
        KIND => "the name of a kind must consist of letters, digits and dashes, such as HTTPRoute",
        LABEL => "must consist of lower-case letters, digits and dashes, such as shop-1",
        DNS_NAME => "must be a lower-case DNS name without a wildcard, such as a.example.com",
        HOSTNAME => "must be a lower-case DNS name, such as a.example.com or *.example.com",
        CONTROLLER => "must be a domain-prefixed path, such as istio.io/gateway-controller",
        ADDRESS_TYPE => "must be IPAddress, Hostname or a domain-prefixed path",
        PROTOCOL => "must be HTTP, HTTPS, TLS, TCP, UDP or a domain-prefixed name such as example.com/mine",
        LABEL_VALUE => {
            "a label value must consist of letters, digits, dashes, dots and underscores, and start and end with a letter or digit"
        }
        HEADER_NAME => "a header name must consist of letters, digits and dashes, without blanks",
        HEADER_VALUE => "a header value must consist of visible characters, separated by single blanks",
        PATH => "a path must consist of valid path characters; other characters must be escaped, such as %20",
        ORIGIN => "an origin must be a scheme and a host, such as https://a.example.com or https://*.example.com, or *",
        ABSOLUTE_URI => "a URI must have a scheme and a host, such as spiffe://cluster.local/ns/a/sa/b",
        WELL_KNOWN_CAS => "must be System or a domain-prefixed name such as example.com/mine",
        CONDITION_TYPE => "must be a CamelCase word, optionally domain-prefixed, such as Accepted",
        REASON => "must be a single word, such as NotAllowed",
        _ => return None,
    })
}

/// CEL rule: keys of labels and annotations must be qualified names.
pub(crate) const LABEL_KEYS_RULE: &str = "self.all(key, key.matches(r\"\"\"^([a-z0-9]([-a-z0-9]*[a-z0-9])?(\\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*/)?([A-Za-z0-9][-A-Za-z0-9_.]{0,61})?[A-Za-z0-9]$\"\"\"))";
/// CEL rule: DNS prefixes of keys of labels and annotations must not be too long.
pub(crate) const LABEL_PREFIX_RULE: &str = "self.all(key, key.split('/')[0].size() < 253)";
