//! Dry runs, field validation and reports of the commands that write objects.

use anyhow::Result;
use clap::{Arg, ArgMatches, Command};
use serde_json::Value as Json;

use crate::flags::option;
use crate::io::Io;
use crate::output::{self, Format};
use crate::server::{Kind, Request};

/// The default field manager.
pub(crate) const MANAGER: &str = "rutter";

/// Whether to write at all.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum DryRun {
    /// Write.
    No,
    /// Send nothing and print the object.
    Client,
    /// Let the server process the request without storing the result.
    Server,
}

/// How objects are written.
#[derive(Clone, Debug)]
pub(crate) struct Options {
    pub(crate) dry: DryRun,
    pub(crate) manager: String,
    pub(crate) validation: &'static str,
}

/// `--dry-run` with the help of a command.
pub(crate) fn dry_run(help: &'static str) -> Arg {
    option("dry-run", "WHERE", help)
        .value_parser(["none", "client", "server"])
        .num_args(0..=1)
        .require_equals(true)
        .default_value("none")
        .default_missing_value("client")
}

/// Adds `--field-manager`.
pub(crate) fn field_manager(command: Command) -> Command {
    command
        .arg(option("field-manager", "NAME", "Owner recorded for the fields that are written").default_value(MANAGER))
}

/// Adds `--dry-run`, `--field-manager` and `--validate`.
pub(crate) fn arguments(command: Command) -> Command {
    field_manager(command)
        .arg(dry_run("Write nothing: with `server`, the server validates the request; with `client`, nothing is sent"))
        .arg(
            option(
                "validate",
                "HOW",
                "Handling of unknown fields: reject (`strict`), drop with a warning (`warn`) or drop (`ignore`)",
            )
            .value_parser(["strict", "warn", "ignore", "true", "false"])
            .num_args(0..=1)
            .require_equals(true)
            .default_value("strict")
            .default_missing_value("strict"),
        )
}

impl Options {
    /// Reads the flags.
    pub(crate) fn of(matches: &ArgMatches) -> Options {
        let text = |name| matches.try_get_one::<String>(name).ok().flatten().map(String::as_str);
        Options {
            dry: match text("dry-run") {
                Some("client") => DryRun::Client,
                Some("server") => DryRun::Server,
                _ => DryRun::No,
            },
            manager: text("field-manager").unwrap_or(MANAGER).to_owned(),
            validation: match text("validate") {
                Some("warn") => "Warn",
                Some("ignore" | "false") => "Ignore",
                _ => "Strict",
            },
        }
    }

    /// Adds these options to a request.
    pub(crate) fn on(&self, request: Request) -> Request {
        request
            .with("fieldManager", &self.manager)
            .with("fieldValidation", self.validation)
            .maybe("dryRun", (self.dry == DryRun::Server).then_some("All"))
    }

    /// Adds these options to a deletion, which has no fields.
    pub(crate) fn on_delete(&self, request: Request) -> Request {
        request.maybe("dryRun", (self.dry == DryRun::Server).then_some("All"))
    }

    /// The suffix of report lines.
    pub(crate) fn suffix(&self) -> &'static str {
        match self.dry {
            DryRun::No => "",
            DryRun::Client => " (dry run)",
            DryRun::Server => " (server dry run)",
        }
    }
}

/// Prints the effect on each object: one line each, or the objects in the format of `-o`.
pub(crate) struct Report {
    format: Option<Format>,
    suffix: &'static str,
    objects: Vec<(Kind, Json)>,
}

impl Report {
    pub(crate) fn new(matches: &ArgMatches, options: &Options) -> Report {
        Report {
            format: output::of(matches).filter(|format| !format.is_table()),
            suffix: options.suffix(),
            objects: Vec::new(),
        }
    }

    /// Adds an object, for example `virtualservice.networking.istio.io/reviews configured`.
    pub(crate) fn add(&mut self, io: &mut Io, kind: &Kind, object: Json, effect: &str) -> Result<()> {
        if self.format.is_some() {
            self.objects.push((kind.clone(), object));
            return Ok(());
        }
        let name = object["metadata"]["name"].as_str().unwrap_or_default();
        io.print(format!("{} {effect}{}", kind.named(name), self.suffix))?;
        Ok(())
    }

    /// Prints the objects, if `-o` asks for them.
    pub(crate) fn finish(self, io: &mut Io, matches: &ArgMatches) -> Result<()> {
        let Some(format) = self.format else { return Ok(()) };
        let mut objects = self.objects;
        for (_, object) in &mut objects {
            output::tidy(object, matches);
        }
        match (&format, objects.len()) {
            (_, 1) | (Format::Name, _) => {
                for (kind, object) in &objects {
                    output::print(io, &format, Some(kind), object)?;
                }
                Ok(())
            }
            (_, 0) => Ok(()),
            _ => {
                let list = output::list(objects.into_iter().map(|(_, object)| object).collect());
                output::print(io, &format, None, &list)
            }
        }
    }
}

/// Removes the fields that only a server sets, so that the object can be created again.
pub(crate) fn without_server_fields(object: &mut Json) {
    let Some(fields) = object.as_object_mut() else { return };
    fields.remove("status");
    let Some(meta) = fields.get_mut("metadata").and_then(Json::as_object_mut) else {
        return;
    };
    for field in [
        "resourceVersion",
        "uid",
        "generation",
        "creationTimestamp",
        "deletionTimestamp",
        "deletionGracePeriodSeconds",
        "managedFields",
        "selfLink",
    ] {
        meta.remove(field);
    }
    // kubectl's client-side apply stores a copy of the whole object here.
    if let Some(annotations) = meta.get_mut("annotations").and_then(Json::as_object_mut) {
        annotations.remove("kubectl.kubernetes.io/last-applied-configuration");
        if annotations.is_empty() {
            meta.remove("annotations");
        }
    }
}

/// Whether two objects are equal except for server-set fields.
pub(crate) fn same_content(left: &Json, right: &Json) -> bool {
    let bare = |object: &Json| {
        let mut object = object.clone();
        without_server_fields(&mut object);
        object
    };
    bare(left) == bare(right)
}

/// The order of creation: namespaces and definitions come first because other objects need them.
pub(crate) fn creation_order(kind: &str) -> u8 {
    match kind {
        "Namespace" | "CustomResourceDefinition" => 0,
        _ => 1,
    }
}
