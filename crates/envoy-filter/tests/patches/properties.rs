//! Random patches of random messages: nothing panics, and valid messages stay valid.

use crate::support::{NAMES, Random, filter_id, json};
use config::istio::EnvoyFilter;
use config::istio::envoy_filter::{
    ApplyTo, EnvoyConfigMatch, EnvoyConfigPatch, EnvoyPatch, FilterChainMatch, FilterMatch, ListenerMatch, ObjectMatch,
    PatchOperation, RouteConfigurationMatch, RouteMatch, SubFilterMatch, VirtualHostMatch,
};
use envoy_filter::apply;
use envoy_filter::merge::{Lists, merge};
use envoy_filter::overlay::{NotMerged, Overlay};
use envoy_filter::{CompiledFilter, CompiledPatch, Outcomes, PatchId};
use proptest::prelude::*;
use protos::dynamic::{Completeness, DynamicMessage, check, descriptor, encode_dynamic};

const SORTS: [ApplyTo; 9] = [
    ApplyTo::Listener,
    ApplyTo::FilterChain,
    ApplyTo::NetworkFilter,
    ApplyTo::HttpFilter,
    ApplyTo::ListenerFilter,
    ApplyTo::RouteConfiguration,
    ApplyTo::VirtualHost,
    ApplyTo::HttpRoute,
    ApplyTo::Cluster,
];
const OPERATIONS: [PatchOperation; 8] = [
    PatchOperation::Merge,
    PatchOperation::Add,
    PatchOperation::Remove,
    PatchOperation::InsertBefore,
    PatchOperation::InsertAfter,
    PatchOperation::InsertFirst,
    PatchOperation::Replace,
    PatchOperation::MergeAndReplaceList,
];

fn random(sort: ApplyTo, r: &mut Random) -> DynamicMessage {
    r.message(&descriptor(sort.message().unwrap()).unwrap(), 5)
}

/// A random patch, valid or not. Only its structure was checked.
fn patch(r: &mut Random) -> CompiledPatch {
    let apply_to = SORTS[r.below(SORTS.len())];
    let operation = OPERATIONS[r.below(OPERATIONS.len())];
    let id = PatchId { filter: filter_id(), index: u16::try_from(r.below(100)).unwrap() };
    let object = (r.below(2) == 0).then(|| object(r, apply_to));
    let value = (operation != PatchOperation::Remove).then(|| random(apply_to, r));
    CompiledPatch::new(id, (apply_to, operation), (Default::default(), object), value)
}

fn object(r: &mut Random, sort: ApplyTo) -> ObjectMatch {
    let mut name = || r.one(&NAMES).into();
    match sort {
        ApplyTo::RouteConfiguration | ApplyTo::VirtualHost | ApplyTo::HttpRoute => {
            let route = RouteMatch { name: name(), ..RouteMatch::default() };
            let vhost = VirtualHostMatch { name: name(), route: Some(route), ..VirtualHostMatch::default() };
            ObjectMatch::RouteConfiguration(RouteConfigurationMatch {
                vhost: Some(vhost),
                ..RouteConfigurationMatch::default()
            })
        }
        _ => {
            let filter = FilterMatch { name: name(), sub_filter: Some(SubFilterMatch { name: name() }) };
            let chain = FilterChainMatch { filter: Some(filter), ..FilterChainMatch::default() };
            ObjectMatch::Listener(ListenerMatch {
                filter_chain: Some(chain),
                listener_filter: name(),
                ..ListenerMatch::default()
            })
        }
    }
}

