//! Limits for clients.

use bytes::Bytes;
use protos::envoy::service::discovery::v3::{DeltaDiscoveryRequest, DiscoveryRequest};
use protos::google::rpc::Status;
use xds::decode::Body;
use xds::{Code, DecodeError, Limits, Next, Request, Variant, decode_delta, decode_sotw};

use crate::client::Client;
use crate::harness::*;

#[test]
fn requests_encoded_by_prost_are_decoded() {
    let limits = Limits { error_bytes: 4, ..Limits::default() };
    let error = Some(Status { code: 13, message: "too long a story".into(), ..Status::default() });
    let sotw = DiscoveryRequest {
        version_info: "v".into(),
        resource_names: vec!["a".into(), "b".into()],
        type_url: "t".into(),
        response_nonce: "n".into(),
        error_detail: error.clone(),
        node: Some(protos::envoy::config::core::v3::Node { id: "id".into(), ..Default::default() }),
        ..DiscoveryRequest::default()
    };
    let read = decode_sotw(&protos::encode(&sotw), &limits).unwrap();
    assert_eq!((&*read.type_url, &*read.nonce, read.error.as_deref()), ("t", "n", Some("too ")));
    assert_eq!(read.node, Some(Bytes::from_static(b"\x0a\x02id")));
    assert_eq!(read.body, Body::Sotw { version: "v".into(), names: ["a", "b"].into_iter().collect() });

    let delta = DeltaDiscoveryRequest {
        type_url: "t".into(),
        resource_names_subscribe: vec!["a".into()],
        resource_names_unsubscribe: vec!["b".into()],
        initial_resource_versions: [("c".to_owned(), "1".to_owned()), ("d".to_owned(), String::new())].into(),
        response_nonce: "n".into(),
        error_detail: error,
        ..DeltaDiscoveryRequest::default()
    };
    let read = decode_delta(&protos::encode(&delta), &limits).unwrap();
    assert_eq!((&*read.type_url, &*read.nonce, read.error.as_deref()), ("t", "n", Some("too ")));
    let (subscribe, unsubscribe) = (["a"].into_iter().collect(), ["b"].into_iter().collect());
    let initial = [("c", "1"), ("d", "")].into_iter().collect();
    assert_eq!(read.body, Body::Delta { subscribe, unsubscribe, initial });
}

#[test]
fn requests_beyond_a_limit_are_rejected() {
    let limits = Limits { names: 2, name_bytes: 4, node_bytes: 8, ..Limits::default() };
    let rejected = |request: DiscoveryRequest| decode_sotw(&protos::encode(&request), &limits).unwrap_err();
    let names = |names: &[&str]| DiscoveryRequest {
        resource_names: names.iter().map(|name| (*name).to_owned()).collect(),
        ..DiscoveryRequest::default()
    };
    assert_eq!(rejected(names(&["a", "b", "c"])), DecodeError::TooMany(2));
    assert_eq!(rejected(names(&["12345"])), DecodeError::TooLong { what: "resource name", limit: 4 });
    assert_eq!(rejected(names(&[""])), DecodeError::EmptyName);
    let node = protos::envoy::config::core::v3::Node { id: "123456789".into(), ..Default::default() };
    let request = DiscoveryRequest { node: Some(node), ..DiscoveryRequest::default() };
    assert_eq!(rejected(request), DecodeError::TooLong { what: "node", limit: 8 });
    let initial = [("a", ""), ("b", ""), ("c", "")].map(|(name, version)| (name.to_owned(), version.to_owned()));
    let request = DeltaDiscoveryRequest { initial_resource_versions: initial.into(), ..Default::default() };
    assert_eq!(decode_delta(&protos::encode(&request), &limits).unwrap_err(), DecodeError::TooMany(2));
    let limits = Limits { request_bytes: 1000, ..limits };
    let large = Bytes::from(vec![0; limits.request_bytes + 1]);
    assert!(matches!(decode_delta(&large, &limits), Err(DecodeError::TooLong { what: "message", .. })));
    assert_eq!(decode_sotw(&Bytes::from_static(b"\x1a\x02\xff\xff"), &limits), Err(DecodeError::Text("resource name")));
    assert_eq!(decode_sotw(&Bytes::from_static(b"\x1a\x7f"), &limits), Err(DecodeError::Malformed));
}

#[test]
fn subscriptions_are_bounded_over_many_requests() {
    let mut h = Harness::with(Limits { names: 3, ..Limits::default() });
    let mut client = Client::new(&mut h, Variant::Delta);
    client.subscribe(&mut h, EDS, &["a", "b"]);
    let error = h.request(client.id, subscribe(EDS, &["c", "d"], &[])).unwrap_err();
    assert_eq!(error.code, Code::ResourceExhausted);
    assert_eq!(h.request(client.id, subscribe(EDS, &["c", "d"], &["a"])), Ok(()));
    client.subscribe(&mut h, CDS, &["*"]);
    assert!(h.request(client.id, subscribe(CDS, &["a", "b", "c", "d"], &[])).is_err());
}

#[test]
fn request_floods_end_the_stream_and_answers_do_not_count() {
    let mut h = Harness::with(Limits { request_burst: 10, requests_per_second: 1, ..Limits::default() });
    h.change(&[(EDS, "a", 1)]);
    let mut client = Client::new(&mut h, Variant::Delta);
    client.subscribe(&mut h, EDS, &["a"]);
    client.drain(&mut h);
    for number in 2..100 {
        h.change(&[(EDS, "a", number)]);
        assert_eq!(client.drain(&mut h), [format!("EDS a={number}")]);
    }
    let mut ask = || h.request(client.id, subscribe(EDS, &["a"], &[]));
    assert_eq!((0..9).filter(|_| ask().is_ok()).count(), 9);
    assert_eq!(ask().unwrap_err().code, Code::ResourceExhausted);
}

