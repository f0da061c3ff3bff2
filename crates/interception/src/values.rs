//! The values of settings: ports, ranges of addresses, owners of sockets, names of interfaces.

use std::fmt;
use std::net::Ipv4Addr;
use std::str::FromStr;

use ipnet::{IpNet, Ipv4Net};

/// The most entries of one list. A rule is made for each.
const MAX_ENTRIES: usize = 1000;

/// A port, or a range of ports written as `first:last`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Ports {
    /// The first port.
    pub first: u16,
    /// The last port: the first one again if it is a single port.
    pub last: u16,
}

impl FromStr for Ports {
    type Err = String;

    fn from_str(text: &str) -> Result<Ports, String> {
        let (first, last) = text.split_once(':').unwrap_or((text, text));
        match (number::<u16>(first), number::<u16>(last)) {
            (Ok(first), Ok(last)) if first <= last => Ok(Ports { first, last }),
            _ => Err(format!("{text:?} is not a port; give a number up to 65535, or a range like 8000:8080")),
        }
    }
}

impl From<u16> for Ports {
    fn from(port: u16) -> Ports {
        Ports { first: port, last: port }
    }
}

/// Writes a range as `iptables` does.
impl fmt::Display for Ports {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.first == self.last {
            true => write!(f, "{}", self.first),
            false => write!(f, "{}:{}", self.first, self.last),
        }
    }
}

/// A list, or everything (`*`).
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Included<T> {
    /// Everything.
    All,
    /// The entries of a list. None disables the capture that the list is for.
    Listed(Vec<T>),
}

impl<T> Default for Included<T> {
    fn default() -> Included<T> {
        Included::Listed(Vec::new())
    }
}

impl<T> Included<T> {
    /// Whether the list has no entries.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        matches!(self, Included::Listed(entries) if entries.is_empty())
    }

    /// Parses `*` or a list.
    pub(crate) fn parse(text: &str, entry: impl Fn(&str) -> Result<T, String>) -> Result<Included<T>, String> {
        match text.trim() {
            "*" => Ok(Included::All),
            text => Ok(Included::Listed(list(text, entry)?)),
        }
    }
}

/// A user or a group, by number or name. A range of numbers is written as `first-last`.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Owner(String);

impl Owner {
    /// The owner with a number.
    #[must_use]
    pub fn of(id: u32) -> Owner {
        Owner(id.to_string())
    }

    /// The number, name or range.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Whether it is a name, which has to be looked up.
    #[must_use]
    pub fn is_name(&self) -> bool {
        !self.0.bytes().all(|byte| byte.is_ascii_digit() || byte == b'-')
    }
}

impl FromStr for Owner {
    type Err = String;

    fn from_str(text: &str) -> Result<Owner, String> {
        let valid = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte);
        let starts = text.bytes().next().is_some_and(|byte| byte != b'-');
        match starts && text.len() <= 32 && text.bytes().all(valid) {
            true => Ok(Owner(text.to_owned())),
            false => Err(format!("{:?} is not a user or group; give its number or name", short(text))),
        }
    }
}

/// Parses the entries of a list that are separated by commas. Empty ones are skipped.
pub(crate) fn list<T>(text: &str, entry: impl Fn(&str) -> Result<T, String>) -> Result<Vec<T>, String> {
    let entries: Vec<&str> = text.split(',').map(str::trim).filter(|entry| !entry.is_empty()).collect();
    if entries.len() > MAX_ENTRIES {
        return Err(format!("the list has {} entries; give at most {MAX_ENTRIES}", entries.len()));
    }
    entries.into_iter().map(entry).collect()
}

/// Parses a number.
pub(crate) fn number<T: FromStr>(text: &str) -> Result<T, String> {
    let digits = text.bytes().all(|byte| byte.is_ascii_digit());
    text.parse().ok().filter(|_| digits).ok_or_else(|| format!("{:?} is not a number in range", short(text)))
}

/// Parses a single port.
pub(crate) fn port(text: &str) -> Result<u16, String> {
    number(text).map_err(|_| format!("{:?} is not a port; give a number up to 65535", short(text)))
}

/// Parses a mark: a number, also in the hexadecimal form `0x539`.
pub(crate) fn mark(text: &str) -> Result<u32, String> {
    let parsed = match text.strip_prefix("0x") {
        Some(digits) => u32::from_str_radix(digits, 16).ok().filter(|_| !digits.starts_with('+')),
        None => number(text).ok(),
    };
    parsed.ok_or_else(|| format!("{:?} is not a mark; give a number of 32 bits", short(text)))
}

/// Parses a range of addresses.
pub(crate) fn range(text: &str) -> Result<IpNet, String> {
    text.parse().map_err(|_| format!("{:?} is not a range of addresses; give one like 10.0.0.0/8", short(text)))
}

/// Parses the range of the loopback interface.
pub(crate) fn loopback(text: &str) -> Result<Ipv4Net, String> {
    let parsed = text.parse::<Ipv4Net>().ok();
    let valid = parsed.filter(|range| range.addr().is_loopback() && range.prefix_len() >= 8);
    valid.ok_or_else(|| format!("{:?} is not an IPv4 loopback range; give one like 127.0.0.1/32", short(text)))
}

/// The address from which a proxy connects to the application.
pub(crate) const PASSTHROUGH: Ipv4Addr = Ipv4Addr::new(127, 0, 0, 6);

/// Parses the name of a network interface. A `+` at its end stands for any rest, as in `iptables`.
pub(crate) fn interface(text: &str) -> Result<String, String> {
    let valid = |byte: u8| byte.is_ascii_graphic() && !b"\"'\\/!;{}#*,".contains(&byte);
    match text.len() <= 15 && text.bytes().all(valid) && !text.starts_with('-') {
        true => Ok(text.to_owned()),
        false => Err(format!("{:?} is not the name of a network interface", short(text))),
    }
}

/// Parses a boolean as Go's `strconv.ParseBool` does.
pub(crate) fn switch(text: &str) -> Result<bool, String> {
    protos::parse_bool(text).ok_or_else(|| format!("{:?} is not a boolean; give true or false", short(text)))
}

/// The beginning of a text, for an error.
pub(crate) fn short(text: &str) -> String {
    text.chars().take(60).collect()
}
