//! The types of settings, and parsing of their values.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::path::PathBuf;
use std::time::Duration;

use clap::ValueEnum;

/// The type of a setting.
pub trait Value: Sized {
    /// The accepted form, for help and error messages.
    const FORM: &'static str;

    /// Parses a value.
    ///
    /// # Errors
    /// The value does not have the accepted form.
    fn parse(text: &str) -> Result<Self, ValueError>;
}

/// The error for an invalid value. The message does not repeat the accepted form.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum ValueError {
    /// The value is empty.
    #[error("the value is empty")]
    Empty,
    /// A part of the value is missing.
    #[error("the {0} is missing")]
    Missing(&'static str),
    /// A part of the value is not what is expected.
    #[error("`{text}` is not {expected}")]
    Invalid {
        /// The invalid part.
        text: String,
        /// The expected content, with an article.
        expected: &'static str,
    },
    /// The number is too large.
    #[error("the value is too large")]
    TooLarge,
    /// The prefix length is not in this range.
    #[error("the prefix length must be from {0} to {1}")]
    PrefixLength(u8, u8),
    /// The address of a range has bits after the prefix.
    #[error("the address is not the first of the range")]
    NotFirst,
}

pub(crate) fn invalid(text: &str, expected: &'static str) -> ValueError {
    ValueError::Invalid { text: text.to_owned(), expected }
}

/// The value of a word among named choices.
pub(crate) fn choice<T: ValueEnum>(text: &str) -> Result<T, ValueError> {
    T::from_str(text, false).map_err(|_| invalid(text, "one of the choices"))
}

/// An address to listen on.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Address {
    host: Option<IpAddr>,
    port: u16,
}

impl Address {
    /// This port on all addresses.
    pub fn any(port: u16) -> Address {
        Address { host: None, port }
    }

    /// This port on the loopback address.
    pub fn loopback(port: u16) -> Address {
        Address { host: Some(Ipv4Addr::LOCALHOST.into()), port }
    }

    /// The addresses to try, in order. Without a host: all IPv6 addresses, which includes IPv4 on most systems, then all IPv4
    /// addresses for systems without IPv6.
    pub fn candidates(&self) -> Vec<SocketAddr> {
        match self.host {
            Some(host) => vec![SocketAddr::new(host, self.port)],
            None => vec![
                SocketAddr::new(Ipv6Addr::UNSPECIFIED.into(), self.port),
                SocketAddr::new(Ipv4Addr::UNSPECIFIED.into(), self.port),
            ],
        }
    }
}

impl From<SocketAddr> for Address {
    fn from(address: SocketAddr) -> Address {
        Address { host: Some(address.ip()), port: address.port() }
    }
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.host {
            Some(host) => SocketAddr::new(host, self.port).fmt(f),
            None => write!(f, ":{}", self.port),
        }
    }
}

impl Value for Address {
    const FORM: &'static str = "IP:PORT or :PORT";

    fn parse(text: &str) -> Result<Address, ValueError> {
        let (host, port) = text.rsplit_once(':').ok_or(ValueError::Missing("port"))?;
        let port = port.parse().map_err(|_| invalid(port, "a port"))?;
        let host = match host {
            "" => None,
            "localhost" => Some(Ipv4Addr::LOCALHOST.into()),
            host => {
                let bare = host.strip_prefix('[').and_then(|h| h.strip_suffix(']')).unwrap_or(host);
                Some(bare.parse().map_err(|_| invalid(host, "an IP address"))?)
            }
        };
        Ok(Address { host, port })
    }
}

/// An address to listen on, or none.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct OptionalAddress(pub Option<Address>);

impl Value for OptionalAddress {
    const FORM: &'static str = "IP:PORT or :PORT, or empty";

    fn parse(text: &str) -> Result<OptionalAddress, ValueError> {
        match text.trim() {
            "" => Ok(OptionalAddress(None)),
            text => Address::parse(text).map(|address| OptionalAddress(Some(address))),
        }
    }
}

/// A share from 1 to 100.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Percent(pub u32);

impl Value for Percent {
    const FORM: &'static str = "PERCENT, from 1 to 100";

