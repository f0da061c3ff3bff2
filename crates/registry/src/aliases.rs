//! Services that are aliases of other services (`ExternalName`).
//!
//! An alias has no endpoints, clusters or listeners. Clients that call it reach its target by the target's routes. An
//! alias of a host outside the mesh is ignored: calls to it have an unknown destination.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use flow::Reads;
use model::service::{Service, ServiceKey};
use names::Hostname;

use crate::services::Services;

flow::index! {
    /// Services that are aliases. Most meshes have few or none.
    pub AliasServices: () => members of Services = "alias services", alias_services_keys;
}

fn alias_services_keys(_: &ServiceKey, row: &Arc<Service>) -> Vec<()> {
    row.alias_of.iter().map(|_| ()).collect()
}

flow::rule! {
    /// All aliases of the mesh.
    pub Aliases: () => Arc<AliasTable> = "aliases", derive_aliases;
}

fn derive_aliases(cx: &Reads<'_>, (): &()) -> Option<Arc<AliasTable>> {
    let services = cx.get::<AliasServices>(&())?;
    let named = |key: &ServiceKey| {
        let target = cx.with::<Services, _>(key, |service| service?.alias_of.clone())?;
        Some((key.hostname.clone(), target))
    };
    Some(Arc::new(AliasTable::new(services.iter().filter_map(named).collect())))
}

/// The targets of aliases.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct AliasTable {
    /// The final target of each alias, which is not an alias itself.
    targets: BTreeMap<Hostname, Hostname>,
    /// The aliases of each hostname, ascending.
    aliases: BTreeMap<Hostname, Vec<Hostname>>,
}

impl AliasTable {
    /// Whether there are no aliases.
    pub fn is_empty(&self) -> bool {
        self.targets.is_empty()
    }

    /// Follows aliases of aliases. Aliases in a cycle have no target, as in DNS.
    fn new(named: BTreeMap<Hostname, Hostname>) -> AliasTable {
        let mut table = AliasTable::default();
        for (alias, first) in &named {
            let mut seen = BTreeSet::from([alias]);
            let mut target = first;
            while let Some(next) = named.get(target)
                && seen.insert(target)
            {
                target = next;
            }
            if !named.contains_key(target) {
                table.targets.insert(alias.clone(), target.clone());
                table.aliases.entry(target.clone()).or_default().push(alias.clone());
            }
        }
        table
    }

    /// The target of an alias; none if the host is not an alias.
    pub fn target(&self, alias: &Hostname) -> Option<&Hostname> {
        self.targets.get(alias)
    }

    /// The aliases of a host, ascending.
    pub fn of(&self, target: &Hostname) -> &[Hostname] {
        self.aliases.get(target).map_or(&[], |aliases| aliases)
    }
}

/// The aliases of the mesh; an empty table if there are none.
pub fn aliases(cx: &Reads<'_>) -> Arc<AliasTable> {
    cx.get::<Aliases>(&()).map(|row| (*row).clone()).unwrap_or_default()
}

/// Adds this module's rules; the rules of services must be registered before.
pub(crate) fn register(b: &mut flow::Builder) {
    b.index::<AliasServices>();
    b.view::<Aliases>();
}

#[cfg(test)]
mod tests {
    use super::*;

    fn table(named: &[(&str, &str)]) -> AliasTable {
        let host = |text: &str| Hostname::parse(text).expect("a hostname");
        AliasTable::new(named.iter().map(|(a, b)| (host(a), host(b))).collect())
    }

    fn target<'t>(table: &'t AliasTable, alias: &str) -> Option<&'t str> {
        table.target(&Hostname::parse(alias).expect("a hostname")).map(Hostname::as_str)
    }

    #[test]
    fn aliases_of_aliases_are_followed_and_circles_stand_for_nothing() {
        let all = table(&[("a", "b"), ("b", "c"), ("x", "c"), ("p", "q"), ("q", "p"), ("in", "p"), ("me", "me")]);
        let of_c: Vec<&str> = all.of(&Hostname::parse("c").expect("a hostname")).iter().map(Hostname::as_str).collect();
        assert_eq!(of_c, ["a", "b", "x"]);
        assert_eq!([target(&all, "a"), target(&all, "b"), target(&all, "c")], [Some("c"), Some("c"), None]);
        assert_eq!(["p", "q", "in", "me"].map(|host| target(&all, host)), [None; 4]);
    }
}
