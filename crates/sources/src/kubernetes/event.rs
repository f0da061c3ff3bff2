//! Parses responses: watch events, list pages and errors.

use std::fmt;
use std::sync::Arc;

use serde::de::{DeserializeSeed, Deserializer, Error, IgnoredAny, MapAccess, SeqAccess, Visitor};
use serde_json::Value;

use super::slim::Keep;

/// An object from the server, without the fields that are not needed.
#[derive(Clone, PartialEq, Debug)]
pub(crate) struct Raw {
    /// The namespace; empty for cluster-scoped kinds.
    pub(crate) namespace: Arc<str>,
    pub(crate) name: Arc<str>,
    /// `metadata.resourceVersion`.
    pub(crate) version: String,
    /// The kept fields.
    pub(crate) value: Value,
}

impl Raw {
    /// Parses an object. `None` if it has no name.
    pub(crate) fn of(value: Value) -> Option<Raw> {
        let text = |field: &str| value["metadata"][field].as_str();
        Some(Raw {
            namespace: text("namespace").unwrap_or_default().into(),
            name: text("name").filter(|name| !name.is_empty())?.into(),
            version: text("resourceVersion").unwrap_or_default().to_owned(),
            value,
        })
    }
}

/// A line of a watch.
#[derive(Clone, PartialEq, Debug)]
pub(crate) enum Line {
    /// The object was added or modified.
    Applied(Raw),
    /// The object was deleted.
    Deleted(Raw),
    /// Everything up to this version was sent; and whether this ends the initial list.
    Bookmark { version: String, end_of_list: bool },
    /// The watch failed: code and message of the `Status`.
    Failed { code: u64, message: String },
    /// An unknown event.
    Other,
}

/// Parses a line of a watch.
///
/// # Errors
/// It is malformed.
pub(crate) fn line(bytes: &[u8], keep: &Keep) -> Result<Line, serde_json::Error> {
    let mut deserializer = serde_json::Deserializer::from_slice(bytes);
    let (what, object) = EventSeed(keep).deserialize(&mut deserializer)?;
    let line = match what.as_str() {
        "ADDED" | "MODIFIED" => Raw::of(object).map(Line::Applied),
        "DELETED" => Raw::of(object).map(Line::Deleted),
        "BOOKMARK" => {
            let meta = &object["metadata"];
            let version = meta["resourceVersion"].as_str().unwrap_or_default().to_owned();
            let end_of_list = meta["annotations"]["k8s.io/initial-events-end"].as_str() == Some("true");
            Some(Line::Bookmark { version, end_of_list })
        }
        "ERROR" => Some(Line::Failed {
            code: object["code"].as_u64().unwrap_or(500),
            message: object["message"].as_str().unwrap_or("no reason given").to_owned(),
        }),
        _ => Some(Line::Other),
    };
    line.ok_or_else(|| serde_json::Error::custom("an object without a name"))
}

/// A page of a list.
#[derive(Clone, PartialEq, Debug, Default)]
pub(crate) struct Page {
    /// The version of the list.
    pub(crate) version: String,
    /// The continue token; empty for the last page.
    pub(crate) next: String,
    /// The objects.
    pub(crate) items: Vec<Raw>,
}

/// Parses a page of a list.
///
/// # Errors
/// It is malformed.
pub(crate) fn page(bytes: &[u8], keep: &Keep) -> Result<Page, serde_json::Error> {
    let mut deserializer = serde_json::Deserializer::from_slice(bytes);
    PageSeed(keep).deserialize(&mut deserializer)
}

struct EventSeed<'k>(&'k Keep);

impl<'de> DeserializeSeed<'de> for EventSeed<'_> {
    type Value = (String, Value);

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(String, Value), D::Error> {
        deserializer.deserialize_map(self)
    }
}

impl<'de> Visitor<'de> for EventSeed<'_> {
    type Value = (String, Value);

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an event of a watch")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<(String, Value), A::Error> {
        let (mut what, mut object) = (String::new(), Value::Null);
        while let Some(name) = map.next_key::<String>()? {
            match name.as_str() {
                "type" => what = map.next_value()?,
                // Statuses and bookmarks have other fields than objects. The type comes first.
                "object" => {
                    let keep = match what.as_str() {
                        "ADDED" | "MODIFIED" | "DELETED" => self.0,
                        _ => &Keep::All,
                    };
                    object = map.next_value_seed(keep)?;
                }
                _ => drop(map.next_value::<IgnoredAny>()?),
            }
        }
        match what.is_empty() {
            true => Err(A::Error::missing_field("type")),
            false => Ok((what, object)),
        }
    }
}

