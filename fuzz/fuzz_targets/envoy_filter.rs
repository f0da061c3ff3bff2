//! Whatever somebody writes as an EnvoyFilter, and whatever bytes it is merged into: it is read or refused, and what it
//! changes can be read again.
#![no_main]

use libfuzzer_sys::fuzz_target;
use patches::{CompiledFilter, apply};
use protos::dynamic::{DynamicMessage, descriptor, encode_dynamic};
use resources::{AnyObject, ParseOptions, parse_documents};

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
        let compiled: Vec<_> = CompiledFilter::of(&object.spec).patches.into_iter().flatten().collect();
        for name in ["cluster.v3.Cluster", "listener.v3.Listener", "route.v3.RouteConfiguration"] {
            let of = descriptor(&format!("envoy.config.{name}")).expect("it is described");
            let Ok(mut message) = DynamicMessage::decode(of.clone(), bytes) else {
                continue;
            };
            match name {
                "cluster.v3.Cluster" => apply::cluster(&mut message, &compiled),
                "listener.v3.Listener" => apply::listener(&mut message, &compiled),
                _ => apply::route_configuration(&mut message, &compiled),
            }
            let again = DynamicMessage::decode(of, encode_dynamic(&message).as_slice());
            assert!(again.is_ok(), "{name} cannot be read any more");
        }
    }
});
