//! The objects of a step as written in the file.

use anyhow::{Context, Result};
use config::{Kind, ObjectKey, Timestamp};
use serde_json::Value;

/// One object as text and as JSON.
#[derive(Clone, Debug)]
pub struct Document {
    /// Its key, with the cluster.
    pub key: ObjectKey,
    /// The text.
    pub text: String,
    /// The parsed text.
    pub json: Value,
}

impl Document {
    /// The documents of a step for this cluster.
    ///
    /// # Errors
    /// A text that is not YAML, or a kind that the mesh does not read.
    pub fn read(yaml: &str, cluster: &str) -> Result<Vec<Document>> {
        let lines: Vec<&str> = yaml.lines().collect();
        let texts = lines.split(|line| line.trim_end() == "---").map(|lines| lines.join("\n"));
        texts.filter(|text| !text.trim().is_empty()).map(|text| Document::parse(text, cluster)).collect()
    }

    fn parse(text: String, cluster: &str) -> Result<Document> {
        let json: Value = serde_saphyr::from_str(&text).with_context(|| text.clone())?;
        let word = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let (version, kind) = (word(&json["apiVersion"]), word(&json["kind"]));
        let group = version.split_once('/').map_or("", |(group, _)| group);
        let kind = Kind::find(group, &kind).with_context(|| format!("no kind {kind} of {version}"))?;
        let namespace = match (kind.is_namespaced(), word(&json["metadata"]["namespace"])) {
            (false, _) => String::new(),
            (true, given) if given.is_empty() => "default".to_owned(),
            (true, given) => given,
        };
        let key = ObjectKey::new(kind, namespace, word(&json["metadata"]["name"])).in_cluster(cluster);
        Ok(Document { key, text, json })
    }

    /// The creation time in the file.
    pub fn age(&self) -> Option<Timestamp> {
        Timestamp::parse(self.json["metadata"]["creationTimestamp"].as_str()?)
    }
}
