//! Parses EnvoyFilters and applies them to arbitrary messages. Nothing may panic, and a modified message can be decoded
//! again.
#![no_main]

use libfuzzer_sys::fuzz_target;
use model::service::ObjectId;
use envoy_filter::{CompiledFilter, Outcomes, apply};
use protos::dynamic::{DynamicMessage, descriptor, encode_dynamic};
use config::{AnyObject, ParseOptions, parse_documents};

fuzz_target!(|input: (&str, &[u8])| {
    let (patches, bytes) = input;
    let text = format!(
        "apiVersion: networking.istio.io/v1alpha3\nkind: EnvoyFilter\nmetadata: {{name: a}}\nspec: {{configPatches: [{patches}]}}\n"
    );
    let parsed = parse_documents(text.as_bytes(), "f", &ParseOptions::default());
    for object in parsed.objects {
        let AnyObject::EnvoyFilter(object) = object else {
            continue;
        };
        let id = ObjectId {
            namespace: object.meta.namespace.clone(),
            name: object.meta.name.clone(),
        };
        let filter = CompiledFilter::of(&id, &object.spec);
        let compiled: Vec<_> = filter.patches.into_iter().flatten().collect();
        let mut outcomes = Outcomes::default();
        for name in ["cluster.v3.Cluster", "listener.v3.Listener", "route.v3.RouteConfiguration"] {
            let of = descriptor(&format!("envoy.config.{name}")).expect("the message has a descriptor");
            let Ok(mut message) = DynamicMessage::decode(of.clone(), bytes) else {
                continue;
            };
            match name {
                "cluster.v3.Cluster" => apply::cluster(&mut message, &compiled, &mut outcomes),
                "listener.v3.Listener" => apply::listener(&mut message, &compiled, &mut outcomes),
                _ => apply::route_configuration(&mut message, &compiled, &mut outcomes),
            }
            let again = DynamicMessage::decode(of, encode_dynamic(&message).as_slice());
            assert!(again.is_ok(), "{name} can no longer be decoded");
        }
    }
});
