//! Patterns of texts (RE2), and the names of groups.

/// The API group of the Gateway API.
pub(crate) const GATEWAY_GROUP: &str = "gateway.networking.k8s.io";

/// An API group: a DNS name, or empty for the core group.
pub(crate) const GROUP: &str = r"^$|^[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*$";
/// The name of a kind.
pub(crate) const KIND: &str = r"^[a-zA-Z]([-a-zA-Z0-9]*[a-zA-Z0-9])?$";
/// A DNS label, such as the name of a namespace.
pub(crate) const LABEL: &str = r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?$";
/// A DNS name, such as the name of a listener.
pub(crate) const DNS_NAME: &str = r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*$";
/// A DNS name, or one after `*.`.
pub(crate) const HOSTNAME: &str = r"^(\*\.)?[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*$";
/// A DNS name and a path, such as `istio.io/gateway-controller`.
pub(crate) const CONTROLLER: &str =
    r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*\/[A-Za-z0-9\/\-._~%!$&'()*+,;=:]+$";
/// What an address is: one of three words, or a DNS name and a path.
pub(crate) const ADDRESS_TYPE: &str = r"^Hostname|IPAddress|NamedAddress|[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*\/[A-Za-z0-9\/\-._~%!$&'()*+,;=:]+$";
/// What a listener speaks: a word, or a DNS name and a word.
pub(crate) const PROTOCOL: &str = r"^[a-zA-Z0-9]([-a-zA-Z0-9]*[a-zA-Z0-9])?$|[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*\/[A-Za-z0-9]+$";
/// The value of a label.
pub(crate) const LABEL_VALUE: &str = r"^(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?$";
/// The name of a header.
pub(crate) const HEADER_NAME: &str = r"^[A-Za-z0-9!#$%&'*+\-.^_\x60|~]+$";
/// The value of a header: visible characters, with single blanks between them.
pub(crate) const HEADER_VALUE: &str = r"^[!-~]+([\t ]?[!-~]+)*$";
/// The path of a request.
pub(crate) const PATH: &str = r"^(?:[-A-Za-z0-9/._~!$&'()*+,;=:@]|[%][0-9a-fA-F]{2})+$";
/// An origin of CORS, or `*`.
pub(crate) const ORIGIN: &str =
    r"(^\*$)|(^(http(s)?):\/\/(((\*\.)?([a-zA-Z0-9\-]+\.)*[a-zA-Z0-9-]+|\*)(:([0-9]{1,5}))?)$)";
/// A URI with a scheme and a host.
pub(crate) const ABSOLUTE_URI: &str = r"^(([^:/?#]+):)(//([^/?#]*))([^?#]*)(\?([^#]*))?(#(.*))?";
/// `System`, or a DNS name and a word.
pub(crate) const WELL_KNOWN_CAS: &str = r"^(System|([a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*/([A-Za-z0-9][-A-Za-z0-9_.]{0,61})?[A-Za-z0-9]))$";
/// The type of a condition.
pub(crate) const CONDITION_TYPE: &str =
    r"^([a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*/)?(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])$";
/// The reason of a condition.
pub(crate) const REASON: &str = r"^[A-Za-z]([A-Za-z0-9_,:]*[A-Za-z0-9_])?$";

/// What a text of a pattern is, in words, with an example.
pub(crate) fn meaning(pattern: &str) -> Option<&'static str> {
    Some(match pattern {
        GROUP => {
            "an API group is a DNS name in lower case such as gateway.networking.k8s.io, or empty for the core group"
        }
        KIND => "the name of a kind has letters, digits and dashes, such as HTTPRoute",
        LABEL => "a name of lower case letters, digits and dashes is needed, such as shop-1",
        DNS_NAME => "a DNS name in lower case without a wildcard is needed, such as a.example.com",
        HOSTNAME => "a DNS name in lower case is needed, such as a.example.com or *.example.com",
        CONTROLLER => "a DNS name and a path are needed, such as istio.io/gateway-controller",
        ADDRESS_TYPE => "IPAddress, Hostname, or a DNS name and a path are needed",
        PROTOCOL => "HTTP, HTTPS, TLS, TCP, UDP, or a DNS name and a word such as example.com/mine are needed",
        LABEL_VALUE => {
            "the value of a label has letters, digits, dashes, dots and _, and begins and ends with one of the first two"
        }
        HEADER_NAME => "the name of a header has letters, digits, dashes, and no blanks",
        HEADER_VALUE => "the value of a header has visible characters, with single blanks between them",
        PATH => "a path has letters, digits, and a few signs; the rest is escaped, such as %20",
        ORIGIN => "an origin is a scheme and a host, such as https://a.example.com or https://*.example.com, or *",
        ABSOLUTE_URI => "a URI has a scheme and a host, such as spiffe://cluster.local/ns/a/sa/b",
        WELL_KNOWN_CAS => "System, or a DNS name and a word such as example.com/mine are needed",
        CONDITION_TYPE => "a word is needed, perhaps with a DNS name and / before it, such as Accepted",
        REASON => "one word is needed, such as NotAllowed",
        _ => return None,
    })
}

/// In CEL: keys of labels and annotations have their form.
pub(crate) const LABEL_KEYS_RULE: &str = "self.all(key, key.matches(r\"\"\"^([a-z0-9]([-a-z0-9]*[a-z0-9])?(\\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*/)?([A-Za-z0-9][-A-Za-z0-9_.]{0,61})?[A-Za-z0-9]$\"\"\"))";
/// In CEL: the DNS names before keys of labels and annotations are short enough.
pub(crate) const LABEL_PREFIX_RULE: &str = "self.all(key, key.split('/')[0].size() < 253)";
