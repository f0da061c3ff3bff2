//! The protocols of ports, and how they are selected.

use std::fmt;

/// The application protocol of a port.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug, Default)]
pub enum Protocol {
    /// Not declared. The protocol is detected from the first bytes of each connection.
    #[default]
    Unsupported,
    /// TCP.
    Tcp,
    /// UDP. The mesh does not handle it.
    Udp,
    /// HTTP/1.1.
    Http,
    /// HTTP/2 without TLS.
    Http2,
    /// An HTTP proxy port, for egress listeners only.
    HttpProxy,
    /// gRPC.
    Grpc,
    /// gRPC-Web.
    GrpcWeb,
    /// HTTP over TLS, terminated only by a gateway that is configured to.
    Https,
    /// TLS with SNI.
    Tls,
    /// MongoDB.
    Mongo,
    /// Redis.
    Redis,
    /// MySQL.
    Mysql,
}

/// Ports of protocols in which the server sends first, so that detection would hang. They are TCP unless a protocol is
/// declared (SMTP, DNS, MySQL, MongoDB).
const NEVER_DETECTED: [u16; 4] = [25, 53, 3306, 27017];

impl Protocol {
    /// All protocols.
    pub const ALL: [Protocol; 13] = [
        Protocol::Unsupported,
        Protocol::Tcp,
        Protocol::Udp,
        Protocol::Http,
        Protocol::Http2,
        Protocol::HttpProxy,
        Protocol::Grpc,
        Protocol::GrpcWeb,
        Protocol::Https,
        Protocol::Tls,
        Protocol::Mongo,
        Protocol::Redis,
        Protocol::Mysql,
    ];

    /// Parses a protocol of a Gateway, ServiceEntry or Sidecar, ignoring case. Unknown names are `Unsupported`.
    pub fn parse(text: &str) -> Protocol {
        let declared = Protocol::ALL.into_iter().filter(|p| *p != Protocol::Unsupported);
        declared.into_iter().find(|p| p.name().eq_ignore_ascii_case(text)).unwrap_or_default()
    }

    /// Selects the protocol of a Kubernetes service port: by `appProtocol` if it is set, otherwise by the port name up
    /// to its first dash. `transport` is `TCP`, `UDP` or `SCTP`.
    pub fn select(port: u16, name: &str, transport: &str, app_protocol: Option<&str>) -> Protocol {
        if transport.eq_ignore_ascii_case("UDP") {
            return Protocol::Udp;
        }
        match app_protocol {
            Some("kubernetes.io/h2c") => return Protocol::Http2,
            Some("kubernetes.io/ws") => return Protocol::Http,
            Some("kubernetes.io/wss") => return Protocol::Https,
            _ => {}
        }
        let declared = app_protocol.unwrap_or(name);
        if declared.get(..8).is_some_and(|head| head.eq_ignore_ascii_case("grpc-web")) {
            return Protocol::GrpcWeb;
        }
        let head = declared.split('-').next().unwrap_or_default();
        match Protocol::parse(head) {
            Protocol::Unsupported if NEVER_DETECTED.contains(&port) => Protocol::Tcp,
            protocol => protocol,
        }
    }

    /// The name, as Istio writes it.
    pub const fn name(self) -> &'static str {
        match self {
            Protocol::Unsupported => "UnsupportedProtocol",
            Protocol::Tcp => "TCP",
            Protocol::Udp => "UDP",
            Protocol::Http => "HTTP",
            Protocol::Http2 => "HTTP2",
            Protocol::HttpProxy => "HTTP_PROXY",
            Protocol::Grpc => "GRPC",
            Protocol::GrpcWeb => "GRPC-Web",
            Protocol::Https => "HTTPS",
            Protocol::Tls => "TLS",
            Protocol::Mongo => "Mongo",
            Protocol::Redis => "Redis",
            Protocol::Mysql => "MySQL",
        }
    }

    /// Whether requests are visible without TLS termination.
    pub const fn is_http(self) -> bool {
        use Protocol::*;
        matches!(self, Http | Http2 | HttpProxy | Grpc | GrpcWeb)
    }

    /// Whether it is HTTP/2 on the wire.
    pub const fn is_http2(self) -> bool {
        matches!(self, Protocol::Http2 | Protocol::Grpc | Protocol::GrpcWeb)
    }

    /// Whether it is gRPC or gRPC-Web.
    pub const fn is_grpc(self) -> bool {
        matches!(self, Protocol::Grpc | Protocol::GrpcWeb)
    }

    /// Whether it is proxied as a stream of bytes.
    pub const fn is_tcp(self) -> bool {
        use Protocol::*;
        matches!(self, Tcp | Https | Tls | Mongo | Redis | Mysql)
    }

    /// Whether connections begin with a TLS handshake.
    pub const fn is_tls(self) -> bool {
        matches!(self, Protocol::Https | Protocol::Tls)
    }

    /// Whether it must be detected.
    pub const fn is_unsupported(self) -> bool {
        matches!(self, Protocol::Unsupported)
    }

    /// The protocol after TLS termination.
    pub const fn after_tls_termination(self) -> Protocol {
        match self {
            Protocol::Https => Protocol::Http,
            Protocol::Tls => Protocol::Tcp,
            other => other,
        }
    }
}

impl fmt::Display for Protocol {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn from_a_service_port() {
        let cases = [
            ("http", None, 80, Protocol::Http),
            ("http-api", None, 80, Protocol::Http),
            ("HTTP2-api", None, 80, Protocol::Http2),
            ("grpc-web", None, 80, Protocol::GrpcWeb),
            ("GRPC-WEB-x", None, 80, Protocol::GrpcWeb),
            ("grpc-x", None, 80, Protocol::Grpc),
            ("https", None, 443, Protocol::Https),
            ("tls-x", None, 443, Protocol::Tls),
            ("web", None, 80, Protocol::Unsupported),
            ("", None, 3306, Protocol::Tcp),
            ("db", None, 27017, Protocol::Tcp),
            ("http", None, 53, Protocol::Http),
            ("tcp", Some("http"), 80, Protocol::Http),
            ("http", Some("kubernetes.io/h2c"), 80, Protocol::Http2),
            ("http", Some("kubernetes.io/ws"), 80, Protocol::Http),
            ("http", Some("kubernetes.io/wss"), 80, Protocol::Https),
            ("http", Some("example.com/custom"), 80, Protocol::Unsupported),
            ("http", Some(""), 80, Protocol::Unsupported),
            ("grpc\u{e9}web", None, 80, Protocol::Unsupported),
        ];
        for (name, app, port, want) in cases {
            assert_eq!(Protocol::select(port, name, "TCP", app), want, "{name:?} {app:?} {port}");
        }
        assert_eq!(Protocol::select(80, "http", "UDP", Some("http")), Protocol::Udp);
    }

    #[test]
    fn every_name_parses_back_in_any_case() {
        for protocol in Protocol::ALL {
            assert_eq!(Protocol::parse(protocol.name()), protocol);
            assert_eq!(Protocol::parse(&protocol.name().to_lowercase()), protocol);
        }
        assert_eq!(Protocol::parse("http_proxy"), Protocol::HttpProxy);
        assert_eq!(Protocol::parse(""), Protocol::Unsupported);
    }

    #[test]
    fn groups_do_not_overlap() {
        for protocol in Protocol::ALL {
            let groups = [protocol.is_http(), protocol.is_tcp(), protocol.is_unsupported(), protocol == Protocol::Udp];
            assert_eq!(groups.into_iter().filter(|g| *g).count(), 1, "{protocol}");
        }
    }
}
