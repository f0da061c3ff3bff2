//! Checks of the annotations that templates read.

use std::net::IpAddr;

use config::mesh::{PROXY_CONFIG_ANNOTATION, ProxyConfigLayer};
use config::parse_bool;
use serde_json::Value;

use crate::pod::{annotations, full_name};
use crate::{Error, INTERCEPTION_MODE, STATUS_PORT};

type Check = fn(&str) -> Result<(), String>;

/// The annotations with a form, and their checks.
const CHECKS: &[(&str, Check)] = &[
    (INTERCEPTION_MODE, interception_mode),
    (STATUS_PORT, port),
    ("readiness.status.sidecar.istio.io/initialDelaySeconds", number),
    ("readiness.status.sidecar.istio.io/periodSeconds", number),
    ("readiness.status.sidecar.istio.io/failureThreshold", number),
    ("traffic.sidecar.istio.io/includeOutboundIPRanges", ranges_or_all),
    ("traffic.sidecar.istio.io/excludeOutboundIPRanges", ranges),
    ("traffic.sidecar.istio.io/includeInboundPorts", ports_or_all),
    ("traffic.sidecar.istio.io/excludeInboundPorts", ports),
    ("traffic.sidecar.istio.io/excludeOutboundPorts", ports),
    ("traffic.sidecar.istio.io/excludeInterfaces", interfaces),
    ("traffic.sidecar.istio.io/kubevirtInterfaces", interfaces),
    ("istio.io/reroute-virtual-interfaces", interfaces),
    ("prometheus.istio.io/merge-metrics", boolean),
    (PROXY_CONFIG_ANNOTATION, proxy_config),
    ("sidecar.istio.io/proxyCPU", quantity),
    ("sidecar.istio.io/proxyMemory", quantity),
    ("sidecar.istio.io/proxyCPULimit", quantity),
    ("sidecar.istio.io/proxyMemoryLimit", quantity),
];

/// Checks all annotations of a pod.
pub(crate) fn check(pod: &Value) -> Result<(), Error> {
    let problems: Vec<String> = annotations(pod)
        .filter_map(|(name, value)| {
            let (_, check) = CHECKS.iter().find(|(known, _)| *known == name)?;
            check(value).err().map(|problem| format!("{name} {value:?}: {problem}"))
        })
        .collect();
    match problems.is_empty() {
        true => Ok(()),
        false => Err(Error::Annotations { pod: full_name(pod), problems: problems.join("; ") }),
    }
}

fn interception_mode(value: &str) -> Result<(), String> {
    match value {
        "REDIRECT" | "TPROXY" | "NONE" => Ok(()),
        _ => Err("expected REDIRECT, TPROXY or NONE".to_owned()),
    }
}

fn port(value: &str) -> Result<(), String> {
    value.trim().parse::<u16>().map(drop).map_err(|_| "expected a port from 0 to 65535".to_owned())
}

fn ports(value: &str) -> Result<(), String> {
    match value.trim() {
        "" => Ok(()),
        list => list.split(',').try_for_each(|one| port(one).map_err(|_| format!("{one:?} is not a port"))),
    }
}

fn ports_or_all(value: &str) -> Result<(), String> {
    if value == "*" { Ok(()) } else { ports(value).map_err(|problem| format!("{problem}; `*` stands for all")) }
}

fn number(value: &str) -> Result<(), String> {
    value.parse::<u32>().map(drop).map_err(|_| "expected a number that is not negative".to_owned())
}

fn boolean(value: &str) -> Result<(), String> {
    parse_bool(value).map(drop).ok_or_else(|| "expected true or false".to_owned())
}

fn ranges(value: &str) -> Result<(), String> {
    if value.is_empty() {
        return Ok(());
    }
    value.split(',').try_for_each(|range| match is_range(range) {
        true => Ok(()),
        false => Err(format!("{range:?} is not an IP range such as 10.0.0.0/8")),
    })
}

fn ranges_or_all(value: &str) -> Result<(), String> {
    if value == "*" { Ok(()) } else { ranges(value).map_err(|problem| format!("{problem}; `*` stands for all")) }
}

fn is_range(text: &str) -> bool {
    let Some((address, length)) = text.split_once('/') else { return false };
    let Ok(address) = address.parse::<IpAddr>() else { return false };
    let digits = !length.is_empty() && length.bytes().all(|byte| byte.is_ascii_digit());
    let most = if address.is_ipv4() { 32 } else { 128 };
    digits && (length == "0" || !length.starts_with('0')) && length.parse::<u8>().is_ok_and(|length| length <= most)
}

/// Names of network interfaces, separated by commas. Linux allows 15 bytes without `/` and spaces.
fn interfaces(value: &str) -> Result<(), String> {
    if value.is_empty() {
        return Ok(());
    }
    value.split(',').map(str::trim).try_for_each(|name| {
        let fits = !name.is_empty()
            && name.len() <= 15
            && !matches!(name, "." | "..")
            && name.bytes().all(|byte| byte.is_ascii_graphic() && !matches!(byte, b'/' | b':' | b'"' | b'\'' | b'\\'));
        if fits { Ok(()) } else { Err(format!("{name:?} is not the name of a network interface")) }
    })
}

fn proxy_config(value: &str) -> Result<(), String> {
    ProxyConfigLayer::parse(value).map(drop).map_err(|error| error.to_string())
}

/// A quantity of Kubernetes: `100m`, `1.5Gi`, `1e3`.
fn quantity(value: &str) -> Result<(), String> {
    let unsigned = value.strip_prefix(['+', '-']).unwrap_or(value);
    let end = unsigned.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(unsigned.len());
    let (digits, suffix) = unsigned.split_at(end);
    let is_number = digits.bytes().any(|byte| byte.is_ascii_digit()) && digits.matches('.').count() <= 1;
    let exponent = || {
        let exponent = suffix.strip_prefix(['e', 'E']).map(|rest| rest.strip_prefix(['+', '-']).unwrap_or(rest));
        exponent.is_some_and(|digits| !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit()))
    };
    const SUFFIXES: [&str; 16] = ["", "n", "u", "m", "k", "M", "G", "T", "P", "E", "Ki", "Mi", "Gi", "Ti", "Pi", "Ei"];
    match is_number && (SUFFIXES.contains(&suffix) || exponent()) {
        true => Ok(()),
        false => Err("expected a quantity such as 100m or 128Mi".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantities_and_ranges() {
        for good in ["100m", "1.5Gi", "1e3", "0", "-1", ".5", "2E"] {
            assert_eq!(quantity(good), Ok(()), "{good}");
        }
        for bad in ["", "m", "1 Gi", "1gb", "1e", "1.2.3", "1\nx"] {
            assert!(quantity(bad).is_err(), "{bad:?}");
        }
        assert!(ranges_or_all("10.0.0.0/8,fd00::/8").is_ok() && ranges("").is_ok());
        for bad in ["10.0.0.0", "10.0.0.0/33", "10.0.0.0/08", "x/8", "10.0.0.0/8, 10.1.0.0/16"] {
            assert!(ranges(bad).is_err(), "{bad}");
        }
        assert!(interfaces("eth0, net1").is_ok() && interfaces("eth0;rm").is_ok() && interfaces("a b").is_err());
        assert!(
            ports("80, 90").is_ok() && ports("80,x").is_err() && ports_or_all("*").is_ok() && port("70000").is_err()
        );
    }
}
