//! WorkloadEntry and WorkloadGroup: workloads that are not Pods.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::object::StringMap;

message! {
    /// Workload that is not a Pod, such as a virtual machine. Also used for the endpoints of a ServiceEntry.
    pub struct WorkloadEntry: Relations where [
        rule "!has(self.address) || !self.address.startsWith('unix://') || !has(self.ports)" "ports must be empty for a Unix domain socket",
    ] {
        /// Address of the workload: an IP address, a DNS name (for services with DNS resolution) or `unix:///path`.
        pub address: Arc<str> where [max 256, rule "!self.startsWith('unix://') || self.startsWith('unix:///') || self.startsWith('unix://@')" "a Unix domain socket must be an absolute path or start with @", rule "!self.startsWith('unix://') || !self.endsWith('/')" "a Unix domain socket must not be a directory"],
        /// Port numbers, by name of the service port. Ports that are not listed use the target port of the service.
        pub ports: BTreeMap<Arc<str>, u32> where [
            max 128,
            rule "self.all(name, size(name) < 63 && name.matches('^[a-zA-Z0-9]([-a-zA-Z0-9]*[a-zA-Z0-9])?$'))" "port names must consist of letters, digits and dashes and be shorter than 63 characters",
            values(min 1, max 65535), keys(label),
        ],
        /// Labels of the workload, in addition to those of the object. Services and subsets select workloads by label.
        pub labels: StringMap where [max 256, keys(label_key), is label_value],
        /// Network that the address belongs to.
        pub network: Arc<str> where [max 2048],
        /// Locality of the workload, as `region/zone/subzone`.
        pub locality: Arc<str> where [max 2048],
        /// Load balancing weight relative to other endpoints. 0 means 1.
        pub weight: u32,
        /// Service account of the workload.
        pub service_account: Arc<str> where [max 253],
    }
}

message! {
    /// Template for workloads that register themselves.
    pub struct WorkloadGroup {
        /// Metadata for the generated WorkloadEntries.
        pub metadata: Option<WorkloadGroupMetadata>,
        /// Template of the WorkloadEntries. Its address must be empty.
        pub template: Option<WorkloadEntry> where [required],
        /// Health check of the workload.
        pub probe: Option<ReadinessProbe> where [
            inform "not-served" "this is for the agents of the group's workloads, which probe the application \
                 and say whether it is healthy; nothing is served because of it",
        ],
    }
}

message! {
    /// Metadata for the WorkloadEntries of a WorkloadGroup.
    pub struct WorkloadGroupMetadata {
        /// Labels.
        pub labels: StringMap where [max 256, keys(label_key), is label_value],
        /// Annotations.
        pub annotations: StringMap where [max 256],
    }
}

message! {
    /// Selects workloads by label.
    pub struct WorkloadSelector {
        /// Labels that a workload must have. If empty, all workloads are selected.
        pub labels: StringMap where [
            max 256, values(max 63, rule "!self.contains('*')" "wildcards are not supported in label values"),
            keys(selector_key), is selector_value,
            wanted "no-effect" "the selector has no labels and selects all workloads in the namespace",
        ],
    }
}

message! {
    /// Health check of a workload and its timing.
    pub struct ReadinessProbe where [any(httpGet, tcpSocket, exec, grpc)] {
        /// Delay before the first probe, in seconds.
        pub initial_delay_seconds: i32 where [min 0],
        /// Timeout of a probe, in seconds. 0 means 1.
        pub timeout_seconds: i32 where [min 0],
        /// Time between probes, in seconds. 0 means 10.
        pub period_seconds: i32 where [min 0],
        /// Number of consecutive successes after which an unhealthy workload is considered healthy. 0 means 1.
        pub success_threshold: i32 where [min 0],
        /// Number of consecutive failures after which a workload is considered unhealthy. 0 means 3.
        pub failure_threshold: i32 where [min 0],
        /// Type of the probe.
        pub method: Option<HealthCheck>,
    }
}

oneof! {
    /// Type of a probe.
    pub enum HealthCheck {
        /// HTTP GET request. Succeeds on a status code from 200 to 399.
        HttpGet(HttpCheck) = "httpGet",
        /// TCP connection. Succeeds if the connection is established.
        TcpSocket(TcpCheck) = "tcpSocket",
        /// Command. Succeeds on exit code 0.
        Exec(ExecCheck) = "exec",
        /// Request to the gRPC health service.
        Grpc(GrpcCheck) = "grpc",
    }
}

message! {
    /// Probe by HTTP GET request.
    pub struct HttpCheck {
        /// Path of the request.
        pub path: Arc<str>,
        /// Port to connect to.
        pub port: u32 where [required, min 1, max 65535],
        /// Host to connect to. Defaults to localhost.
        pub host: Arc<str>,
        /// Scheme: `HTTP` or `HTTPS`.
        pub scheme: Arc<str> where [values_of ["", "HTTP", "HTTPS"]],
        /// Headers of the request.
        pub http_headers: Vec<HttpCheckHeader>,
    }
}

message! {
    /// Header of a probe request.
    pub struct HttpCheckHeader {
        /// Name of the header.
        pub name: Arc<str> where [pattern "^[-_A-Za-z0-9]+$", needed],
        /// Value of the header.
        pub value: Arc<str>,
    }
}

message! {
    /// Probe by TCP connection.
    pub struct TcpCheck {
        /// Host to connect to. Defaults to localhost.
        pub host: Arc<str>,
        /// Port to connect to.
        pub port: u32 where [required, min 1, max 65535],
    }
}

message! {
    /// Probe by command.
    pub struct ExecCheck {
        /// Command and its arguments. It is not run in a shell.
        pub command: Vec<Arc<str>> where [required, items(min 1), needed],
    }
}

message! {
    /// Probe of the gRPC health service.
    pub struct GrpcCheck {
        /// Port to connect to.
        pub port: u32 where [min 1, max 65535, needed],
        /// Name of the service to check. If empty, the health of the server as a whole is checked.
        pub service: Arc<str>,
    }
}
