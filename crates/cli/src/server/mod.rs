//! A client for the Kubernetes API: connection, discovery, requests and watches.

mod connect;
mod discovery;
mod kinds;
mod request;
#[cfg(test)]
mod tests;

pub(crate) use connect::{CONNECTION, arguments, kubeconfig_files};
pub(crate) use kinds::{Catalog, Kind};
pub(crate) use request::{Request, encode};

use std::time::Duration;

use anyhow::Result;
use clap::ArgMatches;
use serde_json::Value as Json;

use crate::io::{Io, Warnings};

/// Objects per page of a list.
const PAGE: usize = 500;

/// A connected server.
#[derive(Clone)]
pub(crate) struct Server {
    kube: kube::Client,
    url: String,
    /// The source of the URL, for messages: `context x of /path`, or a flag.
    source: String,
    /// The namespace of objects without one.
    pub(crate) namespace: String,
    /// Whether a flag sets the namespace.
    pub(crate) namespace_given: bool,
    timeout: Option<Duration>,
    warnings: Warnings,
}

impl Server {
    /// Connects to the server that flags, environment and kubeconfig select.
    pub(crate) async fn connect(matches: &ArgMatches, io: &Io) -> Result<Server> {
        connect::connect(matches, io).await
    }

    /// Discovers the kinds that the server serves.
    pub(crate) async fn catalog(&self) -> Result<Catalog> {
        discovery::catalog(self).await
    }

    /// Reads the JSON at a path.
    pub(crate) async fn get(&self, path: &str) -> Result<Json> {
        self.send(Request::get(path)).await
    }

    /// Reads all pages of a list. Keeps the metadata of the first page.
    pub(crate) async fn list(&self, request: Request) -> Result<Json> {
        match self.pages(request.clone(), PAGE).await {
            // The continue token expired: reads the list in one request.
            Err(error) if is_expired(&error) => self.pages(request, 0).await,
            result => result,
        }
    }

    async fn pages(&self, request: Request, size: usize) -> Result<Json> {
        let first = match size {
            0 => request.clone(),
            size => request.clone().with("limit", size.to_string()),
        };
        let mut list: Json = self.send(first).await?;
        let mut token = continue_of(&list);
        while let Some(next) = token {
            let page = request.clone().with("limit", size.to_string()).with("continue", next);
            let mut page: Json = self.send(page).await?;
            token = continue_of(&page);
            for field in ["items", "rows"] {
                if let (Some(all), Some(more)) = (array(&mut list, field), array(&mut page, field)) {
                    all.append(more);
                }
            }
        }
        if let Some(meta) = list.get_mut("metadata").and_then(Json::as_object_mut) {
            meta.remove("continue");
            meta.remove("remainingItemCount");
        }
        Ok(list)
    }
}

/// The items of a list with their kind, or the object itself.
pub(crate) fn opened(mut answer: Json, kind: &Kind) -> Vec<Json> {
    let Some(items) = array(&mut answer, "items") else {
        return vec![answer];
    };
    let mut items = std::mem::take(items);
    for item in &mut items {
        // Items of a typed list have neither apiVersion nor kind.
        if let Some(fields) = item.as_object_mut() {
            fields.entry("apiVersion").or_insert_with(|| kind.api_version().into());
            fields.entry("kind").or_insert_with(|| kind.kind.clone().into());
        }
    }
    items
}

/// A list field of an object, without creating it.
pub(crate) fn array<'o>(object: &'o mut Json, field: &str) -> Option<&'o mut Vec<Json>> {
    object.get_mut(field).and_then(Json::as_array_mut)
}

fn continue_of(list: &Json) -> Option<String> {
    list["metadata"]["continue"].as_str().filter(|token| !token.is_empty()).map(str::to_owned)
}

/// Whether a resource version or continue token has expired.
pub(crate) fn is_expired(error: &anyhow::Error) -> bool {
    error.downcast_ref::<crate::failure::StatusError>().is_some_and(|error| error.status.code == 410)
}
