//! Applies a patch of every type to a JSON object. Nothing may panic or hang, and a server-side apply must be
//! idempotent.

#![no_main]

use libfuzzer_sys::fuzz_target;
use k8s_patch::{Limits, Writer, apply, json_patch, merge_patch, strategic_merge_patch, track};
use config::Timestamp;
use config::schema::{definitions, find};
use serde_json::Value as Json;

fuzz_target!(|bytes: &[u8]| {
    let Some((choice, rest)) = bytes.split_first() else {
        return;
    };
    let mut values = serde_json::Deserializer::from_slice(rest).into_iter::<Json>();
    let (Some(Ok(document)), Some(Ok(patch))) = (values.next(), values.next()) else {
        return;
    };
    let limits = Limits::default();
    let Some(definition) = find("", "services").filter(|_| choice.is_multiple_of(2)).or(definitions().first()) else {
        return;
    };
    let _ = json_patch(&document, &patch, &limits);
    let _ = merge_patch(&document, &patch, &limits);
    let _ = strategic_merge_patch(&document, &patch, &definition.schema, &limits);
    let by = Writer {
        definition,
        version: definition.versions[0].version,
        manager: "fuzz",
        subresource: (choice & 2 != 0).then_some("status"),
        now: Timestamp::from_unix(1_800_000_000),
    };
    let mut new = patch.clone();
    track(Some(&document), &mut new, &by);
    if let Ok(once) = apply(Some(&document), &patch, &by, true)
        && let Ok(twice) = apply(Some(&once), &patch, &by, true)
    {
        let third = apply(Some(&twice), &patch, &by, false);
        assert!(third.is_err() || third.is_ok_and(|third| third == twice), "apply is not idempotent");
    }
});
