//! Patches of single resources.
//!
//! Each function changes a message, leaves out changes that would make Envoy reject it, and records the outcome of each patch.

mod chain;
mod cluster;
mod facts;
mod http;
mod listener;
mod places;
mod route;

use std::borrow::Borrow;

use protos::dynamic::{DynamicMessage, Value};

pub use cluster::{cluster, encoded_cluster};
pub use listener::listener;
pub(crate) use route::{Domains, added_host, adds_host, domains, table_settings};
pub use route::{route_configuration, virtual_host};

use crate::compile::CompiledPatch;
use crate::error::validate;
use crate::merge::{Lists, merge, merge_packed};
use crate::outcome::Outcome;
use config::istio::envoy_filter::ApplyTo;

/// The patches that apply to this part of the configuration.
fn of<P: Borrow<CompiledPatch>>(patches: &[P], sort: ApplyTo) -> impl Iterator<Item = &CompiledPatch> {
    patches.iter().map(Borrow::borrow).filter(move |patch: &&CompiledPatch| patch.apply_to == sort)
}

/// Merges the value of a patch into a message, unless the result would be invalid. The name of the message is kept.
fn merge_value(message: &mut DynamicMessage, patch: &CompiledPatch, keeps_name: bool) -> Outcome {
    let Some(value) = &patch.value else { return Ok(false) };
    let before = message.clone();
    merge(message, value, Lists::of(patch.operation));
    if keeps_name && let Some(name) = before.get_field_by_name("name") {
        message.set_field_by_name("name", name.into_owned());
    }
    // A message that was invalid before does not keep a patch from being applied.
    if *message != before
        && let Err(why) = validate(message)
    {
        *message = before;
        return Err(why);
    }
    Ok(true)
}

/// Merges the `typed_config` of a filter or socket into that of another one.
fn merge_inner(into: &mut DynamicMessage, from: &DynamicMessage) -> Outcome {
    match (inner(into, "typed_config"), part(from, "typed_config")) {
        (Some(there), Some(config)) => merge_packed(there, &config).map(|()| true),
        _ => Ok(false),
    }
}

/// A string field; empty if absent.
pub(crate) fn text(message: &DynamicMessage, field: &str) -> String {
    let value = message.get_field_by_name(field);
    value.as_ref().and_then(|value| value.as_str()).unwrap_or_default().to_owned()
}

/// The strings of a repeated field.
fn texts(message: &DynamicMessage, field: &str) -> Vec<String> {
    let values = message.get_field_by_name(field);
    let values = values.as_ref().and_then(|values| values.as_list()).unwrap_or_default();
    values.iter().filter_map(|value| value.as_str().map(str::to_owned)).collect()
}

/// A copy of a message field, if present.
fn part(message: &DynamicMessage, field: &str) -> Option<DynamicMessage> {
    let value = message.get_field_by_name(field).filter(|_| message.has_field_by_name(field))?;
    value.as_message().cloned()
}

/// A message field, if present.
fn inner<'m>(message: &'m mut DynamicMessage, field: &str) -> Option<&'m mut DynamicMessage> {
    if !message.has_field_by_name(field) {
        return None;
    }
    message.get_field_by_name_mut(field)?.as_message_mut()
}

/// A list of messages.
fn list<'m>(message: &'m mut DynamicMessage, field: &str) -> Option<&'m mut Vec<Value>> {
    message.get_field_by_name_mut(field)?.as_list_mut()
}

/// The full name of the message in `typed_config`; empty if absent.
fn packed_type(filter: &DynamicMessage) -> String {
    let config = filter.get_field_by_name("typed_config");
    let config = config.as_ref().and_then(|config| config.as_message());
    config.map(|config| protos::dynamic::type_name(&text(config, "type_url")).to_owned()).unwrap_or_default()
}