    fn parse(text: &str) -> Result<Percent, ValueError> {
        let number = text.strip_suffix('%').unwrap_or(text).parse().ok();
        let number = number.filter(|number| (1..=100).contains(number));
        number.map(Percent).ok_or_else(|| invalid(text, "a number from 1 to 100"))
    }
}

/// A number of bytes.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct ByteSize(pub usize);

impl Value for ByteSize {
    const FORM: &'static str = "SIZE, such as 4096, 64KiB or 4MiB";

    fn parse(text: &str) -> Result<ByteSize, ValueError> {
        let split = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
        let (number, unit) = text.split_at(split);
        let shift = match unit.trim() {
            "" | "B" => 0,
            "KiB" | "Ki" => 10,
            "MiB" | "Mi" => 20,
            "GiB" | "Gi" => 30,
            other => return Err(invalid(other, "a unit")),
        };
        let number: usize = number.parse().map_err(|_| invalid(number, "a number in range"))?;
        number.checked_mul(1 << shift).map(ByteSize).ok_or(ValueError::TooLarge)
    }
}

/// The storage backend of objects.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
pub enum StoreBackend {
    /// Depends on other settings.
    Auto,
    /// The data directory.
    Embedded,
    /// The memory of this process.
    Memory,
    /// An etcd cluster.
    Etcd,
    /// The Kubernetes API.
    Kubernetes,
    /// The files of a directory, which are only read.
    Files,
    /// No storage and no API.
    None,
}

impl Value for StoreBackend {
    const FORM: &'static str = "auto, kubernetes, embedded, memory, etcd, files or none";

    fn parse(text: &str) -> Result<StoreBackend, ValueError> {
        choice(text)
    }
}

/// The proxies that may receive secrets.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
pub enum SecretsFor {
    /// Depends on other settings.
    Auto,
    /// No proxy.
    #[value(name = "none")]
    Nobody,
    /// Proxies whose identity is proven.
    Authenticated,
}

impl Value for SecretsFor {
    const FORM: &'static str = "auto, none or authenticated";

    fn parse(text: &str) -> Result<SecretsFor, ValueError> {
        choice(text)
    }
}

/// The issuer of the certificate of the TLS ports.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
pub enum CertProvider {
    /// The control plane's own authority.
    Istiod,
    /// Files only.
    Custom,
    /// No TLS ports.
    None,
}

impl Value for CertProvider {
    const FORM: &'static str = "istiod, custom or none";

    fn parse(text: &str) -> Result<CertProvider, ValueError> {
        choice(text)
    }
}

/// Whether sidecars are native.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
pub enum NativeSidecars {
    /// If the nodes support them.
    Auto,
    /// Always.
    #[value(name = "true")]
    Enabled,
    /// Never.
    #[value(name = "false")]
    Disabled,
}

impl Value for NativeSidecars {
    const FORM: &'static str = "auto, true or false";

    fn parse(text: &str) -> Result<NativeSidecars, ValueError> {
        choice(text)
    }
}

/// User IDs, each with a namespace.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct NamespaceUsers(pub Vec<(u32, String)>);

impl Value for NamespaceUsers {
    const FORM: &'static str = "UID:NAMESPACE,…, such as 101:shop, or empty";

    fn parse(text: &str) -> Result<NamespaceUsers, ValueError> {
        let items = text.split(',').map(str::trim).filter(|item| !item.is_empty());
        let parse = |item: &str| {
            let (user, namespace) = item.split_once(':').ok_or(ValueError::Missing("namespace"))?;
            let user = user.trim().parse().map_err(|_| invalid(user, "a user ID"))?;
            match namespace.trim() {
                "" => Err(ValueError::Missing("namespace")),
                namespace => Ok((user, namespace.to_owned())),
            }
        };
        items.map(parse).collect::<Result<_, _>>().map(NamespaceUsers)
    }
}

/// An optional name.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct OptionalName(pub Option<String>);

impl OptionalName {
    /// The name; empty if there is none.
    pub fn as_str(&self) -> &str {
        self.0.as_deref().unwrap_or_default()
    }
}

impl Value for OptionalName {
    const FORM: &'static str = "NAME, or empty";

    fn parse(text: &str) -> Result<OptionalName, ValueError> {
        let name = text.trim();
        Ok(OptionalName((!name.is_empty()).then(|| name.to_owned())))
    }
}

