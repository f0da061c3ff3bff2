//! Random texts and numbers that suit a field, and sometimes values that do not.

use super::dice::Dice;

/// The weight of fields that are generated more often than others.
pub(super) fn taste(name: &str) -> isize {
    match name {
        "http" | "route" | "destination" | "trafficPolicy" | "servers" | "ports" | "hosts" | "endpoints"
        | "address" | "egress" | "ingress" | "port" | "loadBalancer" => 45,
        "exportTo" | "sourceNamespace" | "delegate" | "credentialName" | "credentialNames" => -15,
        _ => 0,
    }
}

/// Attributes of conditions.
const ATTRIBUTES: &[&str] = &[
    "request.headers[x-a]",
    "request.headers[:path]",
    "request.headers[a b]",
    "request.headers[é]",
    "request.auth.claims[a][b]",
    "request.auth.claims[a]b]",
    "request.auth.principal",
    "request.auth.audiences",
    "source.ip",
    "source.principal",
    "source.namespace",
    "source.serviceAccount",
    "source.trustDomain",
    "remote.ip",
    "destination.ip",
    "destination.port",
    "connection.sni",
    "experimental.envoy.filters.http.rbac[a]",
    "nonsense",
];
/// Paths with wildcards, and templates.
const PATH_PATTERNS: &[&str] = &[
    "/a",
    "/a*",
    "*b",
    "*",
    "/{*}/a",
    "/{**}",
    "/a/{*}/",
    "/a/{**}/",
    "{*}",
    "/a b/{*}",
    "/a/{**}/b",
    "/%2f/{*}",
    "/%/{*}",
    "//{*}",
    "/{*}.{*}",
    "/:a/{*}",
    "/{*}/{*}/{*}/{*}/{*}/{*}/{*}",
];

/// A key for the map at this path.
pub(super) fn key(dice: &mut Dice, path: &[String]) -> String {
    let name = path.last().map_or("", String::as_str);
    let pool: &[&str] = match name {
        "headers" | "withoutHeaders" | "set" | "add" | "queryParams" => HEADERS,
        "labels" | "sourceLabels" | "selector" | "matchLabels" => &[
            "app",
            "version",
            "tier.example.com/x",
            "a_b",
            "",
            "security.istio.io/tlsMode",
            "topology.istio.io/network",
        ],
        "to" => &["r1/*", "r1/z1/*", "r2/z2/s2", "*", "r3"],
        "ports" => &["http", "tcp", "none", "HTTP"],
        _ => ODD,
    };
    dice.one(pool).to_owned()
}

