//! Finds names in a name table.
//!
//! Every name stands for the forms that applications use: in the namespace `shop` with the search domain
//! `shop.svc.cluster.local`, the service `cart.shop.svc.cluster.local` is also found as `cart`, `cart.shop` and `cart.shop.svc`.
//! Any name with the first search domain appended is found, too, as a CNAME of the name without it: most clients try this form
//! first, and need no queries for the other search domains then.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::Arc;

use protos::istio::networking::nds::v1::NameTable;
use protos::istio::networking::nds::v1::name_table::NameInfo;

use crate::settings::Settings;

/// The registry of Kubernetes services, the only ones with short names.
const KUBERNETES: &str = "Kubernetes";

/// A name table with the rules by which names are found in it.
#[derive(Debug)]
pub struct Table {
    names: Arc<NameTable>,
    namespace: String,
    domain: String,
    search: Option<String>,
    /// Names that the rules do not find, with their keys in the table: those in upper case, or with unusual short forms.
    irregular: HashMap<String, String>,
}

/// The answer for a name.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Found<'a> {
    /// The name of which the requested name is a CNAME, if it is one.
    pub canonical: Option<&'a str>,
    /// The addresses of both families, at least one.
    pub addresses: Vec<IpAddr>,
}

impl Table {
    /// Prepares a name table.
    #[must_use]
    pub fn new(names: Arc<NameTable>, settings: &Settings) -> Table {
        let mut irregular = HashMap::new();
        for (host, info) in &names.table {
            let name = host.trim_end_matches('.').to_ascii_lowercase();
            let mut add = |name: String| {
                if !names.table.contains_key(&name) {
                    irregular.insert(name.to_ascii_lowercase(), host.clone());
                }
            };
            if has_short_names(host, info, &settings.domain) {
                let NameInfo { shortname, namespace, .. } = info;
                if !is_regular(host, info, &settings.domain) {
                    let label = settings.domain.split('.').next().unwrap_or_default();
                    add(format!("{shortname}.{namespace}"));
                    add(format!("{shortname}.{namespace}.{label}"));
                    if *namespace == settings.namespace {
                        add(shortname.clone());
                    }
                }
                #[allow(deprecated)]
                info.alt_hosts.iter().for_each(|name| add(name.clone()));
            }
            if name != *host {
                add(name);
            }
        }
        let Settings { namespace, domain, resolv, .. } = settings;
        Table { names, namespace: namespace.clone(), domain: domain.clone(), search: resolv.search.clone(), irregular }
    }

    /// Finds a name, which is in lower case and has no trailing dot. None if the table has no address of either family for it.
    #[must_use]
    pub fn find<'a>(&self, name: &'a str) -> Option<Found<'a>> {
        let (canonical, info) = self.entry(name)?;
        let addresses: Vec<IpAddr> = info.ips.iter().filter_map(|ip| ip.parse().ok()).collect();
        (!addresses.is_empty()).then_some(Found { canonical, addresses })
    }

    fn entry<'a>(&self, name: &'a str) -> Option<(Option<&'a str>, &NameInfo)> {
        if let Some(info) = self.host(name) {
            return Some((None, info));
        }
        let canonical = self.without_search(name);
        if let Some(info) = canonical.and_then(|name| self.host(name)) {
            return Some((canonical, info));
        }
        // Wildcards, the longest first.
        let mut rest = name;
        while let Some((_, parent)) = rest.split_once('.') {
            if let Some(info) = self.without_search(parent).and_then(|parent| self.wildcard(parent)) {
                return Some((canonical, info));
            }
            if let Some(info) = self.wildcard(parent) {
                return Some((None, info));
            }
            rest = parent;
        }
        None
    }

    /// A name without the search domain, unless it then still ends with the search domain.
    fn without_search<'a>(&self, name: &'a str) -> Option<&'a str> {
        let search = self.search.as_deref()?;
        let name = name.strip_suffix(search)?.strip_suffix('.')?;
        (!name.ends_with(search)).then_some(name)
    }

    fn wildcard(&self, parent: &str) -> Option<&NameInfo> {
        self.get(&format!("*.{parent}"))
    }

    fn get(&self, name: &str) -> Option<&NameInfo> {
        self.names.table.get(name).or_else(|| self.names.table.get(self.irregular.get(name)?))
    }

    /// The host of a name or of a short name.
    fn host(&self, name: &str) -> Option<&NameInfo> {
        if let Some(info) = self.get(name) {
            return Some(info);
        }
        if self.domain.is_empty() {
            return None;
        }
        let Table { namespace, domain, .. } = self;
        let (label, _) = domain.split_once('.').unwrap_or((domain, ""));
        let short = |full: String, qualified: &str| {
            let info = self.names.table.get(&full)?;
            let regular = has_short_names(&full, info, domain) && is_regular(&full, info, domain);
            let named = qualified.strip_prefix(&*info.shortname)?.strip_prefix('.')? == info.namespace;
            (regular && named).then_some(info)
        };
        let with_label = name.strip_suffix(label).and_then(|name| name.strip_suffix('.'));
        let own = format!("{name}.{namespace}");
        short(format!("{name}.{domain}"), name)
            .or_else(|| short(format!("{own}.{domain}"), &own))
            .or_else(|| with_label.and_then(|name| short(format!("{name}.{domain}"), name)))
    }
}