struct PageSeed<'k>(&'k Keep);

impl<'de> DeserializeSeed<'de> for PageSeed<'_> {
    type Value = Page;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Page, D::Error> {
        deserializer.deserialize_map(self)
    }
}

impl<'de> Visitor<'de> for PageSeed<'_> {
    type Value = Page;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a list of objects")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Page, A::Error> {
        let mut page = Page::default();
        let mut is_list = false;
        while let Some(name) = map.next_key::<String>()? {
            match name.as_str() {
                "metadata" => {
                    let meta: Value = map.next_value()?;
                    let text = |field: &str| meta[field].as_str().unwrap_or_default().to_owned();
                    (page.version, page.next) = (text("resourceVersion"), text("continue"));
                }
                "items" => {
                    is_list = true;
                    page.items = map.next_value_seed(Items(self.0))?;
                }
                _ => drop(map.next_value::<IgnoredAny>()?),
            }
        }
        match is_list {
            true => Ok(page),
            false => Err(A::Error::missing_field("items")),
        }
    }
}

struct Items<'k>(&'k Keep);

impl<'de> DeserializeSeed<'de> for Items<'_> {
    type Value = Vec<Raw>;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Vec<Raw>, D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Items<'_> {
    type Value = Vec<Raw>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the items of a list")
    }

    /// Go serializes a nil slice as null.
    fn visit_unit<E: Error>(self) -> Result<Vec<Raw>, E> {
        Ok(Vec::new())
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Vec<Raw>, A::Error> {
        let mut items = Vec::new();
        while let Some(value) = list.next_element_seed(self.0)? {
            items.push(Raw::of(value).ok_or_else(|| A::Error::custom("an object without a name"))?);
        }
        Ok(items)
    }
}

#[cfg(test)]
mod tests {
    use config::Kind;
    use proptest::prelude::*;

    use super::*;

    fn parsed(text: &str) -> Line {
        line(text.as_bytes(), &Keep::of(Kind::Pod)).unwrap()
    }

    #[test]
    fn all_events_of_a_watch_are_parsed() {
        let put = parsed(
            r#"{"type":"ADDED","object":{"metadata":{"name":"a","namespace":"x","resourceVersion":"5"},"spec":{"volumes":[]}}}"#,
        );
        let Line::Applied(raw) = put else { panic!("{put:?}") };
        assert_eq!((&*raw.namespace, &*raw.name, raw.version.as_str()), ("x", "a", "5"));
        assert_eq!(raw.value["spec"], serde_json::json!({}));
        let end = parsed(
            r#"{"type":"BOOKMARK","object":{"metadata":{"resourceVersion":"9","annotations":{"k8s.io/initial-events-end":"true"}}}}"#,
        );
        let (version, end_of_list) = ("9".to_owned(), true);
        assert_eq!(end, Line::Bookmark { version, end_of_list });
        let failed = parsed(r#"{"type":"ERROR","object":{"kind":"Status","code":410,"message":"too old"}}"#);
        let message = "too old".to_owned();
        assert_eq!(failed, Line::Failed { code: 410, message });
        assert!(line(br#"{"type":"ADDED","object":{"metadata":{}}}"#, &Keep::All).is_err());
        assert!(line(br#"{"object":{}}"#, &Keep::All).is_err());
    }

    #[test]
    fn pages_have_continue_tokens() {
        let text = br#"{"kind":"PodList","metadata":{"resourceVersion":"8","continue":"abc"},"items":[{"metadata":{"name":"a"}}]}"#;
        let page = page(text, &Keep::of(Kind::Pod)).unwrap();
        assert_eq!(
            (page.version.as_str(), page.next.as_str(), page.items.len()),
            ("8", "abc", 1)
        );
        let empty = super::page(br#"{"metadata":{"resourceVersion":"8"},"items":null}"#, &Keep::All).unwrap();
        assert!(empty.items.is_empty() && empty.next.is_empty());
        assert!(super::page(br#"{"kind":"Status","code":403}"#, &Keep::All).is_err());
    }

    proptest! {
        #[test]
        fn no_bytes_cause_a_panic(bytes in proptest::collection::vec(any::<u8>(), 0..200), text in r#"[{}"\[\]:,a-z0-9]{0,80}"#) {
            for keep in [Keep::of(Kind::Pod), Keep::of(Kind::VirtualService), Keep::All] {
                let _ = (line(&bytes, &keep), page(&bytes, &keep), line(text.as_bytes(), &keep), page(text.as_bytes(), &keep));
                let event = format!(r#"{{"type":"ADDED","object":{text}}}"#);
                let _ = line(event.as_bytes(), &keep);
            }
        }
    }
}
