//! Warnings about references to objects that are not in the store.

use config::istio::references::{Following, Reference, Target, references};
use config::{AnyObject, Kind, ParseOptions, read_object};
use serde_json::Value;
use store::{Error, GroupResource, Key, Query, Stored};

use super::Call;

/// Maximum number of references of an object that are checked, and of objects that are searched for one of them.
const MAX_CHECKED: usize = 100;
const MAX_SEARCHED: usize = 1000;

const NETWORKING: &str = "networking.istio.io";

impl Call<'_> {
    /// The warnings of a write, and one for each reference that does not resolve. The store may change at once, so these
    /// are hints; what cannot be found out gives none. A write that leaves the `spec` as it was gives none either.
    pub(super) async fn with_references(
        &self,
        before: Option<&Value>,
        stored: &Stored,
        mut warnings: Vec<String>,
    ) -> Vec<String> {
        let refers = matches!(self.kind.mesh, Some(Kind::VirtualService | Kind::DestinationRule | Kind::Gateway));
        let value = stored.value();
        let same = before.is_some_and(|before| before["spec"] == value["spec"]);
        if !refers || same || self.target.subresource.is_some() {
            return warnings;
        }
        let Some(object) = read_object(&value, &admitted()).object else { return warnings };
        let mut following = Following::default();
        for reference in references(&object, &self.api.0.options.domain).into_iter().take(MAX_CHECKED) {
            if !following.needs(&reference.target) {
                continue;
            }
            let missing = !self.resolves(&object, &reference).await.unwrap_or(true);
            following.answer(&reference.target, missing);
            if missing {
                let found = reference.missing(object.key());
                let hint = found.hint.map(|hint| format!(" ({hint})")).unwrap_or_default();
                warnings.push(format!("{}: {}{hint}", found.path, found.message));
            }
        }
        warnings
    }

    async fn resolves(&self, object: &AnyObject, reference: &Reference) -> Result<bool, Error> {
        let target = &reference.target;
        match target {
            Target::Gateway { namespace, name } => self.is_stored(NETWORKING, "gateways", namespace, name).await,
            Target::Delegate { namespace, name } => {
                self.is_stored(NETWORKING, "virtualservices", namespace, name).await
            }
            // Other schemes name ConfigMaps, Secrets of other namespaces, or what the agent provides.
            Target::Credential { name, .. } if name.contains("://") => Ok(true),
            // The proxies of a Gateway may be in another namespace.
            Target::Credential { name, .. } => {
                Ok(self.is_stored("", "secrets", &object.meta().namespace, name).await?
                    || self.any("", "secrets", target).await?)
            }
            Target::Subset { .. } => self.any(NETWORKING, "destinationrules", target).await,
            Target::Host { .. } | Target::Port { .. } => {
                if let Some((namespace, name)) = target.service()
                    && let Some(service) = self.stored("", "services", namespace, name).await?
                    && self.defines(&service, target)
                {
                    return Ok(true);
                }
                self.any(NETWORKING, "serviceentries", target).await
            }
        }
    }

    async fn stored(
        &self,
        group: &'static str,
        plural: &'static str,
        namespace: &str,
        name: &str,
    ) -> Result<Option<Stored>, Error> {
        self.api.0.store.get(&Key::new(GroupResource::new(group, plural), namespace, name)).await
    }

    async fn is_stored(
        &self,
        group: &'static str,
        plural: &'static str,
        namespace: &str,
        name: &str,
    ) -> Result<bool, Error> {
        Ok(self.stored(group, plural, namespace, name).await?.is_some())
    }

    /// Whether an object defines the target, or there are so many that it is not searched for.
    async fn any(&self, group: &'static str, plural: &'static str, target: &Target) -> Result<bool, Error> {
        let query = Query { limit: MAX_SEARCHED, ..Query::of(GroupResource::new(group, plural)) };
        let list = self.api.0.store.list(&query).await?;
        Ok(list.next.is_some() || list.items.iter().any(|stored| self.defines(stored, target)))
    }

    fn defines(&self, stored: &Stored, target: &Target) -> bool {
        let object = read_object(&stored.value(), &admitted()).object;
        object.is_some_and(|object| target.is_defined_by(&object, &self.api.0.options.domain))
    }
}

/// Options for objects that were admitted.
fn admitted() -> ParseOptions {
    ParseOptions { admitted: true, ..ParseOptions::default() }
}
