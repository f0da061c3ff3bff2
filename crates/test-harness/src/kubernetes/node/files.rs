//! The configuration files of a node's programs.

use std::net::Ipv4Addr;
use std::path::Path;

use serde_json::{Value, json};

use super::super::machine::plugins;
use super::super::network::Network;
use crate::run::Result;

/// Writes the files into the cluster's directory.
pub(super) fn write(dir: &Path, network: Network, name: &str, snapshotter: &str, dns: Option<Ipv4Addr>) -> Result<()> {
    std::fs::create_dir_all(dir.join(NETWORK))?;
    link_plugins(&dir.join(PLUGINS))?;
    let files = [
        ("containerd.toml", containerd(dir, snapshotter)),
        ("cni/pods.conflist", pods(network).to_string()),
        ("kubelet.yaml", kubelet(dir, network, dns).to_string()),
        ("kube-proxy.yaml", kube_proxy(dir, network, name).to_string()),
        ("resolv.conf", String::new()),
    ];
    for (file, text) in files {
        std::fs::write(dir.join(file), text)?;
    }
    Ok(())
}

/// The directories of the CNI configuration and of its plugins, in the cluster's directory.
pub(super) const NETWORK: &str = "cni";
pub(super) const PLUGINS: &str = "cni-plugins";

/// Links the machine's plugins into a directory, to which tests may add others.
fn link_plugins(dir: &Path) -> Result<()> {
    let plugins = plugins().ok_or("the plugins of the network are not installed")?;
    std::fs::create_dir_all(dir)?;
    for plugin in std::fs::read_dir(plugins)? {
        let plugin = plugin?;
        std::os::unix::fs::symlink(plugin.path(), dir.join(plugin.file_name()))?;
    }
    Ok(())
}

fn containerd(dir: &Path, snapshotter: &str) -> String {
    let dir = dir.display();
    let cri = "io.containerd.grpc.v1.cri";
    format!(
        "\
version = 2
root = \"{dir}/containerd\"
state = \"/run/containerd\"
[plugins.\"{cri}\"]
sandbox_image = \"{PAUSE}\"
# A container may not lower its score where this process may not.
restrict_oom_score_adj = true
disable_apparmor = true
[plugins.\"{cri}\".containerd]
snapshotter = \"{snapshotter}\"
[plugins.\"{cri}\".containerd.runtimes.runc]
runtime_type = \"io.containerd.runc.v2\"
[plugins.\"{cri}\".containerd.runtimes.runc.options]
SystemdCgroup = false
[plugins.\"{cri}\".cni]
bin_dir = \"{dir}/{PLUGINS}\"
conf_dir = \"{dir}/{NETWORK}\"
"
    )
}

/// The image of the container that holds a pod's namespaces.
pub(super) const PAUSE: &str = "localhost/pause:1";

/// The CNI configuration: one routed link per pod. With a common bridge, replies between pods would bypass the
/// translation of Service addresses if the kernel does not pass bridged packets to nftables.
fn pods(network: Network) -> Value {
    json!({
        "cniVersion": "0.4.0",
        "name": "pods",
        "plugins": [
            {
                "type": "ptp",
                "ipMasq": false,
                "ipam": {
                    "type": "host-local",
                    "dataDir": "/run/cni",
                    "ranges": [[{"subnet": network.pods()}]],
                    "routes": [{"dst": "0.0.0.0/0"}],
                },
            },
            {"type": "portmap", "capabilities": {"portMappings": true}},
        ],
    })
}

fn kubelet(dir: &Path, network: Network, dns: Option<Ipv4Addr>) -> Value {
    json!({
        "apiVersion": "kubelet.config.k8s.io/v1beta1",
        "kind": "KubeletConfiguration",
        "address": network.node().to_string(),
        "authentication": {
            "anonymous": {"enabled": false},
            "webhook": {"enabled": false},
            "x509": {"clientCAFile": dir.join("ca.crt")},
        },
        "authorization": {"mode": "AlwaysAllow"},
        "containerRuntimeEndpoint": "unix:///run/containerd/containerd.sock",
        "cgroupDriver": "cgroupfs",
        "clusterDNS": dns.iter().map(Ipv4Addr::to_string).collect::<Vec<_>>(),
        "clusterDomain": dns.map_or("", |_| "cluster.local"),
        "cgroupRoot": format!("/{}", network.name()),
        "enforceNodeAllocatable": [],
        "failCgroupV1": false,
        "failSwapOn": false,
        "localStorageCapacityIsolation": false,
        "oomScoreAdj": 0,
        "resolvConf": dir.join("resolv.conf"),
        "healthzPort": 0,
        "maxPods": 250,
        // The disk belongs to the machine, so the node must not evict pods to free space.
        "evictionHard": {
            "memory.available": "10Mi", "nodefs.available": "0%", "nodefs.inodesFree": "0%",
            "imagefs.available": "0%", "imagefs.inodesFree": "0%",
        },
        "imageGCHighThresholdPercent": 100,
    })
}

fn kube_proxy(dir: &Path, network: Network, name: &str) -> Value {
    json!({
        "apiVersion": "kubeproxy.config.k8s.io/v1alpha1",
        "kind": "KubeProxyConfiguration",
        "mode": "nftables",
        "clientConnection": {"kubeconfig": dir.join("kube-proxy.kubeconfig")},
        "hostnameOverride": name,
        "clusterCIDR": network.pods(),
        "detectLocalMode": "ClusterCIDR",
        "oomScoreAdj": 0,
        // The connection tracking table belongs to the machine.
        "conntrack": {"maxPerCore": 0, "min": 0, "tcpEstablishedTimeout": "0s", "tcpCloseWaitTimeout": "0s"},
        "nftables": {"minSyncPeriod": "50ms", "syncPeriod": "30s"},
        "healthzBindAddress": "127.0.0.1:10256",
        "metricsBindAddress": "127.0.0.1:10249",
    })
}