#[test]
fn an_answer_that_also_subscribes_counts_as_a_request() {
    let mut h = Harness::with(Limits { request_burst: 10, requests_per_second: 1, ..Limits::default() });
    h.change(&[(EDS, "a", 1), (EDS, "b", 1)]);
    let mut client = Client::new(&mut h, Variant::Delta);
    client.subscribe(&mut h, EDS, &["a"]);
    let mut answered = 0;
    loop {
        assert_eq!(client.take(&mut h).len(), 1, "a response");
        let request = Request { nonce: client.last(EDS).nonce.clone(), ..subscribe(EDS, &["a"], &[]) };
        match h.request(client.id, request) {
            Ok(()) => answered += 1,
            Err(error) => {
                assert_eq!(error.code, Code::ResourceExhausted);
                break;
            }
        }
        assert!(answered < 100);
    }
    assert_eq!(answered, 9);
}

#[test]
fn all_resources_of_a_type_are_not_sent_again_without_end() {
    for variant in [Variant::Delta, Variant::Sotw] {
        let mut h = Harness::with(Limits { wildcard_burst: 3, wildcards_per_second: 1, ..Limits::default() });
        h.change(&[(CDS, "a", 1)]);
        let mut client = Client::new(&mut h, variant);
        client.subscribe(&mut h, CDS, &[]);
        let again = || match variant {
            Variant::Delta => subscribe(CDS, &["*"], &[]),
            Variant::Sotw => sotw(CDS, &[], "", ""),
        };
        client.drain(&mut h);
        let mut sent = 1;
        while h.request(client.id, again()).is_ok() {
            sent += 1;
            assert!(sent < 10, "{variant:?}");
            client.drain(&mut h);
        }
        assert_eq!(sent, 3, "{variant:?}");
    }
}

#[test]
fn a_client_may_subscribe_to_many_names_in_requests_of_their_own() {
    let mut h = Harness::with(Limits::default());
    let mut client = Client::new(&mut h, Variant::Delta);
    for number in 0..2_000 {
        client.subscribe(&mut h, EDS, &[&format!("credential-{number}")]);
    }
    // SotW repeats the names that stay.
    let mut client = Client::new(&mut h, Variant::Sotw);
    let all: Vec<String> = (0..1_200).map(|number| format!("credential-{number}")).collect();
    let all: Vec<&str> = all.iter().map(String::as_str).collect();
    for count in 1..=all.len() {
        client.subscribe(&mut h, EDS, &all[..count]);
    }
}

#[test]
fn unserved_types_are_recorded_and_not_answered() {
    let mut h = Harness::with(Limits { unserved_types: 2, ..Limits::default() });
    let mut client = Client::new(&mut h, Variant::Sotw);
    for name in ["one", "two", "one", "three"] {
        h.request(client.id, Request { type_url: name.to_owned(), ..sotw(CDS, &["x"], "", "") }).unwrap();
    }
    assert_eq!(client.take(&mut h), [""; 0]);
    let unserved = h.hub.status(client.id).unwrap().unserved;
    assert_eq!(unserved.iter().map(|name| &**name).collect::<Vec<_>>(), ["one", "two"]);
}

#[test]
fn a_request_of_the_other_variant_ends_the_stream() {
    let mut h = Harness::small();
    let client = Client::new(&mut h, Variant::Sotw);
    assert_eq!(h.request(client.id, delta(CDS)).unwrap_err().code, Code::InvalidArgument);
}

#[test]
fn a_rejected_proxy_receives_the_reason() {
    let mut h = Harness::small();
    h.world.refuse = true;
    let sidecar = proxy(model::proxy::ProxyKind::Sidecar);
    let error = h.hub.connect(&mut h.world, sidecar, Variant::Delta, h.now).unwrap_err();
    assert_eq!((error.code, &*error.message), (Code::InvalidArgument, "not today"));
}

#[test]
fn a_stream_that_lags_too_far_behind_is_ended() {
    let mut h = Harness::with(Limits { removed_names: 100, ..Limits::default() });
    let mut stuck = Client::new(&mut h, Variant::Delta);
    stuck.subscribe(&mut h, CDS, &[]);
    assert_eq!(stuck.take(&mut h), ["CDS"]);
    let mut good = Client::new(&mut h, Variant::Delta);
    good.subscribe(&mut h, CDS, &[]);
    good.drain(&mut h);
    for number in 0..400 {
        let name = format!("c{number}");
        h.change(&[(CDS, &name, 1)]);
        good.drain(&mut h);
        h.change(&[(CDS, &name, 0)]);
        good.drain(&mut h);
    }
    let Next::End(status) = h.hub.next(stuck.id, h.now) else { panic!("the stream is not ended") };
    assert_eq!(status.code, Code::Unavailable);
    h.disconnect(stuck.id);
    h.change(&[(CDS, "x", 1)]);
    assert_eq!(good.drain(&mut h), ["CDS x=1"]);
    h.change(&[(CDS, "x", 0)]);
    assert!(h.hub.sizes()[3].1 < 200, "{:?}", h.hub.sizes());
}
