//! Parses the bytes of a Secret as a kubeconfig. Nothing may panic or hang, disallowed fields have no effect, and
//! errors contain no part of the text.

#![no_main]

use libfuzzer_sys::fuzz_target;
use sources::clusters::{Allowed, Kubeconfig};

/// A word that represents a secret.
const TOKEN: &str = "s3cr3t-t0k3n-0123456789";

fuzz_target!(|input: (&[u8], bool)| {
    let (bytes, embedded) = input;
    let whole;
    let bytes = match embedded {
        true => {
            let user = String::from_utf8_lossy(bytes);
            whole = format!(
                "{{current-context: c, contexts: [{{name: c, context: {{cluster: k, user: u}}}}], clusters: [{{name: k, cluster: \
                 {{server: \"https://127.0.0.1\"}}}}], users: [{{name: u, user: {{token: {TOKEN}, {user}}}}}]}}"
            );
            whole.as_bytes()
        }
        false => bytes,
    };
    match Kubeconfig::read(bytes, Allowed::default()) {
        Ok(kubeconfig) => {
            let _ = kubeconfig.cluster();
            assert_eq!(format!("{kubeconfig:?}"), "Kubeconfig", "Debug shows the contents");
        }
        Err(refusal) => {
            let shown = format!("{refusal:?}");
            assert!(!shown.contains(TOKEN), "the error contains the token: {shown}");
        }
    }
});
