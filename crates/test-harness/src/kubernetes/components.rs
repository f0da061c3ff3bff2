//! The programs of a control plane and their arguments.

use std::net::{Ipv4Addr, SocketAddr};
use std::path::Path;

use super::control_plane::Settings;
use super::network::Network;
use super::process::Process;
use crate::run::free_port;

pub(super) fn etcd(program: &Path, address: SocketAddr, dir: &Path) -> Process {
    let peer = SocketAddr::from((Ipv4Addr::LOCALHOST, free_port()));
    let arguments = vec![
        "etcd".to_owned(),
        format!("--data-dir={}", dir.join("etcd").display()),
        format!("--listen-client-urls=http://{address}"),
        format!("--advertise-client-urls=http://{address}"),
        format!("--listen-peer-urls=http://{peer}"),
        format!("--initial-advertise-peer-urls=http://{peer}"),
        format!("--initial-cluster=default=http://{peer}"),
        "--log-level=warn".to_owned(),
        // A killed process loses nothing without fsync; only a failing machine does.
        "--unsafe-no-fsync".to_owned(),
    ];
    Process::new("etcd", program, arguments, dir)
}

pub(super) fn api_server(
    program: &Path,
    address: SocketAddr,
    etcd: SocketAddr,
    network: Option<&Network>,
    settings: &Settings,
    dir: &Path,
) -> Process {
    let file = |name: &str| dir.join(name).display().to_string();
    let issuer = "https://kubernetes.default.svc";
    let mut audiences = vec![issuer.to_owned()];
    audiences.extend(settings.audiences.iter().cloned());
    let services = network.map_or("10.96.0.0/12".to_owned(), Network::services);
    let mut arguments = vec![
        "kube-apiserver".to_owned(),
        format!("--etcd-servers=http://{etcd}"),
        format!("--bind-address={}", address.ip()),
        format!("--secure-port={}", address.port()),
        format!("--advertise-address={}", address.ip()),
        format!("--tls-cert-file={}", file("server.crt")),
        format!("--tls-private-key-file={}", file("server.key")),
        format!("--client-ca-file={}", file("ca.crt")),
        format!("--token-auth-file={}", file("tokens.csv")),
        format!("--service-account-key-file={}", file("accounts.pub")),
        format!("--service-account-signing-key-file={}", file("accounts.key")),
        format!("--service-account-issuer={issuer}"),
        format!("--api-audiences={}", audiences.join(",")),
        "--authorization-mode=Node,RBAC".to_owned(),
        format!("--service-cluster-ip-range={services}"),
        "--allow-privileged=true".to_owned(),
        format!("--kubelet-client-certificate={}", file("kubelet-client.crt")),
        format!("--kubelet-client-key={}", file("kubelet-client.key")),
        "--kubelet-preferred-address-types=InternalIP".to_owned(),
    ];
    if network.is_none() {
        // The endpoint of the Service `kubernetes` must not be a loopback address.
        arguments.push("--endpoint-reconciler-type=none".to_owned());
    }
    if !settings.controllers {
        // Without controllers nothing creates the service accounts that pods would wait for.
        arguments.push("--disable-admission-plugins=ServiceAccount".to_owned());
    }
    arguments.extend(settings.api_flags.iter().cloned());
    Process::new("kube-apiserver", program, arguments, dir)
}

pub(super) fn controller_manager(program: &Path, settings: &Settings, dir: &Path) -> Process {
    let file = |name: &str| dir.join(name).display().to_string();
    // Without nodes nothing reports their status, and the controller would evict pods that a test created.
    let without = if settings.node { "" } else { ",-node-lifecycle-controller,-pod-garbage-collector-controller" };
    let mut arguments = vec![
        "kube-controller-manager".to_owned(),
        format!("--kubeconfig={}", file("kubeconfig")),
        format!("--service-account-private-key-file={}", file("accounts.key")),
        format!("--root-ca-file={}", file("ca.crt")),
        "--use-service-account-credentials=false".to_owned(),
        "--leader-elect=false".to_owned(),
        format!("--controllers=*,-node-ipam-controller{without}"),
        // No client uses the secure port.
        "--secure-port=0".to_owned(),
        // Shortens waits in tests.
        "--endpointslice-updates-batch-period=0s".to_owned(),
        "--kube-api-qps=1000".to_owned(),
        "--kube-api-burst=2000".to_owned(),
    ];
    arguments.extend(settings.controller_flags.iter().cloned());
    Process::new("kube-controller-manager", program, arguments, dir)
}

pub(super) fn scheduler(program: &Path, dir: &Path) -> Process {
    let arguments = vec![
        "kube-scheduler".to_owned(),
        format!("--kubeconfig={}", dir.join("kubeconfig").display()),
        "--leader-elect=false".to_owned(),
        "--secure-port=0".to_owned(),
    ];
    Process::new("kube-scheduler", program, arguments, dir)
}
