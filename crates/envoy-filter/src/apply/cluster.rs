//! Patches of clusters.

use std::borrow::Borrow;

use bytes::Bytes;
use config::istio::envoy_filter::ApplyTo;
use protos::dynamic::{DynamicMessage, Value, descriptor, encode_dynamic};

use super::{inner, list, merge_inner, merge_value, of, part, text};
use crate::compile::CompiledPatch;
use crate::error::{PatchError, validate};
use crate::outcome::{Outcome, Outcomes};
use crate::overlay::NotMerged;

/// Merges patches into a cluster that they match.
pub fn cluster<P: Borrow<CompiledPatch>>(cluster: &mut DynamicMessage, patches: &[P], outcomes: &mut Outcomes) {
    for patch in of(patches, ApplyTo::Cluster).filter(|patch| patch.operation.merges()) {
        outcomes.attempt(patch, || merge_cluster(cluster, patch));
    }
}

/// Merges patches into an encoded cluster that they match. Returns the changed cluster.
pub fn encoded_cluster<P: Borrow<CompiledPatch>>(cluster: &Bytes, patches: &[P], outcomes: &mut Outcomes) -> Bytes {
    let mut cluster = cluster.clone();
    for patch in of(patches, ApplyTo::Cluster).filter(|patch| patch.operation.merges()) {
        outcomes.attempt(patch, || match patch.overlay.as_ref().map(|overlay| overlay.onto(&cluster)) {
            Some(Ok(merged)) => {
                cluster = merged.into();
                Ok(true)
            }
            Some(Err(NotMerged::Invalid(reason))) => Err(PatchError::Invalid(reason)),
            Some(Err(NotMerged::Unsupported)) | None => merge_decoded(&mut cluster, patch),
        });
    }
    cluster
}

/// Decodes a cluster to merge a patch into it.
fn merge_decoded(cluster: &mut Bytes, patch: &CompiledPatch) -> Outcome {
    let Some(of) = ApplyTo::Cluster.message().and_then(descriptor) else {
        return Ok(false);
    };
    let mut decoded = DynamicMessage::decode(of, cluster.clone()).map_err(|_| PatchError::UnknownConfig)?;
    let changed = merge_cluster(&mut decoded, patch)?;
    if changed {
        *cluster = encode_dynamic(&decoded).into();
    }
    Ok(changed)
}

fn merge_cluster(cluster: &mut DynamicMessage, patch: &CompiledPatch) -> Outcome {
    match socket_of(patch) {
        Some(socket) => transport_socket(cluster, &socket),
        None => merge_value(cluster, patch, true),
    }
}

/// The transport socket that a patch sets. As in Istio, such a patch has no other effect.
pub(super) fn socket_of(patch: &CompiledPatch) -> Option<DynamicMessage> {
    part(patch.value.as_ref()?, "transport_socket")
}

/// Merges into the transport socket of the same name, or replaces another one.
fn transport_socket(cluster: &mut DynamicMessage, socket: &DynamicMessage) -> Outcome {
    let name = text(socket, "name");
    if let Some(matches) = list(cluster, "transport_socket_matches").filter(|matches| !matches.is_empty()) {
        // A cluster with transport socket matches must not have a transport socket.
        let sockets = matches.iter_mut().filter_map(Value::as_message_mut);
        let mut sockets = sockets.filter_map(|one| inner(one, "transport_socket"));
        return match sockets.find(|there| text(there, "name") == name) {
            Some(there) => merge_inner(there, socket),
            None => Err(PatchError::NoSocket(name)),
        };
    }
    match inner(cluster, "transport_socket") {
        Some(there) if text(there, "name") == name => merge_inner(there, socket),
        _ => {
            validate(socket)?;
            cluster.set_field_by_name("transport_socket", Value::Message(socket.clone()));
            Ok(true)
        }
    }
}