fn has_short_names(host: &str, info: &NameInfo, domain: &str) -> bool {
    info.registry == KUBERNETES && !domain.is_empty() && host.ends_with(domain)
}

/// Whether a host is `SHORTNAME.NAMESPACE.DOMAIN`.
fn is_regular(host: &str, info: &NameInfo, domain: &str) -> bool {
    let rest = host.strip_prefix(&*info.shortname).and_then(|rest| rest.strip_prefix('.'));
    let rest = rest.and_then(|rest| rest.strip_prefix(&*info.namespace)).and_then(|rest| rest.strip_prefix('.'));
    rest == Some(domain)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::tests::values::{entry, names, settings};

    fn table() -> Table {
        let mut kubernetes_elsewhere = entry("9.9.9.9", "Kubernetes");
        (kubernetes_elsewhere.shortname, kubernetes_elsewhere.namespace) = ("cart".into(), "shop".into());
        let mut unusual = entry("7.7.7.7", "Kubernetes");
        (unusual.shortname, unusual.namespace) = ("odd".into(), "shop".into());
        let table = names([
            ("cart.shop.svc.cluster.local", "1.1.1.1"),
            ("mail.post.svc.cluster.local", "2.2.2.2,fd00::2"),
            ("db-0.db.shop.svc.cluster.local", "3.3.3.3"),
            ("www.example.com", "4.4.4.4"),
            ("*.wild.example", "5.5.5.5"),
            ("*.deep.wild.example", "5.5.5.6"),
            ("Upper.Example", "6.6.6.6"),
            ("dot.example.", "6.6.6.7"),
            ("broken.example", "not an address"),
        ])
        .table
        .into_iter()
        .chain([
            ("cart.shop.svc.clusterset.local".to_owned(), kubernetes_elsewhere),
            ("x.y.svc.cluster.local".to_owned(), unusual),
        ])
        .collect();
        Table::new(Arc::new(NameTable { table }), &settings())
    }

    #[test]
    fn names_are_found_in_all_forms() {
        let table = table();
        for (name, address, canonical) in [
            ("cart.shop.svc.cluster.local", "1.1.1.1", None),
            ("cart", "1.1.1.1", None),
            ("cart.shop", "1.1.1.1", None),
            ("cart.shop.svc", "1.1.1.1", None),
            ("cart.shop.svc.cluster", "", None),
            ("cart.shop.svc.clusterset.local", "9.9.9.9", None),
            ("cart.shop.shop.svc.cluster.local", "1.1.1.1", Some("cart.shop")),
            ("cart.shop.svc.shop.svc.cluster.local", "1.1.1.1", Some("cart.shop.svc")),
            ("cart.shop.svc.cluster.local.shop.svc.cluster.local", "", None),
            ("mail.post.svc.cluster.local", "2.2.2.2", None),
            ("mail", "", None),
            ("mail.post", "2.2.2.2", None),
            ("mail.post.svc.cluster.local.shop.svc.cluster.local", "2.2.2.2", Some("mail.post.svc.cluster.local")),
            ("db-0.db", "3.3.3.3", None),
            ("db-0.db.shop", "3.3.3.3", None),
            ("www.example.com", "4.4.4.4", None),
            ("www.example.com.shop.svc.cluster.local", "4.4.4.4", Some("www.example.com")),
            ("www.example.com.svc.cluster.local", "", None),
            ("example.com", "", None),
            ("a.wild.example", "5.5.5.5", None),
            ("b.a.wild.example", "5.5.5.5", None),
            ("wild.example", "", None),
            ("a.deep.wild.example", "5.5.5.6", None),
            ("a.wild.example.shop.svc.cluster.local", "5.5.5.5", Some("a.wild.example")),
            ("*.wild.example", "5.5.5.5", None),
            ("upper.example", "6.6.6.6", None),
            ("dot.example", "6.6.6.7", None),
            ("broken.example", "", None),
            ("odd", "7.7.7.7", None),
            ("odd.shop.svc", "7.7.7.7", None),
            ("x.y", "", None),
            ("", "", None),
        ] {
            let found = table.find(name);
            let shown = found.as_ref().map_or(String::new(), |found| found.addresses[0].to_string());
            assert_eq!((&*shown, found.and_then(|found| found.canonical)), (address, canonical), "{name}");
        }
    }

    #[test]
    fn a_regular_table_needs_no_index() {
        let many =
            (0..10_000).map(|i| (format!("s{i}.shop.svc.cluster.local"), format!("10.0.{}.{}", i / 250, i % 250 + 1)));
        let many = names(many.collect::<Vec<_>>().iter().map(|(name, ip)| (&**name, &**ip)));
        let table = Table::new(Arc::new(many), &settings());
        assert_eq!(table.irregular.capacity(), 0);
        assert_eq!(table.find("s9999").unwrap().addresses[0].to_string(), "10.0.39.250");
    }

    proptest! {
        #[test]
        fn any_name_is_looked_up(name in "(cart|shop|svc|cluster|local|wild|example|\\*|[a-z.]{0,3})(\\.(cart|shop|svc|cluster|local|wild|example)){0,8}\\.?") {
            let table = table();
            if let Some(found) = table.find(&name) {
                prop_assert!(!found.addresses.is_empty());
                let expanded = found.canonical.is_none_or(|canonical| name == format!("{canonical}.shop.svc.cluster.local"));
                prop_assert!(expanded);
            }
        }
    }
}
