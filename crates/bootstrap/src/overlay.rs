//! `ISTIO_BOOTSTRAP_OVERRIDE`: configuration that Envoy merges over the bootstrap (`--config-yaml`).

use config::{Limits, parse_yaml_json};

use crate::diagnostic::Diagnostics;

const HOST_IP: &str = "$(HOST_IP)";

/// The text of an overriding file, in YAML or JSON, as JSON for Envoy's argument `--config-yaml`. `$(HOST_IP)` is replaced. A
/// text that is not valid gives a diagnostic and none.
#[must_use]
pub fn overlay_json(text: &str, host_ip: &str, diagnostics: &mut Diagnostics) -> Option<String> {
    let place = "ISTIO_BOOTSTRAP_OVERRIDE";
    let text = if host_ip.contains(':') {
        // An address of IPv6 needs brackets; some files already have them.
        let bracketed = format!("[{host_ip}]");
        text.replace(&format!("[{HOST_IP}]"), &bracketed).replace(HOST_IP, &bracketed)
    } else {
        text.replace(HOST_IP, host_ip)
    };
    let parsed = parse_yaml_json(text.as_bytes(), "", &Limits::default());
    parsed.errors.iter().for_each(|error| diagnostics.add(place, error));
    let value = parsed.documents.into_iter().next()?.value;
    if !value.is_object() {
        diagnostics.add(place, "is not an object; it is ignored");
        return None;
    }
    Some(value.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_address_of_the_host_is_replaced() {
        let cases = [
            ("a: '$(HOST_IP):1'", "10.0.0.1", r#"{"a":"10.0.0.1:1"}"#),
            ("a: '$(HOST_IP):1'\nb: '[$(HOST_IP)]:2'", "fd00::1", r#"{"a":"[fd00::1]:1","b":"[fd00::1]:2"}"#),
            (r#"{"a": [1, true]}"#, "", r#"{"a":[1,true]}"#),
        ];
        for (text, host_ip, expected) in cases {
            assert_eq!(overlay_json(text, host_ip, &mut Diagnostics::default()).as_deref(), Some(expected));
        }
        for wrong in ["a: b: c", "- 1"] {
            let mut diagnostics = Diagnostics::default();
            assert_eq!(overlay_json(wrong, "", &mut diagnostics), None);
            assert_eq!(diagnostics.0.len(), 1, "{wrong}");
        }
    }
}
