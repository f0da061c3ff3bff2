//! The table itself.

use std::path::PathBuf;
use std::time::Duration;

use crate::resolve::{Given, Problems};
use crate::value::{
    Address, ByteSize, Ipv4Range, Ipv6Range, LogFilter, LogFormat, OptionalName, SecretsFor, StoreBackend, Switch,
    Threshold, Value,
};

/// One row of the table.
#[derive(Debug)]
pub struct Setting {
    /// The heading it stands under.
    pub group: &'static str,
    /// The field's name, from which the others are made.
    field: &'static str,
    /// What istiod calls the flag, where it is spelt otherwise; accepted, too.
    pub alias: Option<&'static str>,
    /// The environment variable that istiod reads it from; it counts where our own is not set, and where it is not empty.
    pub istio_variable: Option<&'static str>,
    /// What a value looks like.
    pub form: &'static str,
    /// The default, as it would be written; empty for "none".
    pub default: &'static str,
    /// What it means.
    pub text: &'static str,
}

impl Setting {
    /// The name in kebab-case, as in `--name` and in the settings file.
    pub fn name(&self) -> String {
        self.field.replace('_', "-")
    }

    /// The name of the environment variable.
    pub fn variable(&self) -> String {
        format!("{}{}", crate::ENVIRONMENT_PREFIX, self.field.to_ascii_uppercase())
    }

    /// The text as one paragraph.
    pub fn paragraph(&self) -> String {
        self.text.split_whitespace().collect::<Vec<_>>().join(" ")
    }
}

