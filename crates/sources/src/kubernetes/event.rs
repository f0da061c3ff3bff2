//! Parses responses: watch events, list pages and errors.

use std::sync::Arc;

use serde::Deserialize;
use serde::de::{DeserializeSeed as _, Deserializer, Error as _};
use serde_json::Value;
use serde_json::value::RawValue;

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
    let event: EventText<'_> = serde_json::from_slice(bytes)?;
    let object = |keep| event.object.map_or(Ok(Value::Null), |text| read(text, keep));
    let line = match event.what.as_str() {
        "ADDED" | "MODIFIED" => Raw::of(object(keep)?).map(Line::Applied),
        "DELETED" => Raw::of(object(keep)?).map(Line::Deleted),
        "BOOKMARK" => {
            let meta = &object(&Keep::All)?["metadata"];
            let version = meta["resourceVersion"].as_str().unwrap_or_default().to_owned();
            let end_of_list = meta["annotations"]["k8s.io/initial-events-end"].as_str() == Some("true");
            Some(Line::Bookmark { version, end_of_list })
        }
        "ERROR" => {
            let status = object(&Keep::All)?;
            Some(Line::Failed {
                code: status["code"].as_u64().unwrap_or(500),
                message: status["message"].as_str().unwrap_or("no reason given").to_owned(),
            })
        }
        _ => Some(Line::Other),
    };
    line.ok_or_else(nameless)
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
    let page: PageText<'_> = serde_json::from_slice(bytes)?;
    let text = |field: &str| page.metadata[field].as_str().unwrap_or_default().to_owned();
    let items = page.items.into_iter();
    let items = items.map(|item| Raw::of(read(item, keep)?).ok_or_else(nameless));
    Ok(Page { version: text("resourceVersion"), next: text("continue"), items: items.collect::<Result<_, _>>()? })
}

#[derive(Deserialize)]
struct EventText<'t> {
    #[serde(rename = "type")]
    what: String,
    #[serde(borrow)]
    object: Option<&'t RawValue>,
}

#[derive(Deserialize)]
struct PageText<'t> {
    #[serde(default)]
    metadata: Value,
    #[serde(borrow, deserialize_with = "items")]
    items: Vec<&'t RawValue>,
}

/// Go serializes a nil slice as null.
fn items<'de: 't, 't, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<&'t RawValue>, D::Error> {
    Ok(Option::deserialize(deserializer)?.unwrap_or_default())
}

fn read(text: &RawValue, keep: &Keep) -> Result<Value, serde_json::Error> {
    keep.deserialize(&mut serde_json::Deserializer::from_str(text.get()))
}

fn nameless() -> serde_json::Error {
    serde_json::Error::custom("an object without a name")
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
        assert_eq!((page.version.as_str(), page.next.as_str(), page.items.len()), ("8", "abc", 1));
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
