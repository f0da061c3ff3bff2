//! The cloud platform of a proxy.

use std::collections::BTreeMap;

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
            let url = format!(
                "https://container.googleapis.com/v1/projects/{project}/locations/{location}/clusters/{cluster}"
            );
            for (key, value) in [
                ("gcp_project", project),
                ("gcp_project_number", number),
                ("gcp_gke_cluster_name", cluster),
                ("gcp_location", location),
                ("gcp_gke_cluster_url", &url),
            ] {
                metadata.insert(key.to_owned(), value.to_owned());
            }
        }
        for (variable, key) in [("GCP_QUOTA_PROJECT", "gcp_quota_project"), ("GCP_ZONE", "gcp_zone")] {
            if let Some(value) = text(variables, variable) {
                metadata.insert(key.to_owned(), value.to_owned());
            }
        }
        let locality = text(variables, "GCP_ZONE").and_then(zone_locality).unwrap_or_default();
        Some(Platform { metadata, locality })
    }
}

/// The locality of a zone `COUNTRY-REGION-ZONE`.
fn zone_locality(zone: &str) -> Option<Locality> {
    let parts: Vec<&str> = zone.split('-').collect();
    let [country, region, letter] = parts[..] else { return None };
    let valid = [country, region, letter].iter().all(|part| !part.is_empty());
    valid.then(|| Locality { region: format!("{country}-{region}"), zone: zone.to_owned(), sub_zone: String::new() })
}
