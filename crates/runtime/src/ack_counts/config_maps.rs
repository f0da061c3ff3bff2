//! Counts in ConfigMaps of the control plane's namespace.
//!
//! A replica has one ConfigMap with its heartbeat, and *pages* with the counts of up to [`PAGE`] objects each, so that a change writes a
//! few kilobytes. The label [`LABEL`] has the replica.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use controllers::{Resource, Watched};
use http::{Method, Request, StatusCode, header};
use kube::Client;
use kube::client::Body;
use serde_json::{Map, Value, json};
use sources::kubernetes::Seen;
use status::{Shares, stored_name};
use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tokio::time::timeout;

use super::{ALIVE, Board, Event, Follow, Name};
use crate::kubernetes::answer::{ask, message};
use crate::kubernetes::watched;

/// The label of the ConfigMaps. Its value is the replica that wrote them.
const LABEL: &str = "rutter.io/proxy-counts-of";
/// The field of the counts: an object in JSON, by the names of the counted objects.
const COUNTS: &str = "counts";
/// The field of the heartbeat.
const BEATS: &str = "beats";
/// The largest number of objects of a page. With the largest messages, their counts have half of the size that a ConfigMap may have.
const PAGE: usize = 100;
/// The largest number of pages that are written at once.
const WRITES: usize = 16;
/// The timeout of a request.
const REQUEST: Duration = Duration::from_secs(10);

/// The ConfigMaps cannot be read or written.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub(crate) struct ConfigMapError(String);

/// The counts of a replica in ConfigMaps.
#[derive(Clone)]
pub(crate) struct ConfigMapBoard {
    maps: ConfigMaps,
    identity: Arc<str>,
    pages: Pages,
    /// The number of heartbeats; 0 without a heartbeat.
    beats: u64,
}

impl ConfigMapBoard {
    /// The place for the replica with this identity, which must be a value of a label.
    pub(crate) fn new(client: Client, namespace: &str, identity: Arc<str>) -> ConfigMapBoard {
        let maps = ConfigMaps { client, namespace: namespace.to_owned() };
        ConfigMapBoard { maps, identity, pages: Pages::default(), beats: 0 }
    }

    /// The name of a page, or of the heartbeat.
    fn name(&self, page: Option<usize>) -> String {
        let number = page.map(|number| format!("-{number}")).unwrap_or_default();
        format!("rutter-proxy-counts-{}{number}", self.identity)
    }

    async fn apply(&self, page: Option<usize>, data: Value) -> Result<(), ConfigMapError> {
        self.maps.apply(&self.name(page), &self.identity, data).await
    }
}

impl Board for ConfigMapBoard {
    type Error = ConfigMapError;

    async fn beat(&mut self) -> Result<bool, ConfigMapError> {
        let next = json!({BEATS: (self.beats + 1).to_string()});
        let known = self.beats > 0 && self.maps.merge(&self.name(None), &json!({"data": next})).await?;
        if known {
            self.beats += 1;
            return Ok(true);
        }
        self.beats = 0;
        self.apply(None, json!({BEATS: "1"})).await?;
        self.beats = 1;
        Ok(false)
    }

    async fn write(&mut self, changes: Shares, all: bool) -> Result<bool, ConfigMapError> {
        if all {
            self.pages.clear();
        }
        for (object, share) in changes {
            self.pages.set(stored_name(&object).into(), share.map(|share| share.to_json()));
        }
        for number in self.pages.unwritten.iter().copied().take(WRITES).collect::<Vec<_>>() {
            let counts = self.pages.text(number);
            self.apply(Some(number), json!({COUNTS: counts})).await?;
            self.pages.unwritten.remove(&number);
        }
        Ok(self.pages.unwritten.is_empty())
    }

    /// Removes the heartbeat first, by which the replica, if it is alive, finds that it must publish everything again.
    async fn remove(&self, replica: &Arc<str>) -> Result<(), ConfigMapError> {
        let mut found = self.maps.of_replica(replica).await?;
        found.sort_by_key(|map| map["data"][BEATS].is_null());
        for map in found {
            self.maps.delete(&map["metadata"]).await?;
        }
        Ok(())
    }

    fn follow(&self) -> impl Follow {
        let watched = Watched::all(Resource::CONFIG_MAP).within(&self.maps.namespace).labelled(LABEL);
        let (sender, seen) = mpsc::channel(4);
        let mut watch = JoinSet::new();
        watch.spawn(watched::follow(self.maps.client.clone(), watched, sender, |seen| seen));
        Watching { seen, known: BTreeMap::new(), _watch: watch }
    }
}

/// The division of counts into pages.
#[derive(Clone, Default)]
struct Pages {
    pages: Vec<BTreeMap<Arc<str>, Value>>,
    /// The page of each object.
    places: BTreeMap<Arc<str>, usize>,
    /// The pages that differ from those that were written.
    unwritten: BTreeSet<usize>,
}