/// A text for the field at this path.
pub(super) fn text(dice: &mut Dice, path: &[String]) -> String {
    let name = path.last().map_or("", String::as_str);
    let around = path.iter().rev().nth(1).map_or("", String::as_str);
    if dice.percent(4) {
        return odd(dice);
    }
    let pool: &[&str] = match (around, name) {
        (_, "regex" | "match") => REGEXES,
        ("request" | "response" | "headers", "set" | "add") => VALUES,
        (_, "remove" | "allowHeaders" | "exposeHeaders" | "httpHeaderName") => HEADERS,
        ("rewrite", "uri") | ("redirect", "uri" | "prefixRewrite") => PATHS,
        (_, "prefix" | "exact") => PATHS,
        (_, "rewrite") => &["/\\1", "\\2", "\\0", "\\", "%", "/x", "\\9", "$1", "é", ""],
        ("rewrite" | "redirect", "authority") => {
            &["a.example.com", "a.example.com:8443", "[::1]:80", "a b", "é", "UPPER", "%2f"]
        }
        (_, "scheme") => &["http", "https", "ftp", "HTTPS", ""],
        ("when", "key") => ATTRIBUTES,
        (_, "paths" | "notPaths") => PATH_PATTERNS,
        (_, "ipBlocks" | "notIpBlocks" | "remoteIpBlocks" | "notRemoteIpBlocks") => ADDRESSES,
        (_, "principals" | "notPrincipals" | "requestPrincipals" | "values" | "notValues") => {
            &["*", "a", "a*", "*a", "*/a", "10.0.0.0/8", "80", "[a]", "", "a/b", "cluster.local/ns/a/sa/b", "é", "a\nb"]
        }
        (_, "hosts" | "host" | "targetHost" | "sniHosts") => HOSTS,
        (_, "subset") => &["v1", "v2", "none", "V-1", ""],
        (_, "gateways") => &["mesh", "test/r2", "r10", "none/none", "test/r2"],
        (_, "exportTo") => &["*", ".", "test", "other", "~"],
        (_, "protocol") => PROTOCOLS,
        (_, "addresses" | "address" | "bind" | "destinationSubnets" | "defaultEndpoint" | "sourceSubnet") => ADDRESSES,
        (_, "locality" | "from" | "to") => &["r1", "r1/z1", "r1/z1/s1", "r2/z2", "r1/*", "*", "a/b/c/d", ""],
        (_, "retryOn") => &[
            "5xx",
            "gateway-error,connect-failure",
            "503,retriable-status-codes",
            "reset,404",
            "cancelled,599",
            ",",
            "5xx,x",
            "",
        ],
        (_, "allowMethods" | "method") => &["GET", "POST", "*", "get", "A B", "", "é"],
        (_, "cipherSuites") => {
            &["ECDHE-ECDSA-AES128-GCM-SHA256", "AES256-SHA", "NONE", "ECDHE-RSA-AES256-GCM-SHA384", "-ALL", "[A|B]"]
        }
        (_, "credentialName" | "credentialNames" | "caCertCredentialName") => {
            &["cred", "ns/cred", "kubernetes://a", "é", ""]
        }
        (_, "uri" | "body" | "string") => PATHS,
        (_, "bytes") => &["aGk=", "", "!", "AAECAw=="],
        (_, "ttl" | "timeout" | "interval" | "time" | "duration" | "maxAge" | "fixedDelay" | "exponentialDelay") => {
            DURATIONS
        }
        (_, name) if name.ends_with("Timeout") || name.ends_with("Duration") || name.ends_with("Time") => DURATIONS,
        (_, name) if name.ends_with("Interval") || name.ends_with("ackoff") || name.ends_with("Delay") => DURATIONS,
        (_, "subjectAltNames") => &["a.example.com", "spiffe://cluster.local/ns/a/sa/b", "*.x", "é", ""],
        (_, "labels" | "selector" | "matchLabels" | "sourceLabels") => &["shop", "v1", "v2", "", "a b", "*"],
        (_, "verifyCertificateSpki") => &["NvqYIYSbgK2vCJpQhObf77vv+bQWtc5ek5RIOwPiC9A=", "x"],
        (_, "verifyCertificateHash") => &["df6ff72fe9116521268f6f2dd4966f51df479883fe7037b39f75916ac3049d1a", "x"],
        (_, "name") => &["http", "tcp", "a", "A.b", "x-y", "http-2", "grpc-web", "é", ""],
        (_, "path") => &["/", "/a", "a b", ";", "", "/x;y"],
        (_, "value") => &["1", "a b", "a;b", "", "Strict"],
        _ => ODD,
    };
    dice.one(pool).to_owned()
}

/// An integer for the field at this path.
pub(super) fn integer(dice: &mut Dice, path: &[String]) -> i64 {
    let name = path.last().map_or("", String::as_str);
    if dice.percent(8) {
        return EXTREME[dice.below(EXTREME.len())];
    }
    let pool: &[i64] = match name {
        "number" | "port" | "targetPort" | "ports" => {
            &[80, 80, 443, 3306, 9000, 8080, 15443, 65535, 1, 15001, 15006, 15021]
        }
        "status" | "httpStatus" | "redirectCode" => &[200, 301, 302, 303, 307, 308, 418, 503, 599, 600, 204, 304],
        "weight" => &[0, 1, 50, 99, 100, 4_294_967_295],
        "percent" => &[0, 1, 50, 100],
        "tableSize" => &[2, 3, 11, 65_537, 5_000_011, 4_999_999],
        "minimumRingSize" => &[0, 1, 1024, 8_388_608, 8_388_609],
        _ => &[0, 1, 2, 3, 10, 100, 1000],
    };
    pool[dice.below(pool.len())]
}

