//! The server: where it is, what it serves, and requests to it.

mod connect;
mod discovery;
mod kinds;
mod request;
#[cfg(test)]
mod tests;
mod watch;

pub(crate) use connect::{Place, arguments, kubeconfig_files};
pub(crate) use kinds::{Catalogue, Kind};
pub(crate) use request::{Request, encode};
pub(crate) use watch::{Event, Watch};

use std::time::Duration;

use anyhow::Result;
use clap::ArgMatches;
use serde_json::Value as Json;

use crate::io::{Io, Warnings};

/// How many objects a page of a list has.
const PAGE: usize = 500;

/// A server and who we are to it.
#[derive(Clone)]
pub(crate) struct Server {
    kube: kube::Client,
    place: Place,
    /// The namespace of objects that name none.
    pub(crate) namespace: String,
    /// Whether that namespace was asked for by a flag.
    pub(crate) namespace_given: bool,
    timeout: Option<Duration>,
    warnings: Warnings,
}

impl Server {
    /// The server that the flags, the environment and the kubeconfig files name.
    pub(crate) async fn connect(matches: &ArgMatches, io: &Io) -> Result<Server> {
        connect::connect(matches, io).await
    }

    /// What the server serves.
    pub(crate) async fn catalogue(&self) -> Result<Catalogue> {
        discovery::catalogue(self).await
    }

    /// An object of any URL.
    pub(crate) async fn get(&self, path: &str) -> Result<Json> {
        self.send(Request::get(path)).await
    }

    /// All pages of a list as one list object. The first page's metadata is kept.
    pub(crate) async fn list(&self, request: Request) -> Result<Json> {
        match self.pages(request.clone(), PAGE).await {
            // The token aged while we read: the whole list at once, then.
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

/// A list in an object. Looking does not make one, as indexing does.
pub(crate) fn array<'o>(object: &'o mut Json, field: &str) -> Option<&'o mut Vec<Json>> {
    object.get_mut(field).and_then(Json::as_array_mut)
}

fn continue_of(list: &Json) -> Option<String> {
    list["metadata"]["continue"]
        .as_str()
        .filter(|token| !token.is_empty())
        .map(str::to_owned)
}

/// Whether the server says that a version or token is too old.
pub(crate) fn is_expired(error: &anyhow::Error) -> bool {
    error
        .downcast_ref::<crate::failure::Refusal>()
        .is_some_and(|refusal| refusal.code == 410)
}