impl Pages {
    /// Sets or removes the counts of an object. It keeps its page.
    fn set(&mut self, name: Arc<str>, counts: Option<Value>) {
        let place = self.places.get(&name).copied();
        match counts {
            Some(counts) => {
                let number = place.unwrap_or_else(|| self.with_room());
                self.places.insert(name.clone(), number);
                self.pages[number].insert(name, counts);
                self.unwritten.insert(number);
            }
            None => {
                let Some(number) = place else { return };
                self.places.remove(&name);
                self.pages[number].remove(&name);
                self.unwritten.insert(number);
            }
        }
    }

    /// The first page with room for another object.
    fn with_room(&mut self) -> usize {
        if let Some(number) = self.pages.iter().position(|page| page.len() < PAGE) {
            return number;
        }
        self.pages.push(BTreeMap::new());
        self.pages.len() - 1
    }

    /// Removes all counts. Pages that were written before are written again.
    fn clear(&mut self) {
        self.places.clear();
        self.pages.iter_mut().for_each(BTreeMap::clear);
        self.unwritten = (0..self.pages.len()).collect();
    }

    /// The counts of a page.
    fn text(&self, number: usize) -> String {
        let page = self.pages[number].iter().map(|(name, counts)| (name.to_string(), counts.clone()));
        Value::Object(page.collect::<Map<_, _>>()).to_string()
    }
}

/// The ConfigMaps of a namespace.
#[derive(Clone)]
struct ConfigMaps {
    client: Client,
    namespace: String,
}

impl ConfigMaps {
    fn path(&self, name: &str) -> String {
        format!("/api/v1/namespaces/{}/configmaps{}{name}", self.namespace, if name.is_empty() { "" } else { "/" })
    }

    async fn call(
        &self,
        method: Method,
        path: String,
        kind: &str,
        body: &Value,
    ) -> Result<(StatusCode, Value), ConfigMapError> {
        let bytes = if body.is_null() { Vec::new() } else { body.to_string().into_bytes() };
        let request = Request::builder().method(method).uri(path).header(header::CONTENT_TYPE, kind);
        match timeout(REQUEST, ask(&self.client, request.body(Body::from(bytes)))).await {
            Ok(Ok(answer)) => Ok(answer),
            Ok(Err(outcome)) => Err(ConfigMapError(format!("the API server failed: {outcome:?}"))),
            Err(_) => Err(ConfigMapError("the API server does not answer".to_owned())),
        }
    }

    /// Creates or replaces a ConfigMap of a replica.
    async fn apply(&self, name: &str, replica: &str, data: Value) -> Result<(), ConfigMapError> {
        let map = json!({
            "apiVersion": "v1",
            "kind": "ConfigMap",
            "metadata": {"name": name, "namespace": self.namespace, "labels": {LABEL: replica}},
            "data": data,
        });
        let path = format!("{}?fieldManager=rutter&force=true", self.path(name));
        done(self.call(Method::PATCH, path, "application/apply-patch+yaml", &map).await?)
    }

    /// Changes a ConfigMap. Returns false if it does not exist.
    async fn merge(&self, name: &str, patch: &Value) -> Result<bool, ConfigMapError> {
        let path = format!("{}?fieldManager=rutter", self.path(name));
        let answer = self.call(Method::PATCH, path, "application/merge-patch+json", patch).await?;
        if answer.0 == StatusCode::NOT_FOUND {
            return Ok(false);
        }
        done(answer).map(|()| true)
    }

    /// Deletes a ConfigMap, unless it was written since it was read.
    async fn delete(&self, meta: &Value) -> Result<(), ConfigMapError> {
        let body = json!({"preconditions": {"resourceVersion": meta["resourceVersion"], "uid": meta["uid"]}});
        let path = self.path(meta["name"].as_str().unwrap_or_default());
        match self.call(Method::DELETE, path, "application/json", &body).await? {
            (StatusCode::NOT_FOUND | StatusCode::CONFLICT, _) => Ok(()),
            answer => done(answer),
        }
    }

    async fn of_replica(&self, replica: &str) -> Result<Vec<Value>, ConfigMapError> {
        let path = format!("{}?labelSelector={LABEL}%3D{replica}", self.path(""));
        let mut answer = self.call(Method::GET, path, "application/json", &Value::Null).await?;
        let items = answer.1["items"].take();
        done(answer)?;
        Ok(serde_json::from_value(items).unwrap_or_default())
    }
}

fn done((status, answer): (StatusCode, Value)) -> Result<(), ConfigMapError> {
    match status.is_success() {
        true => Ok(()),
        false => Err(ConfigMapError(format!("{status}: {}", message(&answer)))),
    }
}