/// A number.
pub(super) fn number(dice: &mut Dice) -> f64 {
    let pool = [0.0, 1.0, 50.0, 100.0, 99.9999, 0.0001, 1e-7, 1e-300, 1.5, 33.333_333_333, 1e30, -1.0, 12.345_67];
    pool[dice.below(pool.len())]
}

fn odd(dice: &mut Dice) -> String {
    match dice.below(12) {
        0 => "x".repeat(5000),
        1 => format!("{:x}", dice.next()),
        2 => "\u{0}".to_owned(),
        3 => "a\r\nb: c".to_owned(),
        _ => dice.one(ODD).to_owned(),
    }
}

const ODD: &[&str] = &[
    "",
    " ",
    "a",
    "é",
    "\u{1f600}",
    "%",
    "%%",
    "%s",
    "a b",
    "\t",
    "\n",
    "\"",
    "\\",
    "*",
    ".",
    "/",
    "-",
    "_",
    "~",
    "null",
    "0",
    "%REQ(x)%",
    "%START_TIME(%s.%3f)%",
    "%NO_SUCH%",
    "a|b",
    "a;b",
    "a,b",
    "{}",
    "[",
    "$(x)",
    "\u{7f}",
    "\u{feff}",
    "outbound|80||svc0.test.svc.cluster.local",
    "envoy.filters.http.router",
];

const HEADERS: &[&str] = &[
    "x-a",
    "X-Upper",
    "host",
    "Host",
    ":authority",
    ":path",
    ":method",
    ":scheme",
    ":status",
    "content-length",
    "transfer-encoding",
    "x_under",
    "!#$%&'*+-.^_`|~",
    "a b",
    "é",
    "",
    "x:y",
    "x\n",
    "cookie",
    "te",
    "connection",
    "x-envoy-original-path",
    "x-forwarded-for",
    "x-request-id",
    "uri",
    "scheme",
    "method",
    "authority",
    "0",
    "@request.auth.claims.sub",
    "@request.auth.claims[a][b]",
    "(",
    "*",
];

const VALUES: &[&str] = &[
    "v",
    "",
    "%",
    "%%",
    "100%",
    "100%%",
    "%REQ(x)%",
    "%REQ(%",
    "%DOWNSTREAM_REMOTE_ADDRESS%",
    "%NO_SUCH%",
    "%START_TIME(%Y)%",
    "%UPSTREAM_METADATA([\"a\", \"b\"])%",
    "%PROTOCOL",
    "%CEL(request.path)%",
    "a\nb",
    "\u{0}",
    "é",
    "\"",
    "a, b",
    " x ",
    "%DYNAMIC_METADATA(a:b)%",
    "%DYNAMIC_METADATA(%",
    "%PER_REQUEST_STATE(a)%",
    "%RESPONSE_CODE%",
    "%REQ(:path):5%",
    "%REQ(a?b?c):x%",
];

const PATHS: &[&str] = &[
    "/",
    "",
    "/a",
    "/a/",
    "a",
    "/a b",
    "/%20",
    "/%",
    "/é",
    "/a?b=c",
    "/a#b",
    "//",
    "/.",
    "/..",
    "*",
    "http://x/y",
    "\\",
    "/a\n",
    "/{a}",
    "/[a",
    "/%REQ(x)%",
    "/\u{0}",
    "a.b",
    "POST",
    "0",
    "-1",
];

