//! The table of layers: the place of each crate, and what each layer may not use.

/// The place of a crate.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Place {
    /// In the stack: the layer, and further crates that it may depend on.
    Layer(u8, &'static [&'static str]),
    /// Beside the stack: the crates of the workspace that it may depend on.
    Beside(&'static [&'static str]),
    /// Tests: they may use everything.
    Tests,
}

/// Every crate of the workspace.
pub(super) const CRATES: &[(&str, Place)] = &[
    ("names", Place::Layer(0, &[])),
    ("flow", Place::Layer(0, &[])),
    ("protos", Place::Layer(0, &[])),
    ("go-template", Place::Layer(0, &[])),
    ("model", Place::Layer(1, &["config"])),
    ("config", Place::Layer(1, &[])),
    ("registry", Place::Layer(2, &[])),
    ("gateway-api", Place::Layer(2, &["registry"])),
    ("security", Place::Layer(2, &["registry"])),
    ("traffic", Place::Layer(2, &["registry", "gateway-api", "security"])),
    ("envoy", Place::Layer(2, &["registry", "gateway-api", "security", "traffic"])),
    ("envoy-filter", Place::Layer(2, &["registry", "security", "traffic", "envoy"])),
    ("world", Place::Layer(2, &["registry", "gateway-api", "security", "traffic", "envoy", "envoy-filter"])),
    ("convert", Place::Layer(2, &["registry", "gateway-api", "traffic", "envoy", "world"])),
    ("xds", Place::Layer(3, &[])),
    ("ca", Place::Layer(3, &[])),
    ("jwks", Place::Layer(3, &[])),
    ("k8s-patch", Place::Layer(3, &[])),
    ("admission", Place::Layer(3, &[])),
    ("inject", Place::Layer(3, &["k8s-patch"])),
    ("status", Place::Layer(3, &[])),
    ("bootstrap", Place::Layer(3, &[])),
    ("interception", Place::Layer(3, &[])),
    // The export controller uses the registry to find services that are local to a cluster; gateways are deployed from the
    // templates of the injection configuration.
    ("controllers", Place::Layer(3, &["registry", "inject", "k8s-patch"])),
    ("sources", Place::Layer(4, &[])),
    ("listeners", Place::Layer(4, &[])),
    ("http2-server", Place::Layer(4, &[])),
    ("server", Place::Layer(4, &["http2-server", "listeners"])),
    ("settings", Place::Layer(4, &[])),
    ("store", Place::Layer(4, &[])),
    ("api", Place::Layer(4, &["store", "listeners"])),
    ("runtime", Place::Layer(4, &["sources", "server", "settings", "store", "api", "listeners"])),
    ("agent-core", Place::Layer(4, &[])),
    ("identity", Place::Layer(4, &["agent-core", "listeners"])),
    ("relay", Place::Layer(4, &["agent-core", "http2-server", "listeners"])),
    ("dns-proxy", Place::Layer(4, &["agent-core"])),
    ("agent-status", Place::Layer(4, &["agent-core", "listeners"])),
    ("supervisor", Place::Layer(4, &["agent-core"])),
    ("agent", Place::Layer(4, &["agent-core", "agent-status", "dns-proxy", "identity", "relay", "supervisor"])),
    ("local-gateway", Place::Layer(4, &["agent-core", "identity", "relay", "supervisor"])),
    ("interception-exec", Place::Layer(4, &[])),
    ("cni", Place::Layer(4, &["interception-exec", "listeners"])),
    ("cli", Place::Layer(5, &[])),
    ("rutter", Place::Layer(5, &["cli"])),
    ("rutter-agent", Place::Layer(5, &[])),
    ("rutter-cni", Place::Layer(5, &[])),
    ("test-harness", Place::Beside(&[])),
    ("test-agent", Place::Beside(&["protos", "test-harness"])),
    ("demo", Place::Beside(&["rutter", "test-agent", "test-harness"])),
    ("xtask", Place::Beside(&["test-harness"])),
    ("scenarios", Place::Tests),
    ("e2e", Place::Tests),
    ("load", Place::Tests),
    ("conformance", Place::Tests),
];

/// Crates beside the stack that a crate of the stack may use, with the reason in a comment.
pub(super) const EXCEPTIONS: &[(&str, &str)] = &[
    // The store's tests run a real etcd.
    ("store", "test-harness"),
    // The relay's tests run a real Envoy.
    ("relay", "test-harness"),
    // So do those of the status port.
    ("agent-status", "test-harness"),
    // So do those of the SDS server.
    ("identity", "test-harness"),
    // A real Envoy checks each generated bootstrap.
    ("bootstrap", "test-harness"),
    // The tests of the supervisor run a real Envoy.
    ("supervisor", "test-harness"),
];

/// Whether a layer may depend on another without an entry in the table: on all lower ones, but layer 3 only on 0 and 1.
pub(super) fn may_read(layer: u8, other: u8) -> bool {
    match layer {
        3 => other <= 1,
        _ => other < layer,
    }
}

/// The highest layer without I/O.
pub(super) const PURE_UP_TO: u8 = 3;

/// Packages that the pure layers must not use: they bring sockets, clocks, tasks or the environment.
pub(super) const IMPURE_PACKAGES: &[&str] = &[
    "async-std",
    "axum",
    "clap",
    "h2",
    "hyper",
    "hyper-util",
    "kube",
    "kube-client",
    "mio",
    "notify",
    "rand",
    "reqwest",
    "rustls",
    "smol",
    "socket2",
    "time",
    "tokio",
    "tokio-stream",
    "tokio-util",
    "tonic",
    "tower",
];

/// Packages that no crate may use, with the reason.
pub(super) const BANNED_PACKAGES: &[(&str, &str)] = &[
    ("ring", "aws-lc-rs is the one provider of cryptography"),
    ("openssl", "aws-lc-rs is the one provider of cryptography"),
    ("serde_yaml", "archived; serde-saphyr reads YAML"),
    ("lazy_static", "the standard library has LazyLock"),
    ("once_cell", "the standard library has OnceLock"),
];

/// Words that the sources of the pure layers must not contain, with what they indicate.
pub(super) const IMPURE_WORDS: &[(&str, &str)] = &[
    ("std::env::", "the environment"),
    ("std::fs", "files"),
    ("std::process", "processes"),
    ("SystemTime::now", "a clock"),
    ("Instant::now", "a clock"),
    ("TcpStream", "sockets"),
    ("TcpListener", "sockets"),
    ("UdpSocket", "sockets"),
    ("UnixStream", "sockets"),
    ("UnixListener", "sockets"),
    ("thread::sleep", "waiting"),
    ("println!", "the terminal"),
];

/// Files of pure crates that may contain one of those words, with the reason.
pub(super) const ALLOWED_WORDS: &[(&str, &str, &str)] = &[];
