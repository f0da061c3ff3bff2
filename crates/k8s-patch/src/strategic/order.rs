//! `$setElementOrder`: the order of a list after a merge.

use std::collections::HashMap;

use serde_json::{Map, Value as Json};

use crate::Error;

/// Sorts the listed items in the given order. Items only on the server keep their relative position if possible.
pub(crate) fn set_order(
    out: &mut Map<String, Json>,
    list: &str,
    order: &Json,
    key: Option<&'static str>,
) -> Result<(), Error> {
    let Some(order) = order.as_array() else {
        return Err(Error::Malformed(
            "invalid patch format of setElementOrder list: expected a list".into(),
        ));
    };
    let wanted: HashMap<String, usize> = order
        .iter()
        .enumerate()
        .map(|(position, item)| (identity(item, key), position))
        .collect();
    let Some(Json::Array(items)) = out.get_mut(list) else {
        return Ok(());
    };
    let stood: Vec<Json> = std::mem::take(items);
    let mut named: Vec<(usize, usize, Json)> = Vec::new();
    let mut others: Vec<(usize, Json)> = Vec::new();
    for (place, item) in stood.into_iter().enumerate() {
        match wanted.get(&identity(&item, key)) {
            Some(&position) => named.push((position, place, item)),
            None => others.push((place, item)),
        }
    }
    named.sort_by_key(|(position, place, _)| (*position, *place));
    let mut others = others.into_iter().peekable();
    for (_, place, item) in named {
        while let Some((_, other)) = others.next_if(|(other, _)| *other < place) {
            items.push(other);
        }
        items.push(item);
    }
    items.extend(others.map(|(_, item)| item));
    Ok(())
}

/// The identity of an item, as text.
fn identity(item: &Json, key: Option<&'static str>) -> String {
    match (key, item) {
        (Some(key), Json::Object(fields)) => fields.get(key).unwrap_or(&Json::Null).to_string(),
        _ => item.to_string(),
    }
}
