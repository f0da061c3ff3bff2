//! Cluster-local services, whose clients use endpoints of their own cluster only: those of Kubernetes and of the
//! control plane by default, and those in `serviceSettings` of the mesh.

use std::net::IpAddr;

use names::Hostname;

use crate::inputs::MeshSettings;

/// Whether a host is cluster-local. The most specific of all patterns wins.
pub fn holds(mesh: &MeshSettings, host: &Hostname) -> bool {
    let written = mesh.config.service_settings.iter().flat_map(|group| {
        let local = group.settings.as_ref().is_some_and(|s| s.cluster_local);
        group.hosts.iter().map(move |pattern| (pattern.to_string(), local))
    });
    let defaults = defaults(mesh).into_iter().filter(|pattern| !overridden(mesh, pattern));
    let all = written.chain(defaults.map(|pattern| (pattern, true)));
    let of_host = all.filter(|(pattern, _)| matches(pattern, host.as_str()));
    of_host.max_by_key(|(pattern, _)| specificity(pattern)).is_some_and(|(_, local)| local)
}

/// The services that are cluster-local by default.
fn defaults(mesh: &MeshSettings) -> Vec<String> {
    let domain = &mesh.domain;
    let mut all = vec![format!("*.kube-system.svc.{domain}"), format!("kubernetes.default.svc.{domain}")];
    let discovery = &mesh.config.default_config.discovery_address;
    let host = discovery.rsplit_once(':').map_or(&**discovery, |(host, _)| host);
    if host.ends_with(".svc") {
        all.push(format!("{host}.{domain}"));
    } else if !host.is_empty() && host.parse::<IpAddr>().is_err() {
        all.push(host.to_owned());
    }
    all
}

/// Whether a group that is not cluster-local overrides a default.
fn overridden(mesh: &MeshSettings, default: &str) -> bool {
    let groups = mesh.config.service_settings.iter();
    let open = groups.filter(|group| !group.settings.as_ref().is_some_and(|s| s.cluster_local));
    let mut hosts = open.flat_map(|group| &group.hosts);
    hosts.any(|host| **host == *default)
}

fn matches(pattern: &str, host: &str) -> bool {
    match pattern.strip_prefix('*') {
        Some(suffix) => host.ends_with(suffix) && host.len() > suffix.len(),
        None => pattern == host,
    }
}

/// Orders exact names before wildcards and longer names before shorter ones.
fn specificity(pattern: &str) -> (bool, usize) {
    (!pattern.starts_with('*'), pattern.len())
}

#[cfg(test)]
mod tests {
    use config::MeshConfig;
    use config::mesh::{ServiceSettings, ServiceSettingsValues};

    use super::*;

    fn mesh(groups: &[(bool, &str)]) -> MeshSettings {
        let group = |(local, host): &(bool, &str)| ServiceSettings {
            settings: Some(ServiceSettingsValues { cluster_local: *local }),
            hosts: vec![(*host).into()],
        };
        MeshSettings {
            config: MeshConfig { service_settings: groups.iter().map(group).collect(), ..MeshConfig::default() },
            cluster_id: "home".into(),
            ..MeshSettings::default()
        }
    }

    fn local(groups: &[(bool, &str)], host: &str) -> bool {
        holds(&mesh(groups), &Hostname::parse(host).unwrap())
    }

    #[test]
    fn kubernetes_own_services_stay_in_their_cluster() {
        assert!(local(&[], "kube-dns.kube-system.svc.cluster.local"));
        assert!(local(&[], "kubernetes.default.svc.cluster.local"));
        assert!(local(&[], "istiod.istio-system.svc.cluster.local"));
        assert!(!local(&[], "web.default.svc.cluster.local"));
    }

    #[test]
    fn the_most_specific_setting_decides() {
        let shop = "*.shop.svc.cluster.local";
        let web = "web.shop.svc.cluster.local";
        assert!(local(&[(true, shop)], web));
        assert!(!local(&[(true, shop), (false, web)], web));
        assert!(local(&[(false, shop), (true, web)], web));
        assert!(!local(&[(false, "*.kube-system.svc.cluster.local")], "kube-dns.kube-system.svc.cluster.local"));
        assert!(!local(&[(false, "kube-dns.kube-system.svc.cluster.local")], "kube-dns.kube-system.svc.cluster.local"));
        assert!(local(&[(false, "*")], "kubernetes.default.svc.cluster.local"));
    }
}
