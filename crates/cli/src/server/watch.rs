//! Watches: streams of events, one JSON object per line.

use anyhow::{Context, Result, ensure};
use http_body_util::BodyExt;
use kube::client::Body;
use serde_json::Value as Json;

use crate::failure::StatusError;

/// Maximum length of a line in bytes, enough for a `Table` of one object of maximum size.
const MAX_LINE: usize = 32 << 20;

/// A watch event.
#[derive(Clone, PartialEq, Debug)]
pub(crate) enum Event {
    /// An object was created.
    Added(Json),
    /// An object changed.
    Modified(Json),
    /// An object was deleted; its last state.
    Deleted(Json),
    /// Progress up to a resource version, without a change.
    Bookmark(Json),
}

impl Event {
    /// The object.
    pub(crate) fn object(&self) -> &Json {
        match self {
            Event::Added(object) | Event::Modified(object) | Event::Deleted(object) | Event::Bookmark(object) => object,
        }
    }

    /// The event type of the Kubernetes API.
    pub(crate) fn name(&self) -> &'static str {
        match self {
            Event::Added(_) => "ADDED",
            Event::Modified(_) => "MODIFIED",
            Event::Deleted(_) => "DELETED",
            Event::Bookmark(_) => "BOOKMARK",
        }
    }
}

/// An open watch.
pub(crate) struct Watch {
    body: Body,
    buffer: Vec<u8>,
}

impl Watch {
    pub(super) fn of(body: Body) -> Watch {
        Watch {
            body,
            buffer: Vec::new(),
        }
    }

    /// The next event; none after the watch has ended. An `ERROR` event is returned as [`StatusError`].
    pub(crate) async fn next(&mut self) -> Result<Option<Event>> {
        loop {
            if let Some(line) = self.line() {
                if line.trim_ascii().is_empty() {
                    continue;
                }
                return event(&line).map(Some);
            }
            let Some(Ok(frame)) = self.body.frame().await else {
                return Ok(None);
            };
            if let Some(data) = frame.data_ref() {
                ensure!(
                    self.buffer.len() + data.len() <= MAX_LINE,
                    "an event of the watch is larger than {MAX_LINE} bytes"
                );
                self.buffer.extend_from_slice(data);
            }
        }
    }

    fn line(&mut self) -> Option<Vec<u8>> {
        let end = self.buffer.iter().position(|byte| *byte == b'\n')?;
        let rest = self.buffer.split_off(end + 1);
        Some(std::mem::replace(&mut self.buffer, rest))
    }
}

fn event(line: &[u8]) -> Result<Event> {
    let mut event: Json = serde_json::from_slice(line).context("invalid watch event")?;
    let object = event["object"].take();
    match event["type"].as_str() {
        Some("ADDED") => Ok(Event::Added(object)),
        Some("MODIFIED") => Ok(Event::Modified(object)),
        Some("DELETED") => Ok(Event::Deleted(object)),
        Some("BOOKMARK") => Ok(Event::Bookmark(object)),
        Some("ERROR") => Err(StatusError::of_status(&object, 500).into()),
        kind => anyhow::bail!("unknown watch event type {}", kind.unwrap_or("(none)")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn events_are_separated_by_line_breaks() {
        let text = "{\"type\":\"ADDED\",\"object\":{\"a\":1}}\n\n{\"type\":\"ERROR\",\"object\":{\"kind\":\"Status\",\"code\":410}}\n{\"ty";
        let mut watch = Watch::of(Body::from(text.as_bytes().to_vec()));
        assert_eq!(
            watch.next().await.unwrap(),
            Some(Event::Added(serde_json::json!({"a": 1})))
        );
        assert!(super::super::is_expired(&watch.next().await.unwrap_err()));
        assert_eq!(watch.next().await.unwrap(), None, "an incomplete line is ignored");
    }
}
