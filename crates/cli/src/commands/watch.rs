//! `rutter get -w`: prints objects and their changes.

use std::time::Duration;

use anyhow::{Result, ensure};
use clap::ArgMatches;
use serde_json::Value as Json;

use super::get::{self, Wanted};
use crate::failure::{SUCCESS, Unreachable, usage};
use crate::io::Io;
use crate::output::{self, Format};
use crate::rows::{Rows, Show};
use crate::server::{Event, Request, Server, is_expired};

/// The delay before a watch that ended without an event is opened again.
const PAUSE: Duration = Duration::from_secs(1);

/// Prints the current objects and then their changes until the server fails or the user interrupts.
pub(super) async fn run(matches: &ArgMatches, server: &Server, wanted: Vec<Wanted>, io: &mut Io) -> Result<u8> {
    let [one] = wanted.as_slice() else {
        return Err(usage("-w watches one kind at a time"));
    };
    ensure!(
        one.names.len() <= 1,
        usage("-w watches one object or all objects of a kind")
    );
    let format = output::of(matches).unwrap_or(Format::Table { wide: false });
    let show = Show {
        namespace: one.namespace.is_none() && one.kind.namespaced,
        ..get::show(matches, false)
    };
    let mut view = View {
        matches,
        one,
        rows: Rows::new(&one.kind, show),
        format,
    };
    if let (Some(name), false) = (one.names.first(), matches.get_flag("ignore-not-found")) {
        // A missing object is an error; `wait --for=create` waits for it.
        server
            .get(&one.kind.object(one.namespace.as_deref().unwrap_or_default(), name))
            .await?;
    }
    let mut silent = matches.get_flag("watch-only");
    loop {
        let list = server.list(view.request()).await?;
        let version = version_of(&list);
        if !std::mem::take(&mut silent) {
            view.initial(list, io)?;
        }
        // Only an expired resource version needs a new list.
        match changes(server, &mut view, version, io).await {
            Err(error) if is_expired(&error) => continue,
            Err(error) => return Err(error),
            Ok(()) => return Ok(SUCCESS),
        }
    }
}

async fn changes(server: &Server, view: &mut View<'_>, mut version: String, io: &mut Io) -> Result<()> {
    let mut unreachable = false;
    loop {
        let mut watch = match server.watch(view.request().with("resourceVersion", &version)).await {
            // The server was reachable before: it may be restarting.
            Err(error) if error.is::<Unreachable>() => {
                if !std::mem::replace(&mut unreachable, true) {
                    let error = error.to_string();
                    let message = error.lines().next().unwrap_or_default();
                    io.warn(format!("{message}; retrying"));
                }
                tokio::time::sleep(PAUSE).await;
                continue;
            }
            watch => watch?,
        };
        unreachable = false;
        let mut events = 0;
        while let Some(event) = watch.next().await? {
            let seen = version_of(event.object());
            if !seen.is_empty() {
                version = seen;
            }
            events += 1;
            view.event(event, io)?;
        }
        if events == 0 {
            tokio::time::sleep(PAUSE).await;
        }
    }
}

/// The resource version of a list, table or object.
fn version_of(object: &Json) -> String {
    let of = |object: &Json| {
        object["metadata"]["resourceVersion"]
            .as_str()
            .unwrap_or_default()
            .to_owned()
    };
    match of(object) {
        version if version.is_empty() => of(&object["rows"][0]["object"]),
        version => version,
    }
}

struct View<'m> {
    matches: &'m ArgMatches,
    one: &'m Wanted,
    rows: Rows<'m>,
    format: Format,
}

impl View<'_> {
    fn request(&self) -> Request {
        let request = get::list_request(self.matches, self.one);
        let request = request.maybe(
            "fieldSelector",
            self.one.names.first().map(|name| format!("metadata.name={name}")),
        );
        match self.format {
            Format::Table { .. } => request.in_table(),
            _ => request,
        }
    }

    fn initial(&mut self, list: Json, io: &mut Io) -> Result<()> {
        if self.format.is_table() {
            self.rows.add(&list, "ADDED");
            return self.print_rows(io);
        }
        for item in get::opened(list, &self.one.kind) {
            self.print(item, "ADDED", io)?;
        }
        Ok(io.out.flush()?)
    }

    fn event(&mut self, event: Event, io: &mut Io) -> Result<()> {
        if matches!(event, Event::Bookmark(_)) {
            return Ok(());
        }
        if self.format.is_table() {
            self.rows.add(event.object(), event.name());
            return self.print_rows(io);
        }
        self.print(event.object().clone(), event.name(), io)?;
        Ok(io.out.flush()?)
    }

    fn print_rows(&mut self, io: &mut Io) -> Result<()> {
        for line in self.rows.lines(!self.matches.get_flag("no-headers"), io.terminal.color) {
            io.print(line)?;
        }
        Ok(io.out.flush()?)
    }

    fn print(&mut self, mut object: Json, event: &str, io: &mut Io) -> Result<()> {
        output::tidy(&mut object, self.matches);
        if self.matches.get_flag("output-watch-events") {
            if self.format == Format::Name {
                write!(io.out, "{event}\t")?;
                return output::print(io, &self.format, Some(&self.one.kind), &object);
            }
            object = serde_json::json!({"type": event, "object": object});
        }
        if self.format == Format::Yaml {
            io.print("---")?;
        }
        output::print(io, &self.format, Some(&self.one.kind), &object)
    }
}
