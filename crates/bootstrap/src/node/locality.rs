//! The locality of a proxy.

use serde_json::{Map, Value};

/// A locality. Unknown parts are empty.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Locality {
    /// The region.
    pub region: String,
    /// The zone.
    pub zone: String,
    /// The subzone.
    pub sub_zone: String,
}

impl Locality {
    /// Splits `REGION/ZONE/SUBZONE`; further parts are ignored.
    #[must_use]
    pub fn from_path(path: &str) -> Locality {
        let mut parts = path.split('/').map(str::to_owned);
        let mut next = || parts.next().unwrap_or_default();
        Locality { region: next(), zone: next(), sub_zone: next() }
    }

    /// The locality as `envoy.config.core.v3.Locality`, without empty parts.
    #[must_use]
    pub fn to_json(&self) -> Value {
        let parts = [("region", &self.region), ("zone", &self.zone), ("sub_zone", &self.sub_zone)];
        let known = parts.into_iter().filter(|(_, text)| !text.is_empty());
        Value::Object(known.map(|(name, text)| (name.to_owned(), Value::from(text.as_str()))).collect::<Map<_, _>>())
    }
}

/// The path of a locality label. Labels of Kubernetes have dots in place of slashes.
pub(super) fn path(label: &str) -> String {
    if label.contains('/') { label.to_owned() } else { label.replace('.', "/") }
}
