//! Bytes of a stream → requests of both variants. Nothing may panic, what is read keeps to the limits, and what our
//! reader takes is what prost reads.

#![no_main]

use ads::decode::{Body, Texts};
use ads::{Limits, decode_delta, decode_sotw};
use libfuzzer_sys::fuzz_target;
use protos::Message;
use protos::envoy::service::discovery::v3::{DeltaDiscoveryRequest, DiscoveryRequest};

fuzz_target!(|bytes: &[u8]| {
    let limits = Limits { names: 16, name_bytes: 64, node_bytes: 256, error_bytes: 32, ..Limits::default() };
    let message = ads::Bytes::copy_from_slice(bytes);
    if let Ok(request) = decode_sotw(&message, &limits) {
        let Body::Sotw { version, names } = &request.body else { panic!("another variant") };
        check(names, &limits);
        if let Ok(expected) = DiscoveryRequest::decode(bytes) {
            assert_eq!((version, &request.type_url), (&expected.version_info, &expected.type_url));
            assert_eq!(request.nonce, expected.response_nonce);
            assert!(names.iter().eq(expected.resource_names.iter().map(String::as_str)));
        }
    }
    if let Ok(request) = decode_delta(&message, &limits) {
        let Body::Delta { subscribe, unsubscribe, initial } = &request.body else { panic!("another variant") };
        [subscribe, unsubscribe, &initial.0].into_iter().for_each(|names| check(names, &limits));
        assert_eq!(initial.0.len(), initial.1.len());
        if let Ok(expected) = DeltaDiscoveryRequest::decode(bytes) {
            assert!(subscribe.iter().eq(expected.resource_names_subscribe.iter().map(String::as_str)));
            assert!(unsubscribe.iter().eq(expected.resource_names_unsubscribe.iter().map(String::as_str)));
        }
    }
});

fn check(names: &Texts, limits: &Limits) {
    assert!(names.len() <= limits.names);
    assert!(names.iter().all(|name| !name.is_empty() && name.len() <= limits.name_bytes));
}
