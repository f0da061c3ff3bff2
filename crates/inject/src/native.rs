//! Native sidecars: init containers that run as long as the pod.

/// The first minor version of Kubernetes 1 whose kubelets support native sidecars in every configuration.
const MINOR: u64 = 33;

/// Whether a kubelet of this version (`v1.33.1-gke.1`) supports native sidecars.
pub fn supports_native_sidecars(kubelet: &str) -> bool {
    let mut parts = kubelet.trim_start_matches('v').split(['.', '-', '+']);
    let mut number = || parts.next()?.parse::<u64>().ok();
    match (number(), number()) {
        (Some(1), Some(minor)) => minor >= MINOR,
        (Some(major), Some(_)) => major > 1,
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions() {
        for (version, expected) in [
            ("v1.33.0", true),
            ("v1.32.9", false),
            ("1.36.3", true),
            ("v1.33.1-gke.100", true),
            ("v2.0.0", true),
            ("v1.33+", true),
            ("", false),
            ("v1", false),
            ("latest", false),
        ] {
            assert_eq!(supports_native_sidecars(version), expected, "{version}");
        }
    }
}