fn is_valid(message: &DynamicMessage) -> bool {
    check(message, Completeness::Whole, &|_| None).is_empty()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    #[test]
    fn random_patches_never_panic_and_encode_stably(seed in 1u64..) {
        let r = &mut Random(seed);
        let patches: Vec<CompiledPatch> = (0..r.below(5)).map(|_| patch(r)).collect();
        let mut cluster = random(ApplyTo::Cluster, r);
        let mut listener = random(ApplyTo::Listener, r);
        let mut table = random(ApplyTo::RouteConfiguration, r);
        let host = random(ApplyTo::VirtualHost, r);
        apply::cluster(&mut cluster, &patches, &mut Outcomes::default());
        apply::listener(&mut listener, &patches, &mut Outcomes::default());
        apply::route_configuration(&mut table, &patches, &mut Outcomes::default());
        let host = apply::virtual_host(host, &patches, &mut Outcomes::default());
        for message in [Some(cluster), Some(listener), Some(table), host].into_iter().flatten() {
            // Encoded messages decode and encode again to the same bytes.
            let bytes = encode_dynamic(&message);
            let again = DynamicMessage::decode(protos::dynamic::ReflectMessage::descriptor(&message), bytes.as_slice()).unwrap();
            prop_assert_eq!(encode_dynamic(&again), bytes);
        }
    }

    #[test]
    fn valid_messages_stay_valid(seed in 1u64..) {
        let r = &mut Random(seed);
        // Values that replace whole messages are checked when patches are compiled.
        let mut patches: Vec<CompiledPatch> = (0..4).map(|_| patch(r)).collect();
        patches.retain(|p| p.operation.merges() || p.value.as_ref().is_none_or(is_valid));
        let mut cluster = random(ApplyTo::Cluster, r);
        if is_valid(&cluster) {
            apply::cluster(&mut cluster, &patches, &mut Outcomes::default());
            prop_assert!(is_valid(&cluster), "{:#}", json(&cluster));
        }
        let mut table = random(ApplyTo::RouteConfiguration, r);
        if is_valid(&table) {
            apply::route_configuration(&mut table, &patches, &mut Outcomes::default());
            prop_assert!(is_valid(&table), "{:#}", json(&table));
        }
        let mut listener = random(ApplyTo::Listener, r);
        if is_valid(&listener) {
            apply::listener(&mut listener, &patches, &mut Outcomes::default());
            prop_assert!(is_valid(&listener), "{:#}", json(&listener));
        }
    }

    #[test]
    fn overlays_merge_like_decoded_messages(seed in 1u64..) {
        let r = &mut Random(seed);
        for sort in SORTS {
            let (plain, value) = (random(sort, r), random(sort, r));
            let fits = check(&value, Completeness::Part, &|_| None).is_empty();
            for lists in [Lists::Grow, Lists::Replace] {
                let Some(overlay) = Overlay::of(&value, lists, false) else { continue };
                let mut merged = plain.clone();
                merge(&mut merged, &value, lists);
                match overlay.onto(&encode_dynamic(&plain)) {
                    Ok(bytes) => {
                        prop_assert_eq!(bytes, encode_dynamic(&merged));
                        prop_assert!(!fits || !is_valid(&plain) || is_valid(&merged), "{:#}", json(&merged));
                    }
                    Err(NotMerged::Invalid(reason)) => prop_assert!(!is_valid(&merged), "{reason}: {:#}", json(&merged)),
                    Err(NotMerged::Unsupported) => prop_assert!(false, "an unusual encoding"),
                }
            }
        }
    }

    #[test]
    fn merging_an_empty_message_changes_nothing(seed in 1u64..) {
        let r = &mut Random(seed);
        for sort in SORTS {
            let message = random(sort, r);
            for lists in [Lists::Grow, Lists::Replace] {
                let mut merged = message.clone();
                merge(&mut merged, &DynamicMessage::new(protos::dynamic::ReflectMessage::descriptor(&message)), lists);
                prop_assert_eq!(&merged, &message);
            }
            // Merging into an empty message copies it.
            let mut merged = DynamicMessage::new(protos::dynamic::ReflectMessage::descriptor(&message));
            merge(&mut merged, &message, Lists::Grow);
            prop_assert_eq!(encode_dynamic(&merged), encode_dynamic(&message));
        }
    }

    #[test]
    fn patches_compile_or_are_left_out(text in "\\PC{0,40}", seed in 1u64..) {
        let r = &mut Random(seed);
        let value = random(SORTS[r.below(SORTS.len())], r);
        let url = format!("t/{}", protos::dynamic::ReflectMessage::descriptor(&value).full_name());
        // Some values have no JSON form.
        let Ok(mut value) = protos::json(&url, &encode_dynamic(&value)) else {
            return Ok(());
        };
        if let Some(object) = value.as_object_mut() {
            object.insert(text.clone(), serde_json::Value::String(text));
        }
        let filter = EnvoyFilter {
            config_patches: SORTS
                .iter()
                .flat_map(|sort| OPERATIONS.iter().map(move |operation| (*sort, *operation)))
                .map(|(apply_to, operation)| EnvoyConfigPatch {
                    apply_to,
                    matches: Some(EnvoyConfigMatch::default()),
                    patch: Some(EnvoyPatch {
                        operation,
                        value: Some(value.clone()),
                        ..EnvoyPatch::default()
                    }),
                })
                .collect(),
            ..EnvoyFilter::default()
        };
        let compiled = CompiledFilter::of(&filter_id(), &filter);
        prop_assert_eq!(compiled.patches.len(), filter.config_patches.len());
    }
}
