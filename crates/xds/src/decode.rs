//! Decodes requests within limits.
//!
//! A SotW ACK repeats the client's whole subscription, so that names are read into one buffer and not into a string each.
//! They are sorted here, before the request waits for the thread that owns the hub.

use bytes::Bytes;
use model::xds::Version;
use xxhash_rust::xxh3::xxh3_64_with_seed;

use crate::Limits;
use crate::ledger::share_of_name;
use crate::name_set::{self, Identity};
use protos::wire::{Malformed, Reader, Value, share};

/// The reason for which a request is rejected.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum DecodeError {
    /// The bytes are not a discovery request.
    #[error("the request is not a discovery request")]
    Malformed,
    /// A text in it is not UTF-8.
    #[error("the request's {0} is not UTF-8")]
    Text(&'static str),
    /// A resource has no name.
    #[error("the request has an empty resource name")]
    EmptyName,
    /// A field is too long.
    #[error("the request's {what} is longer than {limit} bytes")]
    TooLong {
        /// The field.
        what: &'static str,
        /// The limit in bytes.
        limit: usize,
    },
    /// It names too many resources.
    #[error("the request names more than {0} resources")]
    TooMany(usize),
}

impl From<Malformed> for DecodeError {
    fn from(_: Malformed) -> DecodeError {
        DecodeError::Malformed
    }
}

/// A request.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Request {
    /// The encoded node message; required in the first request of a stream only.
    pub node: Option<Bytes>,
    /// The type URL.
    pub type_url: String,
    /// The nonce of the response that this answers; empty if it answers none.
    pub nonce: String,
    /// The error, if this is a NACK.
    pub error: Option<String>,
    /// The fields that depend on the variant.
    pub body: Body,
}

/// The fields of a request that depend on the protocol variant.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Body {
    /// State of the world.
    Sotw {
        /// The version that the client accepted last.
        version: String,
        /// All names that it subscribes to.
        names: Texts,
    },
    /// Delta.
    Delta {
        /// Names to subscribe to.
        subscribe: Texts,
        /// Names to unsubscribe from.
        unsubscribe: Texts,
        /// The resources that it has from an earlier stream.
        initial: Held,
    },
}

impl Default for Body {
    fn default() -> Body {
        Body::Sotw { version: String::new(), names: Texts::default() }
    }
}

/// A list of texts in one buffer.
#[derive(Clone, PartialEq, Eq, Default)]
pub struct Texts {
    buffer: String,
    ends: Vec<u32>,
    /// The digest of a [`NameSet`](name_set::NameSet) of these texts, if each occurs once.
    digest: u64,
}

impl Texts {
    /// The number of texts.
    pub fn len(&self) -> usize {
        self.ends.len()
    }

    /// Whether there are no texts.
    pub fn is_empty(&self) -> bool {
        self.ends.is_empty()
    }

    /// The texts, in the order of the request.
    pub fn iter(&self) -> impl Iterator<Item = &str> {
        let starts = std::iter::once(0).chain(self.ends.iter().copied());
        starts.zip(&self.ends).map(|(start, end)| &self.buffer[start as usize..*end as usize])
    }

    /// The text with this index, which is below [`Texts::len`].
    fn get(&self, index: usize) -> &str {
        let start = index.checked_sub(1).map_or(0, |before| self.ends[before]);
        &self.buffer[start as usize..self.ends[index] as usize]
    }

    /// A digest that distinguishes the set of these texts from others, if each occurs once.
    pub(crate) fn identity(&self) -> Identity {
        (self.digest, self.len())
    }

    /// Whether this text is among them.
    pub fn contains(&self, text: &str) -> bool {
        self.iter().any(|one| one == text)
    }

    /// Sorts the texts.
    fn sort(&mut self) {
        if self.iter().is_sorted() {
            return;
        }
        let mut texts: Vec<&str> = self.iter().collect();
        // Most are in order. The stable sort is faster then.
        texts.sort();
        *self = texts.into_iter().collect();
    }

    fn push(&mut self, text: &str) {
        self.push_hashed(text, name_set::hash(text));
    }

    fn push_hashed(&mut self, text: &str, hash: u64) {
        self.digest = self.digest.wrapping_add(hash);
        self.buffer.push_str(text);
        self.ends.push(u32::try_from(self.buffer.len()).unwrap_or(u32::MAX));
    }
}

impl std::fmt::Debug for Texts {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_list().entries(self.iter()).finish()
    }
}

