//! The types that a setting can have: how each is written, and what is accepted.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::num::NonZeroU32;
use std::path::PathBuf;
use std::time::Duration;

/// A type that a setting can have.
pub trait Value: Sized {
    /// What a value looks like, for help and error messages.
    const FORM: &'static str;

    /// Reads a value; an error says what is wrong, without repeating the form.
    fn parse(text: &str) -> Result<Self, String>;
}

/// An address to listen on.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Address {
    host: Option<IpAddr>,
    port: u16,
}

impl Address {
    /// The addresses to try, best first. Without a host these are all IPv6 addresses, which on most systems includes
    /// IPv4, and then all IPv4 addresses, for systems without IPv6.
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
        Address {
            host: Some(address.ip()),
            port: address.port(),
        }
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

    fn parse(text: &str) -> Result<Address, String> {
        let (host, port) = text.rsplit_once(':').ok_or("there is no port")?;
        let port = port.parse().map_err(|_| format!("`{port}` is not a port"))?;
        let host = match host {
            "" => None,
            "localhost" => Some(Ipv4Addr::LOCALHOST.into()),
            host => {
                let bare = host.strip_prefix('[').and_then(|h| h.strip_suffix(']')).unwrap_or(host);
                Some(bare.parse().map_err(|_| format!("`{host}` is not an IP address"))?)
            }
        };
        Ok(Address { host, port })
    }
}

/// A number of bytes.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct ByteSize(pub usize);

impl Value for ByteSize {
    const FORM: &'static str = "SIZE, such as 4096, 64KiB or 4MiB";

    fn parse(text: &str) -> Result<ByteSize, String> {
        let split = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
        let (number, unit) = text.split_at(split);
        let shift = match unit.trim() {
            "" | "B" => 0,
            "KiB" | "Ki" => 10,
            "MiB" | "Mi" => 20,
            "GiB" | "Gi" => 30,
            other => return Err(format!("`{other}` is not a unit")),
        };
        let number: usize = number.parse().map_err(|_| "there is no number that fits".to_owned())?;
        number
            .checked_mul(1 << shift)
            .map(ByteSize)
            .ok_or_else(|| "it is too large".to_owned())
    }
}

/// Where objects live.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum StoreBackend {
    /// What fits the other settings.
    Auto,
    /// In the data directory.
    Embedded,
    /// In this process.
    Memory,
    /// In etcd.
    Etcd,
    /// In Kubernetes, whose API is read.
    Kubernetes,
    /// Nowhere: there is no API.
    None,
}

impl Value for StoreBackend {
    const FORM: &'static str = "auto, kubernetes, embedded, memory, etcd or none";

    fn parse(text: &str) -> Result<StoreBackend, String> {
        match text {
            "auto" => Ok(StoreBackend::Auto),
            "embedded" => Ok(StoreBackend::Embedded),
            "memory" => Ok(StoreBackend::Memory),
            "etcd" => Ok(StoreBackend::Etcd),
            "kubernetes" => Ok(StoreBackend::Kubernetes),
            "none" => Ok(StoreBackend::None),
            _ => Err("it is none of these".to_owned()),
        }
    }
}

/// Who gets secrets.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum SecretsFor {
    /// What fits the other settings.
    Auto,
    /// Nobody.
    Nobody,
    /// Proxies on this machine.
    Local,
}

impl Value for SecretsFor {
    const FORM: &'static str = "auto, none or local";

    fn parse(text: &str) -> Result<SecretsFor, String> {
        match text {
            "auto" => Ok(SecretsFor::Auto),
            "none" => Ok(SecretsFor::Nobody),
            "local" => Ok(SecretsFor::Local),
            _ => Err("it is none of these".to_owned()),
        }
    }
}

/// A name, or nothing.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct OptionalName(pub Option<String>);

impl OptionalName {
    /// The name; empty for nothing.
    pub fn as_str(&self) -> &str {
        self.0.as_deref().unwrap_or_default()
    }
}

impl Value for OptionalName {
    const FORM: &'static str = "NAME, or nothing";

    fn parse(text: &str) -> Result<OptionalName, String> {
        let name = text.trim();
        Ok(OptionalName((!name.is_empty()).then(|| name.to_owned())))
    }
}

/// A range of IPv4 addresses.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Ipv4Range {
    /// Its first address.
    pub address: Ipv4Addr,
    /// How many bits all of its addresses share, 8 to 30.
    pub length: u8,
}

