//! The table of settings.

use std::path::PathBuf;
use std::time::Duration;

use crate::given::{Given, Problems};
use crate::keys::{HostPatterns, JwksFetcher};
use crate::value::{
    Address, ByteSize, CertProvider, Ipv4Range, Ipv6Range, LogFilter, LogFormat, NamespaceUsers, NativeSidecars,
    OptionalAddress, OptionalName, Percent, SecretsFor, ServiceRanges, StoreBackend, Switch, Value,
};

/// A row of the table.
#[derive(Debug)]
pub struct Setting {
    /// The heading in help and reference.
    pub group: &'static str,
    /// The name of the field in [`Settings`], from which the other names derive.
    field: &'static str,
    /// istiod's name of the flag, if it differs. It is accepted, too.
    pub alias: Option<&'static str>,
    /// istiod's environment variable. It is used if it is not empty and Rutter's own variable is not set.
    pub istio_variable: Option<&'static str>,
    /// The accepted form of values.
    pub form: &'static str,
    /// The default in text form; empty if there is none.
    pub default: &'static str,
    /// The description.
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

    /// The description as one paragraph.
    pub fn paragraph(&self) -> String {
        self.text.split_whitespace().collect::<Vec<_>>().join(" ")
    }
}

/// Generates the struct and the table from one list.
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
            /// Parses the given settings and uses defaults for the others.
            ///
            /// # Errors
            /// All invalid values.
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
        /// Directory of YAML and JSON files with configuration. It is read recursively and watched; changes take effect at
        /// once. If a store is also used and both define the same object, the store's object takes precedence.
        config_dir as "configDir": Option<PathBuf> = "";
        /// File with the mesh configuration (MeshConfig). It is watched. Without a file, the defaults of MeshConfig apply.
        /// Its `configSources` add further configuration sources; changes to them need a restart.
        mesh_config as "meshConfig": Option<PathBuf> = "";
        /// Maximum time to wait at startup for `configSources` (`xds://`, `k8s://`) that do not respond. After that, the
        /// control plane serves proxies as if these sources were empty. 0 waits without limit. `/ready` and the log name
        /// the sources that are missing.
        source_timeout: Duration = "30s";
        /// DNS domain of the cluster: the hostname of a service is `NAME.NAMESPACE.svc.DOMAIN`.
        domain: String = "cluster.local";
        /// ID of the cluster that the configuration belongs to.
        cluster_id as "clusterID" env "CLUSTER_ID": String = "Kubernetes";
        /// Resolve the hostnames of network gateways, for load balancers that have no IP address. If off, such gateways
        /// are ignored.
        resolve_hostname_gateways env "RESOLVE_HOSTNAME_GATEWAYS": Switch = "on";
    }
    "Store" {
        /// Storage backend for objects. `kubernetes` reads them from the Kubernetes API. The other backends serve their own
        /// API: `embedded` stores objects durably in the data directory; `memory` loses them on exit; `etcd` stores them in
        /// etcd and supports several replicas; `files` serves the objects in the configuration directory, read-only, with
        /// their status. `none` serves no API. `auto` selects `kubernetes` in a Kubernetes pod, else `files` if a
        /// configuration directory is set, else `embedded`.
        store: StoreBackend = "auto";
        /// Directory for the embedded store, the certificates of the API and the kubeconfig. It is created if it does not
        /// exist.
        data_dir: PathBuf = "rutter-data";
        /// Number of past revisions that the embedded store keeps, for `history`, `rollback` and lists at a past revision.
        /// Revisions older than 30 days are always removed.
        store_history: usize = "10000";
        /// Comma-separated endpoints of etcd: `http://HOST:PORT` or `https://HOST:PORT`.
        etcd_endpoints: String = "http://127.0.0.1:2379";
        /// Prefix of all keys in etcd.
        etcd_prefix: String = "/rutter";
        /// PEM file with the certificate authorities for etcd's certificate. The system's authorities are not used.
        etcd_ca: Option<PathBuf> = "";
        /// PEM file with the client certificate for etcd.
        etcd_cert: Option<PathBuf> = "";
        /// PEM file with the private key of the client certificate for etcd.
        etcd_key: Option<PathBuf> = "";
        /// File with `USER:PASSWORD` on one line, if etcd requires authentication.
        etcd_login: Option<PathBuf> = "";
        /// Time after which old revisions in etcd are compacted. This affects all users of the etcd cluster. 0 disables
        /// compaction by Rutter.
        etcd_history: Duration = "24h";
    }
    "Kubernetes" {
        /// Kubeconfig file for the Kubernetes API. Without one, the file that `KUBECONFIG` names is used if it exists,
        /// else the service account in a pod, else `~/.kube/config`.
        kubeconfig: Option<PathBuf> = "";
        /// Context of the kubeconfig. Without one, the current context is used.
        kube_context: OptionalName = "";
        /// Namespace of the control plane, which contains its Leases and ConfigMaps.
        namespace env "POD_NAMESPACE": String = "istio-system";
        /// Name of this replica in Leases. Without one, the hostname is used.
        pod_name env "POD_NAME": OptionalName = "";
        /// Revision of this control plane. Objects with the label `istio.io/rev` are used only if the label names this
        /// revision or one of its tags. Without one, the revision is `default`.
        revision env "REVISION": OptionalName = "";
        /// Second ConfigMap with `mesh` and `meshNetworks`. Fields of the control plane's own ConfigMap (`istio` or
        /// `istio-REVISION`) take precedence.
        shared_mesh_config env "SHARED_MESH_CONFIG": OptionalName = "";
        /// Comma-separated kinds that are not read, in the form `PLURAL.GROUP`. A leading `*` is a wildcard, as in
        /// `*.istio.io`.
        ignore_resources env "PILOT_IGNORE_RESOURCES": OptionalName = "";
        /// Comma-separated kinds that are read even if `--ignore-resources` matches them, in the same form.
        include_resources env "PILOT_INCLUDE_RESOURCES": OptionalName = "";
        /// Minimum time between two snapshots of the configuration in the data directory. A replica that starts while the
        /// Kubernetes API is unavailable serves the snapshot. 0 disables snapshots.
        snapshot_interval: Duration = "30s";
    }
    "Clusters" {
        /// Namespace of the Secrets with the label `istio/multiCluster=true`, which give access to the other clusters of the
        /// mesh. Without one, the namespace of the control plane is used.
        cluster_registries_namespace as "clusterRegistriesNamespace": OptionalName = "";
        /// Directory of kubeconfig files, one per cluster, to use instead of the Secrets in
        /// `--cluster-registries-namespace`. It is watched. The cluster ID is the cluster name in the current context.
        multicluster_kubeconfig_path env "PILOT_MULTICLUSTER_KUBECONFIG_PATH": Option<PathBuf> = "";
        /// Maximum time to wait at startup for a cluster that does not respond. After that, the control plane serves proxies
        /// without this cluster until it responds. 0 waits without limit.
        remote_cluster_timeout env "PILOT_REMOTE_CLUSTER_TIMEOUT": Duration = "30s";
        /// Comma-separated insecure options that a kubeconfig of another cluster may use: `exec`, `tokenFile`,
        /// `clientCertificate`, `clientKey`. With these, everyone who can write such a Secret can run programs in the control
        /// plane's container or send its files to a server.
        insecure_kubeconfig_options env "PILOT_INSECURE_MULTICLUSTER_KUBECONFIG_OPTIONS": OptionalName = "";
        /// Create a ServiceExport in every cluster for every service that is not cluster-local.
        mcs_auto_export env "ENABLE_MCS_AUTO_EXPORT": Switch = "off";
        /// Send clients in other clusters only the endpoints of clusters that export the service (ServiceExport).
        mcs_service_discovery env "ENABLE_MCS_SERVICE_DISCOVERY": Switch = "off";
        /// Create the service `NAME.NAMESPACE.svc.clusterset.local` for each ServiceImport, with the endpoints of all clusters
        /// that export it. If off, ServiceImports are not read.
        mcs_host env "ENABLE_MCS_HOST": Switch = "on";
        /// With `--mcs-service-discovery` and `--mcs-host`: make `NAME.NAMESPACE.svc.DOMAIN` cluster-local for all services,
        /// exported or not. Clients in other clusters use the `clusterset.local` name.
        mcs_cluster_local env "ENABLE_MCS_CLUSTER_LOCAL": Switch = "off";
        /// This control plane runs outside the clusters that it serves. It writes root certificates in each cluster whose
        /// namespace `--namespace` names `--cluster-id` or `*` in the annotation `topology.istio.io/controlPlaneClusters`.
        external_istiod env "EXTERNAL_ISTIOD": Switch = "off";
        /// With `--external-istiod`: read the Secrets of other clusters and the Secret `cacerts` from the cluster in which
        /// this pod runs instead of the cluster with the configuration.
        local_cluster_secret_watcher env "LOCAL_CLUSTER_SECRET_WATCHER": Switch = "off";
        /// Kubeconfig file of the cluster with the Secrets of other clusters and the Secret `cacerts`, if it is neither
        /// the pod's cluster nor the cluster with the configuration.
        secrets_kubeconfig: Option<PathBuf> = "";
    }
    "Controllers" {
        /// Allocate virtual IP addresses to ServiceEntry hosts without addresses, in `status.addresses`. Proxies can then
        /// distinguish TCP connections to these hosts.
        ip_autoallocate env "PILOT_ENABLE_IP_AUTOALLOCATE": Switch = "on";
        /// IPv4 range for allocated addresses.
        ip_autoallocate_ipv4_prefix env "PILOT_IP_AUTOALLOCATE_IPV4_PREFIX": Ipv4Range = "240.240.0.0/16";
        /// IPv6 range for allocated addresses.
        ip_autoallocate_ipv6_prefix env "PILOT_IP_AUTOALLOCATE_IPV6_PREFIX": Ipv6Range = "2001:2::/48";
        /// Remove the taint `cni.istio.io/not-ready` from nodes whose pod `istio-cni-node` is ready.
        node_untaint env "PILOT_ENABLE_NODE_UNTAINT_CONTROLLERS": Switch = "off";
        /// Namespace of the `istio-cni-node` pods. Without one, the namespace of the control plane is used.
        cni_namespace as "cniNamespace" env "CNI_NAMESPACE": OptionalName = "";
        /// Deploy gateways for Gateways of the Gateway API: a Deployment, a Service and a ServiceAccount each, from the template
        /// `kube-gateway` of the injection configuration.
        gateway_deployments env "PILOT_ENABLE_GATEWAY_API_DEPLOYMENT_CONTROLLER": Switch = "on";
        /// Create the GatewayClasses `istio` and `istio-remote` if they do not exist.
        gateway_classes env "PILOT_ENABLE_GATEWAY_API_GATEWAYCLASS_CONTROLLER": Switch = "on";
        /// Name of the GatewayClass of gateways that are deployed. It is created instead of `istio`, and needs no object.
        default_gateway_class env "PILOT_GATEWAY_API_DEFAULT_GATEWAYCLASS_NAME": String = "istio";
        /// Copy the labels and annotations of a Gateway to the objects that are created for it, unless `spec.infrastructure`
        /// has some.
        gateway_metadata_copies env "PILOT_ENABLE_GATEWAY_API_COPY_LABELS_ANNOTATIONS": Switch = "on";
        /// Create a WorkloadEntry for each connected proxy whose node metadata has `AUTO_REGISTER_GROUP`, from the WorkloadGroup of
        /// that name in its namespace. If off, these proxies are served without one.
        workload_registration env "PILOT_ENABLE_WORKLOAD_ENTRY_AUTOREGISTRATION": Switch = "on";
        /// Write the health that proxies of WorkloadEntries report to the condition `Healthy`, and use only endpoints that are
        /// healthy, for WorkloadEntries with the annotation `proxy.istio.io/health-checks-enabled`.
        workload_health env "PILOT_ENABLE_WORKLOAD_ENTRY_HEALTHCHECKS": Switch = "on";
        /// Time for which the WorkloadEntry of a proxy that has disconnected is kept. After each ten of these periods, entries
        /// that other replicas left behind are deleted.
        workload_grace_period env "PILOT_WORKLOAD_ENTRY_GRACE_PERIOD": Duration = "10s";
        /// Register only proxies that prove the namespace and the service account of their WorkloadEntry. If off, every client
        /// that reaches a port of xDS can register.
        workload_identity_check env "ISTIO_WORKLOAD_ENTRY_VALIDATE_IDENTITY": Switch = "on";
        /// Namespace of the gateway that serves Ingresses. Without one, the namespace of the control plane is used.
        ingress_namespace env "K8S_INGRESS_NS": OptionalName = "";
    }
    "API" {
        /// Address of the Kubernetes-style API of the store.
        api_addr: Address = "127.0.0.1:15016";
        /// Serve the API as plaintext without authentication and authorization. Allowed only on a loopback address.
        api_plaintext: Switch = "off";
        /// PEM file with the certificate of the API. Without one, a certificate signed by a CA in the data directory is
        /// generated.
        api_cert: Option<PathBuf> = "";
        /// PEM file with the private key of the API's certificate.
        api_key: Option<PathBuf> = "";
        /// PEM file with the certificate authorities for client certificates. The common name is the user, the organizations
        /// are the groups.
        api_client_ca: Option<PathBuf> = "";
        /// File with bearer tokens, one per line: `TOKEN USER ROLE`, where the role is `admin`, `view`, `NAMESPACE:edit` or
        /// `NAMESPACE:view`. In addition, an admin token is always generated in the data directory.
        api_tokens: Option<PathBuf> = "";
        /// Range from which Services in a store of Rutter get cluster IPs, or an IPv4 and an IPv6 range, comma-separated;
        /// the first one has the default family. Set it if the addresses are in use in your network. If it is empty,
        /// Services get no cluster IPs. The store `kubernetes` has its own.
        service_cluster_ip_range: ServiceRanges = "10.96.0.0/12";
        /// Maximum average number of API requests per second and client.
        api_requests_per_second: usize = "1000";
    }
    "Status" {
        /// Minimum time between two status updates of one object.
        status_interval: Duration = "1s";
    }
    "Listeners" {
        /// Address of xDS over plaintext gRPC. Without one, it is `:15010` in a Kubernetes pod, else `127.0.0.1:15010`. The port
        /// does not authenticate proxies: set it to a loopback address once all proxies use `--secure-grpc-addr`.
        grpc_addr as "grpcAddr": OptionalAddress = "";
        /// Address of xDS and of the certificate service over TLS. Empty disables both. Clients are authenticated by certificate
        /// or token. The port is served once there is a certificate for it (`--cert-provider`).
        secure_grpc_addr as "secureGRPCAddr": OptionalAddress = ":15012";
        /// Address of the injection and validation webhooks over HTTPS, with the certificate of the TLS ports. Empty disables
        /// them.
        https_addr as "httpsAddr": OptionalAddress = ":15017";
        /// Path of a Unix socket for xDS. The kernel proves the user of a client: only the control plane's own user, root and
        /// `--xds-socket-users` can connect. Without a path, it is `xds.sock` in the data directory; in Kubernetes there is no
        /// socket. At most 107 bytes.
        xds_socket: Option<PathBuf> = "";
        /// Comma-separated users, in the form `UID:NAMESPACE`, that may also connect to the Unix socket. Proxies of such a user
        /// belong to this namespace only, and receive no Secrets of others. The user must be able to reach the path:
        /// the data directory is private.
        xds_socket_users: NamespaceUsers = "";
        /// Address of the readiness probe `/ready`.
        http_addr as "httpAddr": Address = ":8080";
        /// Address of `/metrics`, `/version` and the debug pages `/debug`. Without one, it is `:15014` in a Kubernetes pod, else
        /// `127.0.0.1:15014`. Debug pages are served only to clients on the same machine or in the same pod.
        monitoring_addr as "monitoringAddr": OptionalAddress = "";
        /// Port on 127.0.0.1 at which the levels of log lines can be read and changed while Rutter runs, as `istioctl admin
        /// log` does (istiod uses 9876); 0 disables it.
        ctrlz_port as "ctrlz_port": usize = "0";
    }
    "Authentication" {
        /// PEM file with the certificate of the TLS ports. It is read again when it changes. Without one, the files `tls.crt` and
        /// `tls.key` in `/var/run/secrets/istiod/tls` are used if they exist, else `--cert-provider`.
        tls_cert_file as "tlsCertFile": Option<PathBuf> = "";
        /// PEM file with the private key for `--tls-cert-file`.
        tls_key_file as "tlsKeyFile": Option<PathBuf> = "";
        /// PEM file with further roots for client certificates of this trust domain, used with `--tls-cert-file`.
        ca_cert_file as "caCertFile": Option<PathBuf> = "";
        /// Issuer of the certificate of the TLS ports if there are no files: `istiod` is the control plane's own certificate
        /// authority. `custom` uses files only, and `none` disables the ports.
        cert_provider env "PILOT_CERT_PROVIDER": CertProvider = "istiod";
        /// Comma-separated further names and addresses in the certificate of the TLS ports.
        custom_hosts env "ISTIOD_CUSTOM_HOST": OptionalName = "";
        /// Comma-separated audiences, one of which a Kubernetes token must have.
        token_audiences env "TOKEN_AUDIENCES": String = "istio-ca";
        /// Issuer of tokens of workloads that are not in Kubernetes, as JSON: `issuer`, `audiences`, one of which a token must
        /// have, and `jwksUri`, the address of its public keys. Without it, the issuer's discovery document has the address.
        /// The subject of a token is `system:serviceaccount:NAMESPACE:NAME`.
        jwt_rule env "JWT_RULE": OptionalName = "";
        /// Comma-separated address ranges of gateways whose header `x-forwarded-client-cert` is the identity of a client. Set it
        /// only for gateways that replace the header (`SANITIZE_SET`).
        trusted_gateways env "TRUSTED_GATEWAY_CIDR": OptionalName = "";
        /// Comma-separated service accounts, in the form `NAMESPACE/NAME`, whose pods may request certificates for pods on
        /// their node. ztunnel needs this.
        trusted_node_accounts env "CA_TRUSTED_NODE_ACCOUNTS": OptionalName = "";
        /// Lifetime of workload certificates if the request names none.
        workload_cert_ttl env "DEFAULT_WORKLOAD_CERT_TTL": Duration = "24h";
        /// Longest lifetime of workload certificates. Requests for longer ones are refused.
        max_workload_cert_ttl env "MAX_WORKLOAD_CERT_TTL": Duration = "2160h";
        /// Authenticate streams on the TLS port. If off, nothing proves which proxy connects.
        xds_auth env "XDS_AUTH": Switch = "on";
        /// Authenticate streams on the plaintext port, too. Proxies then need a token, which others on the network can read.
        xds_auth_plaintext env "XDS_AUTH_PLAINTEXT": Switch = "off";
        /// Refuse proxies that claim another namespace or service account than their certificate or token proves. If off, such
        /// proxies are served without secrets.
        xds_identity_check env "PILOT_ENABLE_XDS_IDENTITY_CHECK": Switch = "on";
        /// Show debug pages only to identities in the root namespace and in `--debug-namespaces`, and to others only those about
        /// proxies of their namespace. If off, every identity sees all. Clients on the same machine always see all.
        debug_auth env "ENABLE_DEBUG_ENDPOINT_AUTH": Switch = "on";
        /// Comma-separated namespaces whose identities see all debug pages.
        debug_namespaces env "DEBUG_ENDPOINT_AUTH_ALLOWED_NAMESPACES": OptionalName = "";
        /// Serve the configuration only to other control planes in the root namespace or on this machine.
        protect_configuration env "ENABLE_XDS_API_GENERATOR_AUTH": Switch = "on";
    }
    "Discovery" {
        /// Interval of keepalive probes on idle connections.
        keepalive_interval as "keepaliveInterval": Duration = "30s";
        /// Time without a response to a keepalive probe after which a connection is closed.
        keepalive_timeout as "keepaliveTimeout": Duration = "10s";
        /// Maximum age of an xDS connection, with jitter of 10 percent. The proxy then connects again, perhaps to another
        /// replica, and receives only what it does not have. `0s` sets no limit.
        max_connection_age as "keepaliveMaxServerConnectionAge": Duration = "30m";
        /// Proxies that may receive the certificates and keys of a `credentialName` (Secrets of their own namespace) over
        /// SDS. `authenticated`, which is `auto`, allows proxies that prove their identity on `--secure-grpc-addr` or `--xds-socket`;
        /// the plaintext port proves none. If the store is `kubernetes`, a proven service account must also be allowed to list
        /// Secrets. `none` allows no proxy, and Secrets are not read from Kubernetes.
        secrets_for: SecretsFor = "auto";
        /// Maximum size of a request from a proxy. A larger request closes the stream. A proxy that reconnects lists the resources
        /// that it has, about 130 bytes each.
        max_request_bytes: ByteSize = "64MiB";
        /// Maximum number of resource names in one request, and in one subscription of a proxy. A larger request closes the stream.
        max_request_names: usize = "100000";
        /// Send virtual hosts by VHDS to proxies that support it (Envoy 1.37 or later, delta xDS). A changed route then costs
        /// one virtual host instead of the whole route configuration.
        vhds: Switch = "on";
        /// Serve HTTP/3 on gateways: for each HTTPS server without client certificates, at ports that a Service of the gateway
        /// also exposes for UDP. The header `alt-svc` advertises it to clients.
        http3 env "PILOT_ENABLE_QUIC_LISTENERS": Switch = "off";
        /// Accept HTTP/1.0 on all proxies. If off, only proxies with `HTTP10: "1"` in their metadata accept it.
        http10 env "PILOT_HTTP10": Switch = "off";
    }
    "Tokens" {
        /// Component that fetches the public keys at the `jwksUri` of RequestAuthentications. `proxies` (istiod: `true`, `envoy`)
        /// fetch them themselves if the host is a service of the mesh; keys of other hosts are not fetched, and their tokens are
        /// rejected. With `hybrid`, the control plane fetches those. With `control-plane` (istiod: `false`, `istiod`), it fetches all.
        jwks_fetcher env "PILOT_JWT_ENABLE_REMOTE_JWKS": JwksFetcher = "control-plane";
        /// Time after which public keys are fetched again. Keys that cannot be fetched again stay in use for 7 days.
        jwks_refresh_interval env "PILOT_JWT_PUB_KEY_REFRESH_INTERVAL": Duration = "20m";
        /// Networks, addresses and hosts (`*.example.com` for those below a domain) from which public keys must not be
        /// fetched. Everyone who can create a RequestAuthentication chooses addresses that the control plane calls. Loopback,
        /// link-local, unspecified and multicast addresses and cloud metadata services are refused without this setting.
        jwks_blocked env "BLOCKED_CIDRS_IN_JWKS_URIS": HostPatterns = "";
        /// Networks, addresses and hosts from which public keys may be fetched although they would be refused, unless
        /// `jwks-blocked` contains them: for an issuer on the machine of the control plane.
        jwks_allowed: HostPatterns = "";
        /// File with certificate authorities (PEM) that may sign the certificates of `https` servers of public keys, in addition
        /// to those of the system. It may be missing, and is read again when it changes.
        jwks_extra_roots: Option<PathBuf> = "/cacerts/extra.pem";
    }
    "Certificate authority" {
        /// Sign workload certificates. If off, agents need another authority (`CA_ADDR`), and `istio-ca-root-cert` is not written.
        ca_server env "ENABLE_CA_SERVER": Switch = "on";
        /// Directory with the certificates and the key of a certificate authority (plugged in): `ca-cert.pem`, `ca-key.pem`,
        /// `cert-chain.pem`, `root-cert.pem` and optionally `ca-crl.pem`, or `tls.crt`, `tls.key` and `ca.crt`. It is watched. If it is
        /// missing, the Secret `cacerts` is used, else a self-signed authority is created.
        root_ca_dir env "ROOT_CA_DIR": PathBuf = "./etc/cacerts";
        /// Accept changes of the roots while proxies run, if roots are only added or only removed; and send the trust
        /// bundle, with the roots of `caCertificates`, to agents.
        multiroot_mesh env "ISTIO_MULTIROOT_MESH": Switch = "off";
        /// Use the revocation lists in `ca-crl.pem` of a plugged-in authority, and publish them to workloads.
        ca_crl env "PILOT_ENABLE_CA_CRL": Switch = "on";
        /// Name of the ConfigMap with the root certificates in every namespace.
        ca_cert_configmap env "PILOT_CA_CERT_CONFIGMAP": String = "istio-ca-root-cert";
        /// Name of the ConfigMap with the revocation lists in every namespace.
        crl_configmap env "PILOT_CRL_CONFIGMAP": String = "istio-ca-crl";
        /// Lifetime of the root of a self-signed authority.
        self_signed_ca_ttl env "CITADEL_SELF_SIGNED_CA_CERT_TTL": Duration = "87600h";
        /// Interval of checks whether the root of a self-signed authority must be rotated. 0 disables rotation.
        self_signed_ca_check_interval env "CITADEL_SELF_SIGNED_ROOT_CERT_CHECK_INTERVAL": Duration = "1h";
        /// Share of the root's lifetime that is left when it is rotated, in percent.
        self_signed_ca_grace env "CITADEL_SELF_SIGNED_ROOT_CERT_GRACE_PERIOD_PERCENTILE": Percent = "20";
        /// Start the checks at a random time within the interval, so that replicas do not check at the same time.
        self_signed_ca_jitter env "CITADEL_ENABLE_JITTER_FOR_ROOT_CERT_ROTATOR": Switch = "on";
        /// Size of the RSA key of a new self-signed authority, in bits: 2048, 3072 or 4096.
        self_signed_ca_rsa_bits env "CITADEL_SELF_SIGNED_CA_RSA_KEY_SIZE": usize = "2048";
        /// Store a new self-signed authority in the Secret `cacerts` instead of `istio-ca-secret`.
        self_signed_in_cacerts env "USE_CACERTS_FOR_SELF_SIGNED_CA": Switch = "off";
        /// File with random bytes, with which the key of the authority in a store of Rutter is encrypted. Without one, it is
        /// `authority.key` in the data directory. With the store `etcd`, it must be set and exist, and be the same for every replica.
        /// For other stores, it is created if it is missing. Without this file, the key in the store is lost: keep a backup, apart
        /// from that of the store.
        ca_key_file: Option<PathBuf> = "";
        /// External authority for workload certificates. `ISTIOD_RA_KUBERNETES_API`: signers of Kubernetes'
        /// CertificateSigningRequests. Without one, certificates are signed by the control plane.
        external_ca env "EXTERNAL_CA": OptionalName = "";
        /// Signer of CertificateSigningRequests, if a proxy names none: `DOMAIN/NAME`.
        k8s_signer env "K8S_SIGNER": OptionalName = "";
        /// Domain of the signers that proxies name (`ISTIO_META_CERT_SIGNER`).
        cert_signer_domain env "CERT_SIGNER_DOMAIN": OptionalName = "";
    }
    "Webhooks" {
        /// Name of the MutatingWebhookConfiguration of injection, which the default revision also patches if it has no label.
        injection_webhook env "INJECTION_WEBHOOK_CONFIG_NAME": String = "istio-sidecar-injector";
        /// Name of the ValidatingWebhookConfiguration, which is patched besides those with the label of the revision.
        validation_webhook env "VALIDATION_WEBHOOK_CONFIG_NAME": String = "istio-istio-system";
        /// Whether sidecars are init containers that keep running (native sidecars). `auto` uses them if all nodes, or the
        /// node of the pod, run Kubernetes 1.33 or later. The annotation `sidecar.istio.io/nativeSidecar` takes precedence.
        native_sidecars env "ENABLE_NATIVE_SIDECARS": NativeSidecars = "auto";
        /// The platform of the cluster. `openshift` gives sidecars the users of the ranges of their namespace.
        platform env "PLATFORM": OptionalName = "";
        /// Compliance policy of sidecars that are injected, such as `fips-140-3`.
        compliance_policy env "COMPLIANCE_POLICY": OptionalName = "";
    }
    "Process" {
        /// Number of threads. 0 uses one per processor.
        threads: usize = "0";
        /// Share of one processor that a stream of configuration changes may use. A single change is always sent at once. After
        /// it, the next change waits until the processor time used is below this share, or for `commit-delay`; changes that
        /// arrive meanwhile are sent together. 100 sends each change at once.
        /// Changes of endpoints and pods have such a share of their own, and do not wait for other changes.
        push_share: Percent = "10";
        /// Maximum time for which `push-share` delays a change. If changes reach many proxies, a stream of them uses more than the
        /// share at the default, and less processor time with a longer delay.
        commit_delay: Duration = "100ms";
        /// Minimum time between the starts of two commits, in addition to `push-share`.
        commit_interval: Duration = "0s";
        /// Maximum time for open streams and requests to finish after a termination signal.
        shutdown_duration as "shutdownDuration": Duration = "10s";
        /// Log level (off, error, warn, info, debug, trace), optionally followed by levels of single targets, as in
        /// `info,xds=debug`.
        log_level: LogFilter = "info";
        /// Format of log lines.
        log_format: LogFormat = "text";
    }
}