impl<'a> FromIterator<&'a str> for Texts {
    fn from_iter<I: IntoIterator<Item = &'a str>>(texts: I) -> Texts {
        let mut all = Texts::default();
        texts.into_iter().for_each(|text| all.push(text));
        all
    }
}

/// The resources that a client has from an earlier stream.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct Held {
    names: Texts,
    /// The hashes of the names, in the same order.
    hashes: Vec<u64>,
    /// In the same order; `None` for a text that is not a version of a resource.
    versions: Vec<Option<Version>>,
    /// The digest of a ledger that has exactly these resources.
    digest: u64,
    /// The sum of the marks of all resources.
    fingerprint: u64,
}

/// A resource that a client has from an earlier stream.
#[derive(Clone, Copy)]
pub(crate) struct HeldOne<'a> {
    pub(crate) name: &'a str,
    /// The hash of its name ([`name_set::hash`]).
    pub(crate) hash: u64,
    /// `None` if its text is not a version of a resource.
    pub(crate) version: Option<Version>,
}

impl HeldOne<'_> {
    /// Its share in the fingerprint of a set of resources. Clients cannot find two sets with one fingerprint, because they do not know
    /// the hashes.
    pub(crate) fn mark(&self) -> u64 {
        xxh3_64_with_seed(&number(self.version).to_le_bytes(), self.hash)
    }
}

/// No resource has that of `None`.
fn number(version: Option<Version>) -> u64 {
    version.map_or(u64::MAX, |version| version.0)
}

impl Held {
    /// The number of resources.
    pub fn len(&self) -> usize {
        self.versions.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.versions.is_empty()
    }

    /// Their names, in the order of the request.
    pub fn names(&self) -> &Texts {
        &self.names
    }

    /// The resources, in the order of the request.
    pub(crate) fn iter(&self) -> impl Iterator<Item = HeldOne<'_>> {
        let facts = self.hashes.iter().zip(&self.versions);
        self.names.iter().zip(facts).map(|(name, (hash, version))| HeldOne { name, hash: *hash, version: *version })
    }

    /// The resource with this index, which is below [`Held::len`].
    pub(crate) fn get(&self, index: usize) -> HeldOne<'_> {
        HeldOne { name: self.names.get(index), hash: self.hashes[index], version: self.versions[index] }
    }

    pub(crate) fn digest(&self) -> u64 {
        self.digest
    }

    /// Equal sets of resources have the same one.
    pub(crate) fn fingerprint(&self) -> u64 {
        self.fingerprint
    }

    fn push(&mut self, name: &str, version: &str) {
        let one = HeldOne { name, hash: name_set::hash(name), version: version_of(version) };
        self.digest = self.digest.wrapping_add(share_of_name(name, number(one.version)));
        self.fingerprint = self.fingerprint.wrapping_add(one.mark());
        self.names.push_hashed(name, one.hash);
        self.hashes.push(one.hash);
        self.versions.push(one.version);
    }
}

impl<'a> FromIterator<(&'a str, &'a str)> for Held {
    fn from_iter<I: IntoIterator<Item = (&'a str, &'a str)>>(resources: I) -> Held {
        let mut held = Held::default();
        resources.into_iter().for_each(|(name, version)| held.push(name, version));
        held
    }
}

/// The version with this text.
fn version_of(text: &str) -> Option<Version> {
    let number = (text.len() == 16).then(|| u64::from_str_radix(text, 16).ok());
    number.flatten().map(Version)
}

/// Reads an `envoy.service.discovery.v3.DiscoveryRequest`.
///
/// # Errors
/// It is malformed or beyond a limit.
pub fn decode_sotw(message: &Bytes, limits: &Limits) -> Result<Request, DecodeError> {
    let mut request = Request::default();
    let (mut version, mut names) = (String::new(), Texts::default());
    let mut reader = start(message, limits)?;
    while let Some((field, value)) = reader.field()? {
        match (field, value) {
            (1, Value::Bytes(value)) => version = text(value, "version", limits.name_bytes)?.to_owned(),
            (2, Value::Bytes(value)) => request.node = Some(node(message, value, limits)?),
            (3, Value::Bytes(value)) => add_name(&mut names, value, limits)?,
            (4, Value::Bytes(value)) => request.type_url = text(value, "type", limits.name_bytes)?.to_owned(),
            (5, Value::Bytes(value)) => request.nonce = text(value, "nonce", limits.name_bytes)?.to_owned(),
            (6, Value::Bytes(value)) => request.error = Some(error(value, limits)?),
            _ => {}
        }
    }
    names.sort();
    request.body = Body::Sotw { version, names };
    Ok(request)
}

