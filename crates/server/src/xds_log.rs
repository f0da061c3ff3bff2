//! Events of discovery streams in the log. Their target is `xds`.
//!
//! Texts that clients choose are written by the log's formatter, which escapes them. Nothing is gathered for an event whose
//! level is off.

use std::fmt;
use std::sync::Arc;

use model::xds::ResourceType;
use xds::{Quarantined, Request, Response, StreamId};

use crate::clients::name_of;
use crate::served_world::{Hub, ServedWorld};

/// The number of names in a list; further ones are counted.
const LISTED: usize = 5;

/// Whether ACKs are logged.
pub(crate) fn logs_acks() -> bool {
    tracing::enabled!(target: "xds", tracing::Level::DEBUG)
}

pub(crate) fn disconnected(node: &Arc<str>, stream: StreamId, reason: &str) {
    tracing::info!(target: "xds", %node, stream = stream.0, %reason, "disconnected");
}

pub(crate) fn pushed(hub: &Hub, stream: StreamId, response: &Response) {
    tracing::debug!(
        target: "xds",
        node = %name_of(hub, stream),
        stream = stream.0,
        r#type = response.kind.short_name,
        nonce = %response.nonce,
        resources = response.resources,
        removed = response.removed,
        bytes = response.rope.len(),
        "push"
    );
}

pub(crate) fn acknowledged(hub: &Hub, stream: StreamId, kind: ResourceType, nonce: &str) {
    tracing::debug!(
        target: "xds",
        node = %name_of(hub, stream),
        stream = stream.0,
        r#type = kind.short_name,
        %nonce,
        "ACK"
    );
}

/// Logs a request that is a NACK, before it is handled.
pub(crate) fn rejected(hub: &Hub, served: &ServedWorld, stream: StreamId, request: &Request) {
    let Some(error) = request.error.as_deref().filter(|_| tracing::enabled!(target: "xds", tracing::Level::WARN))
    else {
        return;
    };
    let Some(kind) = hub.answers(stream, request) else { return };
    let resources = hub.rejected(stream, kind, error);
    let cells = resources.iter().take(LISTED).filter_map(|(_, cell)| *cell);
    let mut objects: Vec<String> = cells.flat_map(|cell| served.world.objects_behind(cell, None)).collect();
    objects.sort_unstable();
    objects.dedup();
    let names: Vec<&Arc<str>> = resources.iter().map(|(name, _)| name).collect();
    tracing::warn!(
        target: "xds",
        node = %name_of(hub, stream),
        stream = stream.0,
        r#type = kind.short_name,
        nonce = %request.nonce,
        resources = %Listed(&names),
        objects = %Listed(&objects),
        %error,
        "NACK"
    );
}

/// Logs that a resource is no longer sent to the proxies that reject it.
pub(crate) fn quarantined(hub: &Hub, served: &ServedWorld, one: &Quarantined) {
    let Quarantined { kind, resource, part, replaced, proxy, message, .. } = one;
    let cell = hub.cell(proxy, *kind, resource);
    let objects = cell.map(|cell| served.world.objects_behind(cell, part.as_deref())).unwrap_or_default();
    tracing::warn!(
        target: "xds",
        r#type = kind.short_name,
        ?resource,
        part = ?part.as_deref().unwrap_or_default(),
        instead = if *replaced { "the last acknowledged version, or one without routes" } else { "nothing" },
        objects = %Listed(&objects),
        node = ?proxy,
        error = ?message,
        "quarantined what a proxy rejects"
    );
}

/// A list, as text: the first names, and the number of others.
struct Listed<'a, T>(&'a [T]);

impl<T: fmt::Display> fmt::Display for Listed<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (at, one) in self.0.iter().take(LISTED).enumerate() {
            write!(f, "{}{one}", if at > 0 { ", " } else { "" })?;
        }
        match self.0.len().saturating_sub(LISTED) {
            0 => Ok(()),
            more => write!(f, " and {more} more"),
        }
    }
}