/// A range of IPv4 addresses.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Ipv4Range {
    /// The first address.
    pub address: Ipv4Addr,
    /// The prefix length, 8 to 30.
    pub length: u8,
}

impl Value for Ipv4Range {
    const FORM: &'static str = "ADDRESS/LENGTH, such as 240.240.0.0/16";

    fn parse(text: &str) -> Result<Ipv4Range, ValueError> {
        let (address, length) = range::<Ipv4Addr>(text, 8..=30)?;
        let rest = u32::from(address) & (u32::MAX >> length);
        match rest {
            0 => Ok(Ipv4Range { address, length }),
            _ => Err(ValueError::NotFirst),
        }
    }
}

/// A range of IPv6 addresses.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Ipv6Range {
    /// The first address.
    pub address: Ipv6Addr,
    /// The prefix length, 8 to 112.
    pub length: u8,
}

impl Value for Ipv6Range {
    const FORM: &'static str = "ADDRESS/LENGTH, such as 2001:2::/48";

    fn parse(text: &str) -> Result<Ipv6Range, ValueError> {
        let (address, length) = range::<Ipv6Addr>(text, 8..=112)?;
        let rest = u128::from(address) & (u128::MAX >> length);
        match rest {
            0 => Ok(Ipv6Range { address, length }),
            _ => Err(ValueError::NotFirst),
        }
    }
}

/// An IPv4 range, an IPv6 range, both or none, in the order in which they were given.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ServiceRanges(pub Vec<(IpAddr, u8)>);

impl Value for ServiceRanges {
    const FORM: &'static str = "ADDRESS/LENGTH, two of them with a comma, or empty";

    fn parse(text: &str) -> Result<ServiceRanges, ValueError> {
        let parts = text.split(',').map(str::trim).filter(|part| !part.is_empty());
        let ranges = parts.map(|part| match part.contains(':') {
            true => Ipv6Range::parse(part).map(|range| (IpAddr::V6(range.address), range.length)),
            false => Ipv4Range::parse(part).map(|range| (IpAddr::V4(range.address), range.length)),
        });
        let ranges = ranges.collect::<Result<Vec<_>, ValueError>>()?;
        let four = ranges.iter().filter(|(address, _)| address.is_ipv4()).count();
        match four > 1 || ranges.len() - four > 1 {
            true => Err(invalid(text, "at most one range of each family")),
            false => Ok(ServiceRanges(ranges)),
        }
    }
}

fn range<A: std::str::FromStr>(text: &str, lengths: std::ops::RangeInclusive<u8>) -> Result<(A, u8), ValueError> {
    let (address, length) = text.trim().split_once('/').ok_or(ValueError::Missing("prefix length"))?;
    let address = address.parse().map_err(|_| invalid(address, "an IP address"))?;
    let length = length.parse().ok().filter(|length| lengths.contains(length));
    let length = length.ok_or(ValueError::PrefixLength(*lengths.start(), *lengths.end()))?;
    Ok((address, length))
}

/// A boolean.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Switch(pub bool);

impl Value for Switch {
    const FORM: &'static str = "on or off";

    fn parse(text: &str) -> Result<Switch, ValueError> {
        match text {
            "on" | "true" => Ok(Switch(true)),
            "off" | "false" => Ok(Switch(false)),
            _ => Err(invalid(text, "on or off")),
        }
    }
}

/// Filter directives of the `tracing` crate.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct LogFilter(String);

impl LogFilter {
    /// The directives, comma separated.
    pub fn directives(&self) -> &str {
        &self.0
    }
}

impl Value for LogFilter {
    const FORM: &'static str = "LEVEL or TARGET=LEVEL, comma separated";

    fn parse(text: &str) -> Result<LogFilter, ValueError> {
        for directive in text.split(',') {
            let (target, level) = directive.split_once('=').unwrap_or(("all", directive));
            let known = ["off", "error", "warn", "info", "debug", "trace"];
            if !known.contains(&level.trim()) {
                return Err(invalid(level, "a level"));
            }
            if target.is_empty() || !target.chars().all(|c| c.is_ascii_alphanumeric() || "_:".contains(c)) {
                return Err(invalid(target, "a target"));
            }
        }
        Ok(LogFilter(text.to_owned()))
    }
}

