//! Bytes of a Secret that is said to be a kubeconfig → one that may be used, or why not. Nothing may panic or hang; what is not
//! allowed is not in what is used; and a refusal repeats nothing of the text.

#![no_main]

use libfuzzer_sys::fuzz_target;
use sources::clusters::{Allowed, Kubeconfig};

/// A word that stands for a secret.
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
            assert_eq!(format!("{kubeconfig:?}"), "Kubeconfig", "it is shown");
        }
        Err(refusal) => {
            let said = format!("{refusal:?}");
            assert!(!said.contains(TOKEN), "a token is repeated: {said}");
        }
    }
});