impl Value for Ipv4Range {
    const FORM: &'static str = "ADDRESS/LENGTH, such as 240.240.0.0/16";

    fn parse(text: &str) -> Result<Ipv4Range, String> {
        let (address, length) = range::<Ipv4Addr>(text, 8..=30)?;
        let rest = u32::from(address) & (u32::MAX >> length);
        match rest {
            0 => Ok(Ipv4Range { address, length }),
            _ => Err("the address is not the first of the range".to_owned()),
        }
    }
}

/// A range of IPv6 addresses.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Ipv6Range {
    /// Its first address.
    pub address: Ipv6Addr,
    /// How many bits all of its addresses share, 8 to 112.
    pub length: u8,
}

impl Value for Ipv6Range {
    const FORM: &'static str = "ADDRESS/LENGTH, such as 2001:2::/48";

    fn parse(text: &str) -> Result<Ipv6Range, String> {
        let (address, length) = range::<Ipv6Addr>(text, 8..=112)?;
        let rest = u128::from(address) & (u128::MAX >> length);
        match rest {
            0 => Ok(Ipv6Range { address, length }),
            _ => Err("the address is not the first of the range".to_owned()),
        }
    }
}

fn range<A: std::str::FromStr>(text: &str, lengths: std::ops::RangeInclusive<u8>) -> Result<(A, u8), String> {
    let (address, length) = text.trim().split_once('/').ok_or("there is no length")?;
    let address = address.parse().map_err(|_| format!("`{address}` is not an address"))?;
    let length = length.parse().ok().filter(|length| lengths.contains(length));
    let length = length.ok_or_else(|| format!("the length is from {} to {}", lengths.start(), lengths.end()))?;
    Ok((address, length))
}

/// Yes or no.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Switch(pub bool);

impl Value for Switch {
    const FORM: &'static str = "on or off";

    fn parse(text: &str) -> Result<Switch, String> {
        match text {
            "on" | "true" => Ok(Switch(true)),
            "off" | "false" => Ok(Switch(false)),
            _ => Err("it is neither".to_owned()),
        }
    }
}

/// A number from which on something is done, if ever.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Threshold(pub Option<NonZeroU32>);

impl Value for Threshold {
    const FORM: &'static str = "off, or a number from 1 on";

    fn parse(text: &str) -> Result<Threshold, String> {
        match text {
            "off" => Ok(Threshold(None)),
            _ => text
                .parse()
                .map(|number| Threshold(Some(number)))
                .map_err(|_| "it is neither".to_owned()),
        }
    }
}

/// What is logged, in the form of tracing's filter directives.
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

    fn parse(text: &str) -> Result<LogFilter, String> {
        for directive in text.split(',') {
            let (target, level) = directive.split_once('=').unwrap_or(("all", directive));
            let known = ["off", "error", "warn", "info", "debug", "trace"];
            if !known.contains(&level.trim()) {
                return Err(format!("`{level}` is not a level"));
            }
            if target.is_empty() || !target.chars().all(|c| c.is_ascii_alphanumeric() || "_:".contains(c)) {
                return Err(format!("`{target}` is not a target"));
            }
        }
        Ok(LogFilter(text.to_owned()))
    }
}

/// How a line of the log looks.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum LogFormat {
    /// For people.
    Text,
    /// For machines.
    Json,
}

impl Value for LogFormat {
    const FORM: &'static str = "text or json";

    fn parse(text: &str) -> Result<LogFormat, String> {
        match text {
            "text" => Ok(LogFormat::Text),
            "json" => Ok(LogFormat::Json),
            other => Err(format!("`{other}` is neither")),
        }
    }
}

impl Value for Duration {
    const FORM: &'static str = "DURATION, such as 500ms, 10s or 1m30s";