/// The format of log lines.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
pub enum LogFormat {
    /// Human-readable text.
    Text,
    /// One JSON object per line.
    Json,
}

impl Value for LogFormat {
    const FORM: &'static str = "text or json";

    fn parse(text: &str) -> Result<LogFormat, ValueError> {
        choice(text)
    }
}

impl Value for Duration {
    const FORM: &'static str = "DURATION, such as 500ms, 10s or 1m30s";

    fn parse(text: &str) -> Result<Duration, ValueError> {
        config::parse_duration(text.trim()).ok_or_else(|| invalid(text, "a duration"))
    }
}

impl Value for usize {
    const FORM: &'static str = "NUMBER";

    fn parse(text: &str) -> Result<usize, ValueError> {
        text.parse().map_err(|_| invalid(text, "a whole number in range"))
    }
}

impl Value for String {
    const FORM: &'static str = "NAME";

    fn parse(text: &str) -> Result<String, ValueError> {
        if text.is_empty() { Err(ValueError::Empty) } else { Ok(text.to_owned()) }
    }
}

impl Value for PathBuf {
    const FORM: &'static str = "PATH";

    fn parse(text: &str) -> Result<PathBuf, ValueError> {
        if text.is_empty() { Err(ValueError::Empty) } else { Ok(PathBuf::from(text)) }
    }
}

impl Value for Option<PathBuf> {
    const FORM: &'static str = "PATH";

    fn parse(text: &str) -> Result<Option<PathBuf>, ValueError> {
        Ok(Some(PathBuf::from(text)).filter(|path| !path.as_os_str().is_empty()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_have_the_syntax_of_go() {
        let parsed = |text: &str| Address::parse(text).map(|a| a.candidates());
        assert_eq!(parsed("127.0.0.1:15010"), Ok(vec!["127.0.0.1:15010".parse().unwrap()]));
        assert_eq!(parsed("[::1]:80"), Ok(vec!["[::1]:80".parse().unwrap()]));
        assert_eq!(parsed("localhost:80"), Ok(vec!["127.0.0.1:80".parse().unwrap()]));
        assert_eq!(parsed(":15010"), Ok(vec!["[::]:15010".parse().unwrap(), "0.0.0.0:15010".parse().unwrap()]));
        assert_eq!(parsed("15010"), Err(ValueError::Missing("port")));
        assert_eq!(parsed("host:1"), Err(invalid("host", "an IP address")));
        assert_eq!(parsed(":70000"), Err(invalid("70000", "a port")));
    }

    #[test]
    fn durations_have_the_syntax_of_go() {
        let millis = |text: &str| Duration::parse(text).map(|d| d.as_millis());
        assert_eq!(millis("1m30s"), Ok(90_000));
        assert_eq!(millis("1.5s"), Ok(1_500));
        assert_eq!(millis("0"), Ok(0));
        assert_eq!(millis("250ms"), Ok(250));
        for wrong in ["", "10", "ten", "9999999999999999999999h"] {
            assert_eq!(millis(wrong), Err(invalid(wrong, "a duration")));
        }
    }

    #[test]
    fn sizes_have_binary_units() {
        assert_eq!(ByteSize::parse("4MiB"), Ok(ByteSize(4 << 20)));
        assert_eq!(ByteSize::parse("4096"), Ok(ByteSize(4096)));
        assert_eq!(ByteSize::parse("4MB"), Err(invalid("MB", "a unit")));
        assert_eq!(ByteSize::parse("99999999999999GiB"), Err(ValueError::TooLarge));
    }

    #[test]
    fn log_filters_are_checked() {
        assert!(LogFilter::parse("info,xds=debug,world::commit=trace").is_ok());
        assert_eq!(LogFilter::parse("loud"), Err(invalid("loud", "a level")));
        assert_eq!(LogFilter::parse("=info"), Err(invalid("", "a target")));
    }

    proptest::proptest! {
        #[test]
        fn parsing_never_panics(text in ".*") {
            let _ = (Address::parse(&text), Duration::parse(&text), ByteSize::parse(&text), LogFilter::parse(&text));
        }
    }
}
