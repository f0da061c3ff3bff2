//! `rutter get -w`: prints objects, then a row for each change.

use std::convert::Infallible;
use std::pin::pin;
use std::time::Duration;

use anyhow::{Result, ensure};
use clap::ArgMatches;
use futures::StreamExt;
use kube::core::WatchEvent;
use serde_json::Value as Json;

use crate::failure::{StatusError, Unreachable, usage};
use crate::io::Io;
use crate::output::{self, Format};
use crate::rows::{Rows, Show};
use crate::server::{Request, Server, is_expired, opened};
use crate::targets::Selection;

/// The delay before a watch that ended is opened again.
const PAUSE: Duration = Duration::from_secs(1);

/// Prints the current objects and then their changes until the server fails or the user interrupts.
pub(super) async fn run(matches: &ArgMatches, server: &Server, wanted: &[Selection], io: &mut Io) -> Result<u8> {
    let [one] = wanted else {
        return Err(usage("-w watches one kind at a time"));
    };
    ensure!(one.names.len() <= 1, usage("-w watches one object or all objects of a kind"));
    let mut request = one.list(matches);
    if let Some(name) = one.names.first() {
        request = request.with("fieldSelector", format!("metadata.name={name}"));
        if !matches.get_flag("ignore-not-found") {
            // A missing object is an error; `wait --for=create` waits for it.
            let namespace = one.namespace.as_deref().unwrap_or_default();
            server.get(&one.kind.object(namespace, name)).await?;
        }
    }
    let format = output::of(matches).unwrap_or(Format::Table { wide: false });
    if format.is_table() {
        request = request.in_table();
    }
    let rows = Rows::new(&one.kind, Show::of(matches, one, false));
    let mut view = View { matches, one, rows, format };
    loop {
        let list = server.list(request.clone()).await?;
        let version = version_of(&list);
        view.print(list, io)?;
        match changes(server, &request, version, &mut view, io).await {
            // Only an expired resource version needs a new list.
            Err(error) if is_expired(&error) => {}
            Err(error) => return Err(error),
        }
    }
}

/// Prints each change. A watch that ends is opened again.
async fn changes(
    server: &Server,
    request: &Request,
    mut version: String,
    view: &mut View<'_>,
    io: &mut Io,
) -> Result<Infallible> {
    let mut reachable = true;
    loop {
        match server.watch(request.clone().with("resourceVersion", &version)).await {
            // The server was reachable before: it may be restarting.
            Err(error) if error.is::<Unreachable>() => {
                if std::mem::replace(&mut reachable, false) {
                    io.warn(format!("{error}\nretrying"));
                }
            }
            events => {
                reachable = true;
                let mut events = pin!(events?);
                while let Some(event) = events.next().await {
                    match event {
                        Ok(WatchEvent::Added(object) | WatchEvent::Modified(object) | WatchEvent::Deleted(object)) => {
                            keep(&mut version, version_of(&object));
                            view.print(object, io)?;
                        }
                        Ok(WatchEvent::Bookmark(bookmark)) => keep(&mut version, bookmark.metadata.resource_version),
                        Ok(WatchEvent::Error(status)) => return Err(StatusError { status }.into()),
                        Err(error) => {
                            io.warn(format!("the watch ended: {error}\nretrying"));
                            break;
                        }
                    }
                }
            }
        }
        tokio::time::sleep(PAUSE).await;
    }
}

/// Replaces the version from which a watch is resumed. An event without a version leaves it as it is: an empty one would
/// start the watch from the beginning.
fn keep(version: &mut String, new: String) {
    if !new.is_empty() {
        *version = new;
    }
}

/// The resource version of a list, table or object.
fn version_of(object: &Json) -> String {
    let of = |object: &Json| object["metadata"]["resourceVersion"].as_str().map(str::to_owned);
    of(object).filter(|version| !version.is_empty()).or_else(|| of(&object["rows"][0]["object"])).unwrap_or_default()
}

struct View<'m> {
    matches: &'m ArgMatches,
    one: &'m Selection,
    rows: Rows<'m>,
    format: Format,
}

impl View<'_> {
    /// Prints an object, or the objects of a list.
    fn print(&mut self, answer: Json, io: &mut Io) -> Result<()> {
        if self.format.is_table() {
            self.rows.add(&answer);
            for line in self.rows.lines(!self.matches.get_flag("no-headers"), io.terminal.color) {
                io.print(line)?;
            }
            return Ok(io.out.flush()?);
        }
        for mut object in opened(answer, &self.one.kind) {
            output::tidy(&mut object, self.matches);
            if self.format == Format::Yaml {
                io.print("---")?;
            }
            output::print(io, &self.format, Some(&self.one.kind), &object)?;
        }
        Ok(io.out.flush()?)
    }
}