const REGEXES: &[&str] = &[
    ".*",
    "",
    "a+",
    "[a-z]{1,50}",
    "(a{1,1000}){1,1000}",
    "x{1001}",
    "(?i)x",
    "(?=x)",
    "(",
    "\\d+",
    "\\C",
    "\\pN",
    "[[:alpha:]]*",
    "^/api/v[0-9]+/.*$",
    "é",
    "(a|b|c|d)*",
    "(?P<n>x)",
    "(?<n>x)",
    "(?:x)",
    "\\Qa.b\\E",
    "[^/]+",
    "\\",
    "a**",
    "(?s).*",
    "[\\d\\-]",
    "((((((((((a))))))))))",
    "\\x{10ffff}",
    "\\z",
    "a{,5}",
    "(.*)/(.*)",
    "\\bx",
    "(a+)+$",
    "[a-z]{0,500}[a-z]{0,500}",
    "\u{0}",
    "(?U)a+",
    "\\pL{1000}",
    "x{1000}x{1000}x{1000}x{1000}x{1000}x{1000}x{1000}x{1000}",
    "[^a]{1000}",
    "(?i)é{1000}",
];

const HOSTS: &[&str] = &[
    "svc0.test.svc.cluster.local",
    "svc1.test.svc.cluster.local",
    "svc2.test.svc.cluster.local",
    "svc3.test.svc.cluster.local",
    "svc3",
    "svc4.test",
    "ext5.example.com",
    "ext11.example.com",
    "none.example.com",
    "*",
    "*.example.com",
    "*.com",
    "UPPER.Example.com",
    "10.1.2.3",
    "1.2.3.4",
    "fd00::1",
    "[fd00::1]",
    "::",
    "a",
    "xn--bcher-kva.example",
    "test/svc0.test.svc.cluster.local",
    "./*",
    "*/*",
    "test/*",
    "~/*",
    "a_b.example.com",
    "a..b",
    "-a.b",
    "example.com.",
    "example.com:80",
    "é.example.com",
    "0",
    "a.b*",
    "ex*.com",
];

const PROTOCOLS: &[&str] = &[
    "HTTP",
    "HTTP2",
    "GRPC",
    "HTTPS",
    "TLS",
    "TCP",
    "MONGO",
    "MYSQL",
    "REDIS",
    "UDP",
    "GRPC-WEB",
    "HTTP_PROXY",
    "http",
    "Http",
    "AUTO",
    "",
];

const ADDRESSES: &[&str] = &[
    "10.9.0.1",
    "10.9.0.0/16",
    "0.0.0.0",
    "0.0.0.0/0",
    "::",
    "::1",
    "fd00::9",
    "fd00::/64",
    "::ffff:1.2.3.4",
    "fe80::1%eth0",
    "unix:///tmp/x.sock",
    "unix://@x",
    "/tmp/x",
    "127.0.0.1",
    "240.240.1.1",
    "255.255.255.255",
    "1.2.3",
    "01.2.3.4",
    "a.example.com",
    "10.9.0.1/33",
    "10.9.0.5/8",
    "224.0.0.1",
    "10.1.0.9",
    "127.0.0.1:8080",
    "",
];

const DURATIONS: &[&str] = &[
    "1s",
    "0s",
    "1ms",
    "0.001s",
    "0.0005s",
    "1ns",
    "1us",
    "1h",
    "24h",
    "100000h",
    "315576000000s",
    "2562047h",
    "4294967295s",
    "4294968s",
    "1.5s",
    "1h1m1s",
    "-1s",
    "0.999999999s",
    "5m",
    "10s",
    "1d",
    "1",
    "",
    "16777216s",
];

const EXTREME: &[i64] =
    &[-1, 0, 1, 255, 256, 65_536, 2_147_483_647, 2_147_483_648, 4_294_967_295, 4_294_967_296, i64::MAX, i64::MIN];
