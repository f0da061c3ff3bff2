//! The cloud platform of a proxy.

use std::collections::BTreeMap;

use serde_json::Value;

use super::{Locality, Texts};
use crate::options::{Variables, text};

/// The facts that the platform reports; none on an unknown one.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Platform {
    /// Facts by name, such as `gcp_project`, reported as `PLATFORM_METADATA`.
    pub metadata: BTreeMap<String, String>,
    /// The locality, used if the labels have none.
    pub locality: Locality,
}

impl Platform {
    /// The platform that variables describe without a metadata server: `GCP_METADATA`, as
    /// `PROJECT|PROJECT_NUMBER|CLUSTER|LOCATION`, with `GCP_ZONE` and `GCP_QUOTA_PROJECT`.
    #[must_use]
    pub fn from_variables(variables: &Variables) -> Option<Platform> {
        let given = text(variables, "GCP_METADATA")?;
        let mut metadata = Texts::new();
        if let [project, number, cluster, location] = given.split('|').collect::<Vec<_>>()[..] {
            for (key, value) in [
                ("gcp_project", project),
                ("gcp_project_number", number),
                ("gcp_gke_cluster_name", cluster),
                ("gcp_location", location),
            ] {
                metadata.insert(key.to_owned(), value.to_owned());
            }
        }
        for (variable, key) in [("GCP_QUOTA_PROJECT", "gcp_quota_project"), ("GCP_ZONE", "gcp_zone")] {
            if let Some(value) = text(variables, variable) {
                metadata.insert(key.to_owned(), value.to_owned());
            }
        }
        Some(Platform::google(metadata, text(variables, "GCP_ZONE").unwrap_or_default()))
    }

    /// An instance of Google Cloud with these facts. `zone` is `COUNTRY-REGION-ZONE`; empty if it is not known.
    #[must_use]
    pub fn google(mut metadata: BTreeMap<String, String>, zone: &str) -> Platform {
        let fact = |key: &str| metadata.get(key);
        if let (Some(project), Some(location), Some(cluster)) =
            (fact("gcp_project"), fact("gcp_location"), fact("gcp_gke_cluster_name"))
        {
            let url = format!(
                "https://container.googleapis.com/v1/projects/{project}/locations/{location}/clusters/{cluster}"
            );
            metadata.insert("gcp_gke_cluster_url".to_owned(), url);
        }
        Platform { metadata, locality: zone_locality(zone).unwrap_or_default() }
    }

    /// An instance of Amazon EC2. Facts that are not known are empty.
    #[must_use]
    pub fn amazon(region: &str, zone: &str, instance: &str) -> Platform {
        let facts = [("aws_region", region), ("aws_availability_zone", zone), ("aws_instance_id", instance)];
        let known = facts.into_iter().filter(|(_, value)| !value.is_empty());
        Platform {
            metadata: known.map(|(key, value)| (key.to_owned(), value.to_owned())).collect(),
            locality: Locality { region: region.to_owned(), zone: zone.to_owned(), sub_zone: String::new() },
        }
    }

    /// A virtual machine of Azure, from the document of its metadata server (`/metadata/instance`). Fields of another type
    /// than expected are not known.
    #[must_use]
    pub fn azure(document: &Value) -> Platform {
        let compute = &document["compute"];
        let fact = |key: &str| compute[key].as_str().unwrap_or_default();
        let fields = ["name", "location", "vmId"].map(|key| (key, fact(key)));
        let mut facts: Vec<(&str, &str)> = fields.into_iter().filter(|(_, value)| !value.is_empty()).collect();
        match compute["tagsList"].as_array() {
            Some(tags) => facts.extend(
                tags.iter()
                    .map(|tag| (tag["name"].as_str().unwrap_or_default(), tag["value"].as_str().unwrap_or_default())),
            ),
            // An older server has them as one text.
            None => facts.extend(fact("tags").split(';').map(|tag| tag.split_once(':').unwrap_or((tag, "")))),
        }
        let named = facts.into_iter().filter(|(key, _)| !key.is_empty());
        Platform {
            metadata: named.map(|(key, value)| (format!("azure_{key}"), value.to_owned())).collect(),
            locality: Locality {
                region: fact("location").to_owned(),
                zone: fact("zone").to_owned(),
                sub_zone: String::new(),
            },
        }
    }
}

/// The locality of a zone `COUNTRY-REGION-ZONE`.
fn zone_locality(zone: &str) -> Option<Locality> {
    let parts: Vec<&str> = zone.split('-').collect();
    let [country, region, letter] = parts[..] else { return None };
    let valid = [country, region, letter].iter().all(|part| !part.is_empty());
    valid.then(|| Locality { region: format!("{country}-{region}"), zone: zone.to_owned(), sub_zone: String::new() })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;

    fn shown(platform: &Platform) -> (String, String) {
        let facts: Vec<String> = platform.metadata.iter().map(|(key, value)| format!("{key}={value}")).collect();
        let Locality { region, zone, .. } = &platform.locality;
        (facts.join(" "), format!("{region}/{zone}"))
    }

    #[test]
    fn an_azure_machine() {
        let compute = json!({
            "name": "vm-1", "location": "westeurope", "zone": "2", "vmId": "02aab8a4", "tags": "ignored:yes",
            "tagsList": [{"name": "team", "value": "a:b"}, {"name": "bare"}, {"value": "without a name"}, 3],
        });
        let (facts, locality) = shown(&Platform::azure(&json!({ "compute": compute })));
        assert_eq!(facts, "azure_bare= azure_location=westeurope azure_name=vm-1 azure_team=a:b azure_vmId=02aab8a4");
        assert_eq!(locality, "westeurope/2");
        let older = json!({"compute": {"name": 5, "tags": "team:a:b;bare"}});
        assert_eq!(shown(&Platform::azure(&older)), ("azure_bare= azure_team=a:b".into(), "/".into()));
    }

    #[test]
    fn an_amazon_instance() {
        let (facts, locality) = shown(&Platform::amazon("eu-west-1", "eu-west-1b", ""));
        assert_eq!(facts, "aws_availability_zone=eu-west-1b aws_region=eu-west-1");
        assert_eq!(locality, "eu-west-1/eu-west-1b");
    }

    proptest! {
        #[test]
        fn any_document_is_read(text in r#"(\{"compute":)?[\[\]{}:,"a-z0-9 ]{0,40}\}?"#) {
            if let Ok(document) = serde_json::from_str(&text) {
                let named = |key: &String| key.len() > "azure_".len() && key.starts_with("azure_");
                prop_assert!(Platform::azure(&document).metadata.keys().all(named));
            }
        }
    }
}