/// Makes the struct and the table from one list, so that neither can have what the other lacks.
macro_rules! settings {
    ($( $group:literal { $(
        $(#[doc = $text:literal])+
        $field:ident $(as $alias:literal)? $(env $variable:literal)? : $type:ty = $default:literal;
    )+ } )+) => {
        /// All settings of one process.
        #[derive(Clone, Debug, PartialEq)]
        pub struct Settings {
            $($( $(#[doc = $text])+ pub $field: $type, )+)+
        }

        /// All settings, in the order of the reference.
        pub static TABLE: &[Setting] = &[
            $($( Setting {
                group: $group,
                field: stringify!($field),
                alias: settings!(@alias $($alias)?),
                istio_variable: settings!(@alias $($variable)?),
                form: <$type as Value>::FORM,
                default: $default,
                text: concat!($($text, "\n"),+),
            }, )+)+
        ];

        impl Settings {
            /// The settings that were given, with defaults for the others; or everything that is wrong with them.
            pub fn from_given(given: &Given) -> Result<Settings, Problems> {
                let mut problems = Vec::new();
                $($( let $field = given.value::<$type>(stringify!($field), $default, &mut problems); )+)+
                match ($($($field,)+)+) {
                    ($($(Some($field),)+)+) if problems.is_empty() => Ok(Settings { $($($field,)+)+ }),
                    _ => Err(Problems(problems)),
                }
            }
        }
    };
    (@alias $alias:literal) => { Some($alias) };
    (@alias) => { None };
}

settings! {
    "Configuration" {
        /// Directory of YAML and JSON files with the mesh's resources. It is read with everything below it and watched;
        /// a change takes effect at once. Beside a store, the store's objects hold where both define the same.
        config_dir as "configDir": Option<PathBuf> = "";
        /// File with the mesh configuration (MeshConfig). It is watched. Without one, MeshConfig's defaults hold. Its
        /// `configSources` name more places that resources come from; they take effect at the start.
        mesh_config as "meshConfig": Option<PathBuf> = "";
        /// How long to wait at the start for `configSources` that do not answer (`xds://`, `k8s://`). After that the
        /// others are served without them, as if they were empty; 0 waits for as long as it takes. `/ready` and the log say
        /// what is waited for.
        source_timeout: Duration = "30s";
        /// DNS suffix of the services of the platform: a service's host name is `NAME.NAMESPACE.svc.DOMAIN`.
        domain: String = "cluster.local";
        /// Name of the cluster that the resources belong to.
        cluster_id as "clusterID" env "CLUSTER_ID": String = "Kubernetes";
        /// Look up the names of networks' gateways, as load balancers without an address of their own have them. Without
        /// it such gateways are left out.
        resolve_hostname_gateways env "RESOLVE_HOSTNAME_GATEWAYS": Switch = "on";
    }
    "Store" {
        /// Where objects live. `auto` is `kubernetes` in a pod of Kubernetes; else `embedded`, or `none` where a
        /// configuration directory is given. `kubernetes` reads them from the Kubernetes API; the others serve an API of
        /// their own: `embedded` keeps objects durably in the data directory; `memory` forgets them at the end; `etcd`
        /// keeps them in etcd, for more than one replica; `none` has no API.
        store: StoreBackend = "auto";
        /// Directory of the embedded store, of the API's certificates and of the kubeconfig. It is made if it is missing.
        data_dir: PathBuf = "rutter-data";
        /// How many past revisions the embedded store keeps, for `history`, `rollback` and lists of the past; none is kept
        /// for longer than 30 days.
        store_history: usize = "10000";
        /// Addresses of etcd, comma separated: `http://HOST:PORT` or `https://HOST:PORT`.
        etcd_endpoints: String = "http://127.0.0.1:2379";
        /// What all of Rutter's keys in etcd begin with.
        etcd_prefix: String = "/rutter";
        /// PEM file with the authorities that sign etcd's certificate; the system's are not used.
        etcd_ca: Option<PathBuf> = "";
        /// PEM file with the client certificate for etcd.
        etcd_cert: Option<PathBuf> = "";
        /// PEM file with the key of that certificate.
        etcd_key: Option<PathBuf> = "";
        /// File with `USER:PASSWORD` in one line, for an etcd that asks who we are.
        etcd_login: Option<PathBuf> = "";
        /// How long etcd keeps past revisions: older ones are compacted, those of etcd's other users among them. 0 leaves
        /// compaction to somebody else.
        etcd_history: Duration = "24h";
    }
    "Kubernetes" {
        /// Kubeconfig file that says where the Kubernetes API is and who we are. Without one it is what the pod has, or
        /// what kubectl would use: `KUBECONFIG`, then `~/.kube/config`.
        kubeconfig: Option<PathBuf> = "";
        /// The context of the kubeconfig; without one, its current context.
        kube_context: OptionalName = "";
        /// The namespace that the control plane lives in: its leases and its ConfigMaps are there.
        namespace env "POD_NAMESPACE": String = "istio-system";
        /// What this replica is called in leases; without a name, what the machine calls itself.
        pod_name env "POD_NAME": OptionalName = "";
        /// The revision of this control plane. Objects with the label `istio.io/rev` count only if it names this revision
        /// or one of its tags; without one it is the revision `default`.
        revision env "REVISION": OptionalName = "";
        /// The ConfigMap beside our own (`istio`, or `istio-REVISION`) whose `mesh` and `meshNetworks` hold where ours says
        /// nothing.
        shared_mesh_config env "SHARED_MESH_CONFIG": OptionalName = "";
        /// Kinds that are not read, comma separated: `PLURAL.GROUP`, where a leading `*` stands for anything, as in
        /// `*.istio.io`.
        ignore_resources env "PILOT_IGNORE_RESOURCES": OptionalName = "";
        /// Kinds that are read although `--ignore-resources` names them, in the same form.
        include_resources env "PILOT_INCLUDE_RESOURCES": OptionalName = "";
        /// The least time between two writes of the snapshot of what was read, in the data directory. A replica that starts
        /// while the Kubernetes API is away serves it. 0 keeps none.
        snapshot_interval: Duration = "30s";
    }
    "Clusters" {
        /// The namespace of the Secrets with the label `istio/multiCluster=true` that name other clusters of the mesh; without
        /// one, the control plane's own.
        cluster_registries_namespace as "clusterRegistriesNamespace": OptionalName = "";
        /// Directory of kubeconfig files in the place of these Secrets, one for each cluster, watched; a cluster's id is what the
        /// current context calls it.
        multicluster_kubeconfig_path env "PILOT_MULTICLUSTER_KUBECONFIG_PATH": Option<PathBuf> = "";
        /// How long to wait at the start for a cluster that does not answer. After that the others are served without it;
        /// what it has is taken in when it answers. 0 waits for as long as it takes.
        remote_cluster_timeout env "PILOT_REMOTE_CLUSTER_TIMEOUT": Duration = "30s";
        /// What a kubeconfig of another cluster may do although it reaches beyond that cluster, comma separated: `exec`,
        /// `tokenFile`, `clientCertificate`, `clientKey`. Who may write such a Secret then runs programs here, or has files
        /// of this machine sent to a server of their choice.
        insecure_kubeconfig_options env "PILOT_INSECURE_MULTICLUSTER_KUBECONFIG_OPTIONS": OptionalName = "";
        /// Make a ServiceExport for every service that is not local to its cluster, in every cluster.
        mcs_auto_export env "ENABLE_MCS_AUTO_EXPORT": Switch = "off";
        /// Clients of other clusters get only those endpoints of a service whose cluster exports it (ServiceExport).
        mcs_service_discovery env "ENABLE_MCS_SERVICE_DISCOVERY": Switch = "off";
        /// A ServiceImport makes the service `NAME.NAMESPACE.svc.clusterset.local`, of the endpoints of all clusters that export
        /// it. Without it ServiceImports are not read.
        mcs_host env "ENABLE_MCS_HOST": Switch = "on";
        /// With `--mcs-service-discovery` and `--mcs-host`: clients of other clusters get no endpoints of
        /// `NAME.NAMESPACE.svc.DOMAIN`, exported or not; they use the name of the import.
        mcs_cluster_local env "ENABLE_MCS_CLUSTER_LOCAL": Switch = "off";
        /// This control plane runs outside of the clusters that it serves: it writes root certificates in each cluster of
        /// whose namespace `--namespace` the annotation `topology.istio.io/controlPlaneClusters` names `--cluster-id`, or `*`.
        external_istiod env "EXTERNAL_ISTIOD": Switch = "off";
        /// With `--external-istiod`: the Secrets that name other clusters, and the Secret `cacerts`, are those of the cluster
        /// that this pod runs in, and not of the one that configuration is read from.
        local_cluster_secret_watcher env "LOCAL_CLUSTER_SECRET_WATCHER": Switch = "off";
        /// Kubeconfig file of the cluster that has these Secrets, where it is neither the pod's own nor the one that
        /// configuration is read from.
        secrets_kubeconfig: Option<PathBuf> = "";
    }
    "Controllers" {
        /// Give hosts of ServiceEntries without addresses virtual ones, in `status.addresses`, so that connections to them
        /// can be told apart.
        ip_autoallocate env "PILOT_ENABLE_IP_AUTOALLOCATE": Switch = "on";
        /// The range of these addresses.
        ip_autoallocate_ipv4_prefix env "PILOT_IP_AUTOALLOCATE_IPV4_PREFIX": Ipv4Range = "240.240.0.0/16";
        /// The range of these addresses, for IPv6.
        ip_autoallocate_ipv6_prefix env "PILOT_IP_AUTOALLOCATE_IPV6_PREFIX": Ipv6Range = "2001:2::/48";
        /// Take the taint `cni.istio.io/not-ready` from nodes on which the pod `istio-cni-node` is ready.
        node_untaint env "PILOT_ENABLE_NODE_UNTAINT_CONTROLLERS": Switch = "off";
        /// The namespace of these pods; without one, the control plane's own.
        cni_namespace as "cniNamespace" env "CNI_NAMESPACE": OptionalName = "";
        /// The namespace of the gateway that serves Ingresses; without one, the control plane's own.
        ingress_namespace env "K8S_INGRESS_NS": OptionalName = "";
    }
    "API" {
        /// Address of the Kubernetes-shaped API over the store.
        api_addr: Address = "127.0.0.1:15016";
        /// Serve the API in plain text, and let everybody who can connect do everything. Only on a loopback address.
        api_plaintext: Switch = "off";
        /// PEM file with the API's certificate; without one, one is made and signed by an authority of the data directory.
        api_cert: Option<PathBuf> = "";
        /// PEM file with the key of that certificate.
        api_key: Option<PathBuf> = "";
        /// PEM file with the authorities whose client certificates are believed: the common name is the user, the
        /// organisations are the groups.
        api_client_ca: Option<PathBuf> = "";
        /// File with bearer tokens, one a line: `TOKEN USER ROLE`, where the role is `admin`, `view`, `NAMESPACE:edit` or
        /// `NAMESPACE:view`. An admin token is made in the data directory in any case.
        api_tokens: Option<PathBuf> = "";
        /// How many requests a second one client may send, on average.
        api_requests_per_second: usize = "1000";
    }
    "Status" {
        /// The least time between two writes of one object's status.
        status_interval: Duration = "1s";
    }
    "Listeners" {
        /// Address of the discovery service, plaintext gRPC.
        grpc_addr as "grpcAddr": Address = ":15010";
        /// Address of the readiness probe, `/ready`.
        http_addr as "httpAddr": Address = ":8080";
        /// Address of the metrics, `/metrics`, of `/version` and of the debug pages, `/debug`. The debug pages show
        /// configuration; they answer every peer that can connect.
        monitoring_addr as "monitoringAddr": Address = ":15014";
    }
    "Discovery" {
        /// How often a connection on which nothing happens is probed.
        keepalive_interval as "keepaliveInterval": Duration = "30s";
        /// How long a probed connection may stay silent before it is closed.
        keepalive_timeout as "keepaliveTimeout": Duration = "10s";
        /// Who gets, over discovery, the certificates and keys that a `credentialName` names, from Secrets of its own
        /// namespace: `local` are proxies on this machine (their connection comes from a loopback address), `none` is nobody.
        /// `auto` is `local`, and `none` where objects live in Kubernetes: proxies do not prove who they are yet. With `none`
        /// Secrets of Kubernetes are not read.
        secrets_for: SecretsFor = "auto";
        /// The largest request that a proxy may send; a larger one ends its stream.
        max_request_bytes: ByteSize = "4MiB";
        /// Whether proxies that can (Envoy from 1.37 on, over the incremental protocol) get the virtual hosts of their
        /// route tables singly: a route that changes then costs its own bytes, and not those of the whole table.
        vhds: Switch = "on";
        /// Gateways answer HTTP/3, too: each server of protocol HTTPS that asks its clients for no certificate, at a port that a
        /// Service of the gateway has for UDP as well. Clients learn of it by the header `alt-svc`.
        http3 env "PILOT_ENABLE_QUIC_LISTENERS": Switch = "off";
        /// All proxies accept HTTP/1.0; without it those with `HTTP10: "1"` in their metadata.
        http10 env "PILOT_HTTP10": Switch = "off";
        /// From how many endpoints on a cluster's endpoints are sent singly to proxies that can take them so (Envoy from
        /// 1.38 on, over the incremental protocol): one that changes then costs its own bytes, and not those of all, but
        /// all together cost four times as many, and a proxy that returns is sent all again.
        leds_min_endpoints: Threshold = "off";
    }
    "Process" {
        /// Number of threads; 0 means one per processor.
        threads: usize = "0";
        /// The least time between the starts of two commits. 0 commits every change at once; what changes while a commit
        /// runs goes into the next one. A floor spares a small machine under a storm of changes.
        commit_interval: Duration = "0s";
        /// How long streams and requests may finish after a signal to stop.
        shutdown_duration as "shutdownDuration": Duration = "10s";
        /// What is logged: a level (off, error, warn, info, debug, trace), or several with targets, as in
        /// `info,ads=debug`.
        log_level: LogFilter = "info";
        /// How a line of the log looks: `text` for people, `json` for machines.
        log_format: LogFormat = "text";
    }
}
