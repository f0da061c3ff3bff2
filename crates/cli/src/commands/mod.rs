//! The commands, one file each.

mod api_resources;
mod apply;
mod auth;
mod config;
mod crds;
mod create;
mod delete;
mod describe;
mod edit;
mod explain;
mod export;
mod follow;
mod get;
mod grpc_bootstrap;
mod history;
mod import;
mod label;
mod manifest;
mod patch;
mod proxy_settings;
mod prune;
mod remote_secret;
mod validate;
mod version;
mod wait;

use std::pin::Pin;

use anyhow::Result;
use clap::{Arg, ArgAction, ArgMatches, Command};

use crate::io::Io;

/// A flag without a value.
fn flag(name: &'static str, help: &'static str) -> Arg {
    Arg::new(name).long(name).action(ArgAction::SetTrue).help(help)
}

/// `-o` of commands that print whole objects.
fn output() -> Arg {
    Arg::new("output")
        .short('o')
        .long("output")
        .value_name("FORMAT")
        .value_parser(["yaml", "json"])
        .default_value("yaml")
        .help("yaml or json")
}

/// A command at work.
type Work<'w> = Pin<Box<dyn Future<Output = Result<u8>> + 'w>>;

/// A command: its flags, and what it does. It returns the exit code.
pub(crate) struct Verb {
    pub(crate) command: fn() -> Command,
    pub(crate) run: for<'w> fn(&'w ArgMatches, &'w mut Io) -> Work<'w>,
}

macro_rules! verbs {
    ($($module:ident :: $command:ident => $run:ident,)*) => {
        /// All commands, in the order in which help shows them.
        pub(crate) const VERBS: &[Verb] = &[
            $(Verb {
                command: $module::$command,
                run: |matches, io| Box::pin($module::$run(matches, io)),
            },)*
        ];
    };
}

verbs! {
    get::command => run,
    describe::command => run,
    follow::command => watch,
    wait::command => run,
    apply::command => run,
    create::create_command => create,
    create::replace_command => replace,
    edit::command => run,
    patch::command => run,
    delete::command => run,
    label::label_command => label,
    label::annotate_command => annotate,
    history::history_command => history,
    history::rollback_command => rollback,
    export::command => run,
    import::command => run,
    validate::command => run,
    crds::command => run,
    manifest::command => run,
    remote_secret::command => run,
    grpc_bootstrap::command => run,
    proxy_settings::command => run,
    explain::command => run,
    api_resources::resources_command => resources,
    api_resources::versions_command => versions,
    auth::command => run,
    config::command => run,
    version::command => run,
}