/// A watch of the ConfigMaps of all replicas.
struct Watching {
    seen: mpsc::Receiver<Seen>,
    /// The values of each ConfigMap.
    known: BTreeMap<String, BTreeMap<Name, Value>>,
    _watch: JoinSet<()>,
}

impl Watching {
    /// The changes of a ConfigMap that has these values now.
    fn changes(&mut self, map: &Value, now: BTreeMap<Name, Value>) -> Vec<(Name, Option<Value>)> {
        let name = map["metadata"]["name"].as_str().unwrap_or_default();
        let before = self.known.remove(name).unwrap_or_default();
        let gone = before.keys().filter(|name| !now.contains_key(*name)).map(|name| (name.clone(), None));
        let new = now.iter().filter(|(name, value)| before.get(*name) != Some(*value));
        let changes = gone.chain(new.map(|(name, value)| (name.clone(), Some(value.clone())))).collect();
        if !now.is_empty() {
            self.known.insert(name.to_owned(), now);
        }
        changes
    }
}

impl Follow for Watching {
    /// Deletions that the watch missed are reported, too, so that nothing needs to be listed again.
    async fn next(&mut self) -> Option<Event> {
        loop {
            let changes = match self.seen.recv().await? {
                Seen::Applied(map) => self.changes(&map, values(&map)),
                Seen::Deleted(map) => self.changes(&map, BTreeMap::new()),
                Seen::Synced | Seen::Failing { .. } => continue,
            };
            if !changes.is_empty() {
                return Some(Event::Changed(changes));
            }
        }
    }
}

/// The values that a ConfigMap has.
fn values(map: &Value) -> BTreeMap<Name, Value> {
    let replica: Arc<str> = map["metadata"]["labels"][LABEL].as_str().unwrap_or_default().into();
    let (beats, counts) = (map["data"].get(BEATS), map["data"][COUNTS].as_str());
    let counts: Map<String, Value> = counts.and_then(|text| serde_json::from_str(text).ok()).unwrap_or_default();
    let beats = beats.map(|beats| (Arc::from(ALIVE), beats.clone()));
    let all = counts.into_iter().map(|(name, value)| (name.into(), value)).chain(beats);
    all.map(|(name, value)| ((replica.clone(), name), value)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_change_writes_the_page_of_its_object() {
        let mut pages = Pages::default();
        for number in 0..250 {
            pages.set(format!("o{number}").into(), Some(json!(number)));
        }
        assert_eq!(std::mem::take(&mut pages.unwritten), [0, 1, 2].into());
        pages.set("o120".into(), Some(json!(0)));
        assert_eq!(std::mem::take(&mut pages.unwritten), [1].into());
        pages.set("o7".into(), None);
        pages.set("o7".into(), None);
        pages.set("new".into(), Some(json!(1)));
        assert_eq!(std::mem::take(&mut pages.unwritten), [0].into());
        assert!(pages.text(0).contains(r#""new":1"#) && !pages.text(0).contains(r#""o7""#));
        pages.clear();
        pages.set("o1".into(), Some(json!(1)));
        assert_eq!((pages.text(0), pages.text(2)), (r#"{"o1":1}"#.to_owned(), "{}".to_owned()));
        assert_eq!(pages.unwritten, [0, 1, 2].into());
    }

    #[tokio::test]
    async fn changes_of_a_config_map_are_those_of_its_values() {
        let (sender, seen) = mpsc::channel(8);
        let mut watching = Watching { seen, known: BTreeMap::new(), _watch: JoinSet::new() };
        let map = |name: &str, data: Value| {
            Seen::Applied(json!({"metadata": {"name": name, "labels": {LABEL: "r"}}, "data": data}))
        };
        let sent = [
            map("beat", json!({BEATS: "1"})),
            map("page", json!({COUNTS: r#"{"a": 1, "b": 1}"#})),
            map("page", json!({COUNTS: r#"{"b": 1}"#})),
            map("page", json!({COUNTS: r#"{"b": 2, "c": 1}"#})),
            map("page", json!({COUNTS: "not JSON"})),
            Seen::Deleted(json!({"metadata": {"name": "beat"}})),
        ];
        for seen in sent {
            assert!(sender.send(seen).await.is_ok());
        }
        drop(sender);
        let mut found = Vec::new();
        while let Some(Event::Changed(changes)) = watching.next().await {
            let text = changes.iter().map(|((replica, name), value)| match value {
                Some(value) => format!("{replica}/{name}={value}"),
                None => format!("-{replica}/{name}"),
            });
            found.push(text.collect::<Vec<_>>().join(" "));
        }
        let wanted = ["r/alive=\"1\"", "r/a=1 r/b=1", "-r/a", "r/b=2 r/c=1", "-r/b -r/c", "-r/alive"];
        assert_eq!(found, wanted);
    }
}
