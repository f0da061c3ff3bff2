//! Parses the bytes of a node message as a proxy. Nothing may panic, and parsed proxies respect the limits.

#![no_main]

use envoy::decode_node;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| match decode_node(xds::Bytes::copy_from_slice(bytes)) {
    Ok(proxy) => {
        assert!(!proxy.addresses.is_empty() && proxy.addresses.len() <= 65);
        assert!(!proxy.namespace.is_empty() && !proxy.dns_domain.is_empty());
        assert!(
            proxy
                .labels
                .iter()
                .all(|(name, value)| name.len() <= 1024 && value.len() <= 1024)
        );
    }
    Err(error) => assert!(error.to_string().len() < 4096, "the error is too long"),
});
