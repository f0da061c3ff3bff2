//! `rutter describe`: prints an object with its proxies, conditions and events.

use anyhow::Result;
use clap::{ArgMatches, Command};
use serde_json::Value as Json;

use crate::failure::{self, FAILURE, SUCCESS};
use crate::io::Io;
use crate::server::{self, Request, Server};
use crate::style::{Paint, printable};
use crate::table::Table;
use crate::targets::{self, Target};
use crate::{age, yaml};

pub(super) fn command() -> Command {
    let command = Command::new("describe")
        .about("Print objects with their proxies, conditions and events")
        .after_help("Examples:\n  rutter describe vs/reviews\n  rutter describe gateway -l app=edge");
    server::arguments(targets::arguments(command))
}

pub(super) async fn run(matches: &ArgMatches, io: &mut Io) -> Result<u8> {
    let server = Server::connect(matches, io).await?;
    let catalog = server.catalog().await?;
    let mut all = Vec::new();
    for one in targets::selections(matches, &server, &catalog, io)? {
        all.extend(one.targets(matches, &server).await?);
    }
    let mut code = SUCCESS;
    if all.is_empty() {
        io.eprint("No resources found");
    }
    for (index, target) in all.iter().enumerate() {
        let object = match target.get(&server).await {
            Ok(object) => object,
            Err(error) => {
                failure::report(&error, io);
                code = FAILURE;
                continue;
            }
        };
        if index > 0 {
            io.print("\n")?;
        }
        let events = events_of(&server, target, &object).await;
        let text = Page::new(io.terminal.color).write(&object, &events);
        write!(io.out, "{text}")?;
    }
    Ok(code)
}

/// The events about an object; empty if the server has no events.
async fn events_of(server: &Server, target: &Target, object: &Json) -> Vec<Json> {
    let namespace = if target.namespace.is_empty() { "default" } else { &target.namespace };
    let uid = object["metadata"]["uid"].as_str().unwrap_or_default();
    let request = Request::get(format!("/api/v1/namespaces/{}/events", server::encode(namespace)))
        .with("fieldSelector", format!("involvedObject.name={},involvedObject.uid={uid}", target.name));
    match server.list(request).await {
        Ok(list) => list["items"].as_array().cloned().unwrap_or_default(),
        Err(_) => Vec::new(),
    }
}

/// The description of an object.
struct Page {
    out: String,
    color: bool,
}

impl Page {
    fn new(color: bool) -> Page {
        Page { out: String::new(), color }
    }

    fn write(mut self, object: &Json, events: &[Json]) -> String {
        self.head(object);
        for (name, value) in object.as_object().into_iter().flatten() {
            if !matches!(name.as_str(), "apiVersion" | "kind" | "metadata" | "status") {
                self.section(name, value, object["kind"] == "Secret");
            }
        }
        self.status(&object["status"], &object["metadata"]["generation"]);
        self.events(events);
        self.out
    }

    fn head(&mut self, object: &Json) {
        let meta = &object["metadata"];
        self.field("Name", text(&meta["name"]));
        if let Some(namespace) = meta["namespace"].as_str() {
            self.field("Namespace", namespace);
        }
        self.map("Labels", &meta["labels"]);
        self.map("Annotations", &meta["annotations"]);
        self.field("API Version", text(&object["apiVersion"]));
        self.field("Kind", text(&object["kind"]));
        let created = text(&meta["creationTimestamp"]);
        if !created.is_empty() {
            let shown = format!("{created} ({} ago)", age::since(created));
            self.field("Created", &shown);
        }
        if let Some(generation) = meta["generation"].as_i64() {
            self.field("Generation", &generation.to_string());
        }
        self.field("Version", text(&meta["resourceVersion"]));
        if let Some(deleted) = meta["deletionTimestamp"].as_str() {
            let finalizers: Vec<&str> = meta["finalizers"].as_array().into_iter().flatten().map(text).collect();
            self.field("Terminating", &format!("since {deleted}; finalizers: {}", finalizers.join(", ")));
        }
    }

    fn field(&mut self, name: &str, value: &str) {
        let name = Paint::Bold.apply(&format!("{name}:"), self.color);
        let pad = 14usize.saturating_sub(name_width(&name));
        self.line(&format!("{name}{}{}", " ".repeat(pad.max(1)), printable(value, false)));
    }

    fn map(&mut self, name: &str, map: &Json) {
        let Some(map) = map.as_object().filter(|map| !map.is_empty()) else {
            return self.field(name, "<none>");
        };
        for (index, (key, value)) in map.iter().enumerate() {
            let entry = format!("{key}: {}", shortened(text(value)));
            match index {
                0 => self.field(name, &entry),
                _ => self.line(&format!("{}{}", " ".repeat(14), printable(&entry, false))),
            }
        }
    }

    /// A top-level field as YAML; only the size of secret values.
    fn section(&mut self, name: &str, value: &Json, secret: bool) {
        let mut title = name.to_owned();
        if let Some(first) = title.get_mut(..1) {
            first.make_ascii_uppercase();
        }
        if !(value.is_object() || value.is_array()) {
            return self.field(&title, &config::json_path::json_text(value));
        }
        self.title(&title);
        let hidden = secret && (name == "data" || name == "stringData");
        let body = match value.as_object().filter(|_| hidden) {
            Some(fields) => {
                fields.iter().map(|(key, value)| format!("{key}: {} characters\n", text(value).len())).collect()
            }
            None => yaml::document(value),
        };
        for line in body.lines() {
            self.line(&format!("  {}", printable(line, true)));
        }
    }