    fn parse(text: &str) -> Result<Duration, String> {
        let mut rest = text.trim();
        if rest == "0" {
            return Ok(Duration::ZERO);
        }
        if rest.is_empty() {
            return Err("it is empty".to_owned());
        }
        let mut seconds = 0.0;
        while !rest.is_empty() {
            let split = rest
                .find(|c: char| !c.is_ascii_digit() && c != '.')
                .unwrap_or(rest.len());
            let (number, tail) = rest.split_at(split);
            let unit_end = tail.find(|c: char| c.is_ascii_digit()).unwrap_or(tail.len());
            let (unit, tail) = tail.split_at(unit_end);
            let number: f64 = number.parse().map_err(|_| "a number is missing".to_owned())?;
            let scale = match unit {
                "ns" => 1e-9,
                "us" | "µs" => 1e-6,
                "ms" => 1e-3,
                "s" => 1.0,
                "m" => 60.0,
                "h" => 3600.0,
                "" => return Err("the unit is missing".to_owned()),
                other => return Err(format!("`{other}` is not a unit")),
            };
            seconds += number * scale;
            rest = tail;
        }
        Duration::try_from_secs_f64(seconds).map_err(|_| "it is too long".to_owned())
    }
}

impl Value for usize {
    const FORM: &'static str = "NUMBER";

    fn parse(text: &str) -> Result<usize, String> {
        text.parse()
            .map_err(|_| "it is not a whole number that fits".to_owned())
    }
}

impl Value for String {
    const FORM: &'static str = "NAME";

    fn parse(text: &str) -> Result<String, String> {
        if text.is_empty() {
            Err("it is empty".to_owned())
        } else {
            Ok(text.to_owned())
        }
    }
}

impl Value for PathBuf {
    const FORM: &'static str = "PATH";

    fn parse(text: &str) -> Result<PathBuf, String> {
        if text.is_empty() {
            Err("it is empty".to_owned())
        } else {
            Ok(PathBuf::from(text))
        }
    }
}

impl Value for Option<PathBuf> {
    const FORM: &'static str = "PATH";

    fn parse(text: &str) -> Result<Option<PathBuf>, String> {
        Ok(Some(PathBuf::from(text)).filter(|path| !path.as_os_str().is_empty()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_read_as_go_reads_them() {
        let parsed = |text: &str| Address::parse(text).map(|a| a.candidates());
        assert_eq!(parsed("127.0.0.1:15010"), Ok(vec!["127.0.0.1:15010".parse().unwrap()]));
        assert_eq!(parsed("[::1]:80"), Ok(vec!["[::1]:80".parse().unwrap()]));
        assert_eq!(parsed("localhost:80"), Ok(vec!["127.0.0.1:80".parse().unwrap()]));
        assert_eq!(
            parsed(":15010"),
            Ok(vec!["[::]:15010".parse().unwrap(), "0.0.0.0:15010".parse().unwrap()])
        );
        assert_eq!(parsed("15010"), Err("there is no port".to_owned()));
        assert_eq!(parsed("host:1"), Err("`host` is not an IP address".to_owned()));
        assert_eq!(parsed(":70000"), Err("`70000` is not a port".to_owned()));
    }

    #[test]
    fn durations_are_read_as_go_reads_them() {
        let millis = |text: &str| Duration::parse(text).map(|d| d.as_millis());
        assert_eq!(millis("1m30s"), Ok(90_000));
        assert_eq!(millis("1.5s"), Ok(1_500));
        assert_eq!(millis("0"), Ok(0));
        assert_eq!(millis("250ms"), Ok(250));
        assert_eq!(millis("10"), Err("the unit is missing".to_owned()));
        assert_eq!(millis("ten"), Err("a number is missing".to_owned()));
        assert_eq!(millis("9999999999999999999999h"), Err("it is too long".to_owned()));
    }

    #[test]
    fn sizes_have_binary_units() {
        assert_eq!(ByteSize::parse("4MiB"), Ok(ByteSize(4 << 20)));
        assert_eq!(ByteSize::parse("4096"), Ok(ByteSize(4096)));
        assert_eq!(ByteSize::parse("4MB"), Err("`MB` is not a unit".to_owned()));
        assert_eq!(ByteSize::parse("99999999999999GiB"), Err("it is too large".to_owned()));
    }

    #[test]
    fn log_filters_are_checked() {
        assert!(LogFilter::parse("info,ads=debug,world::commit=trace").is_ok());
        assert_eq!(LogFilter::parse("loud"), Err("`loud` is not a level".to_owned()));
        assert_eq!(LogFilter::parse("=info"), Err("`` is not a target".to_owned()));
    }

    proptest::proptest! {
        #[test]
        fn no_text_makes_a_parser_panic(text in ".*") {
            let _ = (Address::parse(&text), Duration::parse(&text), ByteSize::parse(&text), LogFilter::parse(&text));
        }
    }
}