/// Reads an `envoy.service.discovery.v3.DeltaDiscoveryRequest`.
///
/// # Errors
/// It is malformed or beyond a limit.
pub fn decode_delta(message: &Bytes, limits: &Limits) -> Result<Request, DecodeError> {
    let mut request = Request::default();
    let (mut subscribe, mut unsubscribe) = (Texts::default(), Texts::default());
    let mut initial = Held::default();
    let mut reader = start(message, limits)?;
    while let Some((field, value)) = reader.field()? {
        match (field, value) {
            (1, Value::Bytes(value)) => request.node = Some(node(message, value, limits)?),
            (2, Value::Bytes(value)) => request.type_url = text(value, "type", limits.name_bytes)?.to_owned(),
            (3, Value::Bytes(value)) => add_name(&mut subscribe, value, limits)?,
            (4, Value::Bytes(value)) => add_name(&mut unsubscribe, value, limits)?,
            (5, Value::Bytes(value)) => {
                let (name, version) = entry(value)?;
                if initial.is_empty() {
                    // Most of the rest are names. Growing step by step would copy them several times.
                    initial.names.buffer.reserve(reader.rest().len() / 4 * 3);
                }
                let name = checked_name(name, initial.len(), limits)?;
                initial.push(name, text(version, "version", limits.name_bytes)?);
            }
            (6, Value::Bytes(value)) => request.nonce = text(value, "nonce", limits.name_bytes)?.to_owned(),
            (7, Value::Bytes(value)) => request.error = Some(error(value, limits)?),
            _ => {}
        }
    }
    subscribe.sort();
    request.body = Body::Delta { subscribe, unsubscribe, initial };
    Ok(request)
}

fn start<'a>(message: &'a Bytes, limits: &Limits) -> Result<Reader<'a>, DecodeError> {
    if message.len() > limits.request_bytes {
        return Err(DecodeError::TooLong { what: "message", limit: limits.request_bytes });
    }
    Ok(Reader::new(message))
}

fn text<'a>(value: &'a [u8], what: &'static str, limit: usize) -> Result<&'a str, DecodeError> {
    if value.len() > limit {
        return Err(DecodeError::TooLong { what, limit });
    }
    std::str::from_utf8(value).map_err(|_| DecodeError::Text(what))
}

fn node(message: &Bytes, value: &[u8], limits: &Limits) -> Result<Bytes, DecodeError> {
    if value.len() > limits.node_bytes {
        return Err(DecodeError::TooLong { what: "node", limit: limits.node_bytes });
    }
    Ok(share(message, value))
}

fn add_name(names: &mut Texts, value: &[u8], limits: &Limits) -> Result<(), DecodeError> {
    names.push(checked_name(value, names.len(), limits)?);
    Ok(())
}

/// A name after `count` others.
fn checked_name<'a>(value: &'a [u8], count: usize, limits: &Limits) -> Result<&'a str, DecodeError> {
    let name = text(value, "resource name", limits.name_bytes)?;
    if name.is_empty() {
        return Err(DecodeError::EmptyName);
    }
    if count >= limits.names {
        return Err(DecodeError::TooMany(limits.names));
    }
    Ok(name)
}

/// Key and value of a map's entry. Either may be absent.
fn entry(value: &[u8]) -> Result<(&[u8], &[u8]), DecodeError> {
    let mut entry = (&value[..0], &value[..0]);
    let mut reader = Reader::new(value);
    while let Some((field, value)) = reader.field()? {
        match (field, value) {
            (1, Value::Bytes(value)) => entry.0 = value,
            (2, Value::Bytes(value)) => entry.1 = value,
            _ => {}
        }
    }
    Ok(entry)
}

/// The message of a `google.rpc.Status`, truncated. Invalid UTF-8 is replaced: the error is for people to read.
fn error(value: &[u8], limits: &Limits) -> Result<String, DecodeError> {
    let mut message = String::new();
    let mut reader = Reader::new(value);
    while let Some((field, value)) = reader.field()? {
        if let (2, Value::Bytes(value)) = (field, value) {
            message = String::from_utf8_lossy(&value[..value.len().min(limits.error_bytes)]).into_owned();
        }
    }
    Ok(message)
}
