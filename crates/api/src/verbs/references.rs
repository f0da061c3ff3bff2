//! Warnings about references to objects that are not in the store.

use admission::{Host, Target, references};
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
        let refers = matches!(self.kind.mesh, Some(Kind::VirtualService | Kind::Gateway));
        let value = stored.value();
        let same = before.is_some_and(|before| before["spec"] == value["spec"]);
        if !refers || same || self.target.subresource.is_some() {
            return warnings;
        }
        let options = ParseOptions { admitted: true, ..ParseOptions::default() };
        let Some(object) = read_object(&value, &options).object else { return warnings };
        let mut host_is_missing = false;
        for reference in references(&object).into_iter().take(MAX_CHECKED) {
            let subset = matches!(&reference.target, Target::Host(host) if !host.subset.is_empty());
            // A subset follows its host. One warning is enough.
            if subset && host_is_missing {
                continue;
            }
            let missing = !self.resolves(&object, &reference.target).await.unwrap_or(true);
            host_is_missing = missing && matches!(reference.target, Target::Host(_));
            if missing {
                let found = reference.unresolved(object.key());
                let hint = found.hint.map(|hint| format!(" ({hint})")).unwrap_or_default();
                warnings.push(format!("{}: {}{hint}", found.path, found.message));
            }
        }
        warnings
    }

    async fn resolves(&self, object: &AnyObject, target: &Target) -> Result<bool, Error> {
        match target {
            Target::Gateway { namespace, name } => self.is_stored(NETWORKING, "gateways", namespace, name).await,
            Target::VirtualService { namespace, name } => {
                self.is_stored(NETWORKING, "virtualservices", namespace, name).await
            }
            // The proxies of a Gateway may be in another namespace.
            Target::Secret { name } => {
                let is_it = |found: &AnyObject| *found.meta().name == **name;
                Ok(self.is_stored("", "secrets", &object.meta().namespace, name).await?
                    || self.any("", "secrets", is_it).await?)
            }
            Target::Host(host) if !host.subset.is_empty() => {
                self.any(NETWORKING, "destinationrules", |found| defines(found, host)).await
            }
            Target::Host(host) => {
                if let Some((namespace, name)) = host.service()
                    && self.is_stored("", "services", namespace, name).await?
                {
                    return Ok(true);
                }
                self.any(NETWORKING, "serviceentries", |found| serves(found, host)).await
            }
        }
    }

    async fn is_stored(
        &self,
        group: &'static str,
        plural: &'static str,
        namespace: &str,
        name: &str,
    ) -> Result<bool, Error> {
        let key = Key::new(GroupResource::new(group, plural), namespace, name);
        Ok(self.api.0.store.get(&key).await?.is_some())
    }

    /// Whether there is an object like this, or so many that it is not searched for.
    async fn any(
        &self,
        group: &'static str,
        plural: &'static str,
        is_it: impl Fn(&AnyObject) -> bool,
    ) -> Result<bool, Error> {
        let query = Query { limit: MAX_SEARCHED, ..Query::of(GroupResource::new(group, plural)) };
        let list = self.api.0.store.list(&query).await?;
        let options = ParseOptions { admitted: true, ..ParseOptions::default() };
        let read = |stored: &Stored| read_object(&stored.value(), &options).object;
        Ok(list.next.is_some() || list.items.iter().filter_map(read).any(|object| is_it(&object)))
    }
}

fn defines(object: &AnyObject, host: &Host) -> bool {
    let AnyObject::DestinationRule(rule) = object else { return false };
    host.is_covered_by(&rule.spec.host, &rule.meta.namespace)
        && rule.spec.subsets.iter().any(|subset| subset.name == host.subset)
}

fn serves(object: &AnyObject, host: &Host) -> bool {
    let AnyObject::ServiceEntry(entry) = object else { return false };
    entry.spec.hosts.iter().any(|own| host.is_covered_by(own, &entry.meta.namespace))
}
