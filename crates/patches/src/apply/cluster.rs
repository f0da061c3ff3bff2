//! Patches of clusters.

use std::borrow::Borrow;

use protos::dynamic::{DynamicMessage, Value};
use resources::istio::envoy_filter::ApplyTo;

use super::{inner, is_valid, list, merge_value, of, text};
use crate::compile::CompiledPatch;
use crate::merge::merge_packed;

/// Merges patches into a cluster that they match.
pub fn cluster<P: Borrow<CompiledPatch>>(cluster: &mut DynamicMessage, patches: &[P]) {
    for patch in of(patches, ApplyTo::Cluster).filter(|patch| patch.operation.merges()) {
        match socket_of(patch) {
            Some(socket) => transport_socket(cluster, &socket),
            None => merge_value(cluster, patch, true),
        }
    }
}

/// The transport socket that a patch sets. As in Istio such a patch sets nothing else.
pub(super) fn socket_of(patch: &CompiledPatch) -> Option<DynamicMessage> {
    let value = patch.value.as_ref()?;
    let socket = value
        .has_field_by_name("transport_socket")
        .then(|| value.get_field_by_name("transport_socket"));
    socket??.as_message().cloned()
}

/// Merges into the transport socket of the same name, or takes the place of another one.
fn transport_socket(cluster: &mut DynamicMessage, socket: &DynamicMessage) {
    let name = text(socket, "name");
    if let Some(matches) = list(cluster, "transport_socket_matches").filter(|matches| !matches.is_empty()) {
        // With such matches a socket of the cluster itself would not be valid.
        let sockets = matches.iter_mut().filter_map(Value::as_message_mut);
        let mut sockets = sockets.filter_map(|one| inner(one, "transport_socket"));
        if let Some(there) = sockets.find(|there| text(there, "name") == name) {
            merge_socket(there, socket);
        }
        return;
    }
    match inner(cluster, "transport_socket") {
        Some(there) if text(there, "name") == name => merge_socket(there, socket),
        _ if is_valid(socket) => cluster.set_field_by_name("transport_socket", Value::Message(socket.clone())),
        _ => {}
    }
}

/// Merges what is packed in a transport socket into what is packed in another one of the same name.
pub(super) fn merge_socket(into: &mut DynamicMessage, from: &DynamicMessage) {
    let config = from
        .has_field_by_name("typed_config")
        .then(|| from.get_field_by_name("typed_config"));
    if let Some(Some(config)) = config
        && let Some(config) = config.as_message()
        && let Some(there) = inner(into, "typed_config")
    {
        merge_packed(there, config, is_valid);
    }
}
