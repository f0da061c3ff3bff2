//! Decodes discovery requests of both variants. Nothing may panic, decoded requests respect the limits, and requests
//! that prost encodes are decoded unchanged.

#![no_main]

use xds::decode::{Body, Texts};
use xds::{Bytes, Limits, decode_delta, decode_sotw};
use libfuzzer_sys::fuzz_target;
use protos::Message;
use protos::envoy::service::discovery::v3::{DeltaDiscoveryRequest, DiscoveryRequest};

fuzz_target!(|bytes: &[u8]| {
    let limits = Limits { names: 16, name_bytes: 64, node_bytes: 256, error_bytes: 32, ..Limits::default() };
    let message = Bytes::copy_from_slice(bytes);
    let _ = sotw(&message, &limits);
    let _ = delta(&message, &limits);

    if let Ok(written) = DiscoveryRequest::decode(bytes)
        && let Some((version, names)) = sotw(&protos::encode(&written), &limits)
    {
        assert_eq!(version, written.version_info);
        assert!(names.iter().eq(written.resource_names.iter().map(String::as_str)));
    }
    if let Ok(written) = DeltaDiscoveryRequest::decode(bytes)
        && let Some((subscribe, unsubscribe)) = delta(&protos::encode(&written), &limits)
    {
        assert!(subscribe.iter().eq(written.resource_names_subscribe.iter().map(String::as_str)));
        assert!(unsubscribe.iter().eq(written.resource_names_unsubscribe.iter().map(String::as_str)));
    }
});

fn sotw(message: &Bytes, limits: &Limits) -> Option<(String, Texts)> {
    let Body::Sotw { version, names } = decode_sotw(message, limits).ok()?.body else { panic!("another variant") };
    check(&names, limits);
    Some((version, names))
}

fn delta(message: &Bytes, limits: &Limits) -> Option<(Texts, Texts)> {
    let request = decode_delta(message, limits).ok()?;
    let Body::Delta { subscribe, unsubscribe, initial } = request.body else { panic!("another variant") };
    [&subscribe, &unsubscribe, initial.names()].into_iter().for_each(|names| check(names, limits));
    assert_eq!(initial.names().len(), initial.len());
    Some((subscribe, unsubscribe))
}

fn check(names: &Texts, limits: &Limits) {
    assert!(names.len() <= limits.names);
    assert!(names.iter().all(|name| !name.is_empty() && name.len() <= limits.name_bytes));
}