    fn status(&mut self, status: &Json, generation: &Json) {
        let Some(fields) = status.as_object().filter(|fields| !fields.is_empty()) else {
            return;
        };
        self.proxies(&status["proxies"]);
        if let Some(conditions) = status["conditions"].as_array().filter(|conditions| !conditions.is_empty()) {
            self.title("Conditions");
            let mut table = Table::new(["TYPE", "STATUS", "SINCE", "REASON", "MESSAGE"]);
            for condition in conditions {
                let since = condition["lastTransitionTime"].as_str().map_or("<unknown>".to_owned(), age::since);
                let word = |field: &str| text(&condition[field]).to_owned();
                table.row([word("type"), word("status"), since, word("reason"), word("message")]);
            }
            self.table(&mut table);
        }
        let rest: serde_json::Map<String, Json> = fields
            .iter()
            .filter(|(name, _)| *name != "conditions" && *name != "proxies")
            // The observed generation is shown only if it is not the current one.
            .filter(|(name, value)| *name != "observedGeneration" || *value != generation)
            .map(|(name, value)| (name.clone(), value.clone()))
            .collect();
        if !rest.is_empty() {
            self.section("status", &Json::Object(rest), false);
        }
    }

    fn proxies(&mut self, proxies: &Json) {
        if !proxies.is_object() {
            return;
        }
        self.title("Proxies");
        let count = |field: &str| proxies[field].as_u64().unwrap_or_default();
        let generation = &proxies["generation"];
        let line = match count("total") {
            0 => format!("  no connected proxy needs generation {generation}"),
            total => format!(
                "  {total} need generation {generation}: {} acknowledged, {} rejected, {} pending",
                count("running"),
                count("rejected"),
                count("pending")
            ),
        };
        self.line(&line);
        if let Some(changed) = proxies["lastChanged"].as_str() {
            self.line(&format!("  last change {} ago", age::since(changed)));
        }
        let rejection = &proxies["rejection"];
        if rejection.is_object() {
            let line = format!(
                "{} rejects {} {}: {}",
                text(&rejection["proxy"]),
                text(&rejection["type"]),
                text(&rejection["resource"]),
                text(&rejection["message"])
            );
            self.line(&format!("  {}", Paint::Red.apply(&printable(&line, false), self.color)));
        }
    }

    fn events(&mut self, events: &[Json]) {
        if events.is_empty() {
            return;
        }
        self.title("Events");
        let mut table = Table::new(["TYPE", "REASON", "AGE", "FROM", "MESSAGE"]);
        for event in events {
            let times = ["lastTimestamp", "eventTime", "firstTimestamp"];
            let time = times.iter().find_map(|field| event[*field].as_str()).unwrap_or_default();
            let from = text(&event["source"]["component"]);
            let from = if from.is_empty() { text(&event["reportingComponent"]) } else { from };
            let message = text(&event["message"]).trim();
            table.row([text(&event["type"]), text(&event["reason"]), &age::since(time), from, message]);
        }
        self.table(&mut table);
    }

    fn table(&mut self, table: &mut Table) {
        for line in table.lines(true, self.color) {
            self.line(&format!("  {line}"));
        }
    }

    fn title(&mut self, title: &str) {
        let title = Paint::Bold.apply(&format!("{title}:"), self.color);
        self.line(&title);
    }

    fn line(&mut self, line: &str) {
        self.out.push_str(line);
        self.out.push('\n');
    }
}

fn text(value: &Json) -> &str {
    value.as_str().unwrap_or_default()
}

fn shortened(text: &str) -> String {
    match text.char_indices().nth(160) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text.to_owned(),
    }
}

/// The width of a name without color codes.
fn name_width(name: &str) -> usize {
    name.chars().filter(|c| !c.is_control()).count() - if name.starts_with('\x1b') { 6 } else { 0 }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_description_has_proxies_and_conditions() {
        let object = json!({
            "apiVersion": "networking.istio.io/v1", "kind": "VirtualService",
            "metadata": {"name": "a", "namespace": "n", "generation": 2, "resourceVersion": "7", "labels": {"x": "y", "z": "1"}},
            "spec": {"hosts": ["a"]},
            "status": {
                "conditions": [{"type": "Programmed", "status": "False", "reason": "Rejected", "message": "web-1: bad"}],
                "proxies": {"generation": 2, "total": 3, "running": 1, "rejected": 1, "pending": 1,
                    "rejection": {"proxy": "web-1", "type": "RDS", "resource": "80", "message": "bad"}}
            }
        });
        let expected = "\
Name:         a
Namespace:    n
Labels:       x: y
              z: 1
Annotations:  <none>
API Version:  networking.istio.io/v1
Kind:         VirtualService
Generation:   2
Version:      7
Spec:
  hosts:
  - a
Proxies:
  3 need generation 2: 1 acknowledged, 1 rejected, 1 pending
  web-1 rejects RDS 80: bad
Conditions:
  TYPE         STATUS   SINCE       REASON     MESSAGE
  Programmed   False    <unknown>   Rejected   web-1: bad
";
        assert_eq!(Page::new(false).write(&object, &[]), expected);
        let colored = Page::new(true).write(&object, &[]);
        assert!(colored.contains("\x1b[1mName:\x1b[0m         a\n"), "{colored}");
    }

    #[test]
    fn secret_values_are_not_printed() {
        let secret =
            json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "a"}, "data": {"key": "aHVzaA=="}});
        let page = Page::new(false).write(&secret, &[]);
        assert!(page.contains("key: 8 characters") && !page.contains("aHVzaA"), "{page}");
    }
}
