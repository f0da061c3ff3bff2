//! WorkloadEntry and WorkloadGroup: workloads that are no Pods.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::object::StringMap;

message! {
    /// One workload, such as a virtual machine; also an endpoint inside a ServiceEntry.
    pub struct WorkloadEntry where [
        rule "!has(self.address) || !self.address.startsWith('unix://') || !has(self.ports)" "a Unix socket has no ports",
    ] {
        /// An IP address, a DNS name (for services that are resolved by DNS), or `unix:///path`.
        pub address: Arc<str> where [max 256, rule "!self.startsWith('unix://') || self.startsWith('unix:///') || self.startsWith('unix://@')" "a Unix socket is an absolute path or begins with @", rule "!self.startsWith('unix://') || !self.endsWith('/')" "a Unix socket is no directory"],
        /// Port numbers by the names of service ports; a missing one means the service's target port.
        pub ports: BTreeMap<Arc<str>, u32> where [max 128, rule "self.all(name, size(name) < 63 && name.matches('^[a-zA-Z0-9]([-a-zA-Z0-9]*[a-zA-Z0-9])?$'))" "names of ports have letters, digits and dashes, 62 at most", values(min 1, max 65535)],
        /// Labels by which services and subsets select the workload, together with those of the object.
        pub labels: StringMap where [max 256],
        /// The network that the address belongs to.
        pub network: Arc<str> where [max 2048],
        /// `region/zone/subzone`.
        pub locality: Arc<str> where [max 2048],
        /// The share of traffic among endpoints; 0 counts as 1.
        pub weight: u32,
        /// The service account of the workload.
        pub service_account: Arc<str> where [max 253],
    }
}

message! {
    /// What the entries of a group of workloads have in common, for workloads that register themselves.
    pub struct WorkloadGroup {
        /// Metadata for the entries.
        pub metadata: Option<WorkloadGroupMetadata>,
        /// The entry to copy; its address stays empty.
        pub template: Option<WorkloadEntry> where [required],
        /// How a workload's health is checked.
        pub probe: Option<ReadinessProbe>,
    }
}

message! {
    /// Metadata that a WorkloadGroup gives to its entries.
    pub struct WorkloadGroupMetadata {
        /// Labels.
        pub labels: StringMap where [max 256],
        /// Annotations.
        pub annotations: StringMap where [max 256],
    }
}

message! {
    /// Selects workloads by labels.
    pub struct WorkloadSelector {
        /// The labels that a workload must have; empty selects all.
        pub labels: StringMap where [max 256, values(max 63, rule "!self.contains('*')" "labels are compared as they are: no wildcards")],
    }
}

message! {
    /// How and how often a workload is probed.
    pub struct ReadinessProbe {
        /// Seconds before the first probe.
        pub initial_delay_seconds: i32 where [min 0],
        /// Seconds until a probe has failed; 0 means 1.
        pub timeout_seconds: i32 where [min 0],
        /// Seconds between probes; 0 means 10.
        pub period_seconds: i32 where [min 0],
        /// Successes in a row that make a failed workload healthy; 0 means 1.
        pub success_threshold: i32 where [min 0],
        /// Failures in a row that make a workload unhealthy; 0 means 3.
        pub failure_threshold: i32 where [min 0],
        /// The probe itself.
        pub method: Option<HealthCheck>,
    }
}

oneof! {
    /// The sorts of probes.
    pub enum HealthCheck {
        /// A GET request that must be answered with 200 to 399.
        HttpGet(HttpCheck) = "httpGet",
        /// A connection that must open.
        TcpSocket(TcpCheck) = "tcpSocket",
        /// A command that must exit with 0.
        Exec(ExecCheck) = "exec",
        /// gRPC's health service.
        Grpc(GrpcCheck) = "grpc",
    }
}

message! {
    /// A GET request as a probe.
    pub struct HttpCheck {
        /// The path.
        pub path: Arc<str>,
        /// The port.
        pub port: u32 where [required, min 1, max 65535],
        /// The host; empty means localhost.
        pub host: Arc<str>,
        /// `HTTP` or `HTTPS`.
        pub scheme: Arc<str> where [values_of ["", "HTTP", "HTTPS"]],
        /// Headers to send.
        pub http_headers: Vec<HttpCheckHeader>,
    }
}

message! {
    /// A header of a probe.
    pub struct HttpCheckHeader {
        /// The name.
        pub name: Arc<str> where [pattern "^[-_A-Za-z0-9]+$"],
        /// The value.
        pub value: Arc<str>,
    }
}

message! {
    /// A connection as a probe.
    pub struct TcpCheck {
        /// The host; empty means localhost.
        pub host: Arc<str>,
        /// The port.
        pub port: u32 where [required, min 1, max 65535],
    }
}

message! {
    /// A command as a probe.
    pub struct ExecCheck {
        /// The command with its arguments; no shell is involved.
        pub command: Vec<Arc<str>> where [required, items(min 1)],
    }
}

message! {
    /// gRPC's health service as a probe.
    pub struct GrpcCheck {
        /// The port.
        pub port: u32 where [min 1, max 65535],
        /// The service to ask about; empty asks about the server.
        pub service: Arc<str>,
    }
}
