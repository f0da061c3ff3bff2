//! The commands, one file each, in groups.

mod apply;
mod ca;
mod check_inject;
mod convert;
mod crds;
mod create;
mod delete;
mod describe;
mod diff;
mod export;
mod gateway;
mod get;
mod grpc_bootstrap;
mod history;
mod import;
mod inject;
mod install;
mod manifest;
mod proxy_settings;
mod remote_secret;
pub(crate) mod removed;
mod tag;
mod token;
mod validate;
mod values;
mod version;
mod wait;
mod watch;
mod workload;

use std::pin::Pin;

use anyhow::Result;
use clap::{ArgMatches, Command};

use crate::io::Io;

/// A running command.
type Work<'w> = Pin<Box<dyn Future<Output = Result<u8>> + 'w>>;

/// A command: its name, its flags and its implementation, which returns the exit code.
pub(crate) struct Verb {
    pub(crate) name: &'static str,
    pub(crate) command: fn() -> Command,
    pub(crate) run: for<'w> fn(&'w ArgMatches, &'w mut Io) -> Work<'w>,
}

/// Commands under one heading of the help.
pub(crate) struct Group {
    pub(crate) heading: &'static str,
    pub(crate) verbs: &'static [Verb],
}

/// The command of the group "Serve", which the program itself defines.
pub(crate) const SERVE: [&str; 1] = ["serve"];

macro_rules! groups {
    ($($heading:literal { $($name:literal: $module:ident :: $command:ident, $run:ident;)* })*) => {
        /// All commands, in the order of the help.
        pub(crate) const GROUPS: &[Group] = &[
            $(Group {
                heading: $heading,
                verbs: &[
                    $(Verb {
                        name: $name,
                        command: $module::$command,
                        run: |matches, io| Box::pin($module::$run(matches, io)),
                    },)*
                ],
            },)*
        ];
    };
}

groups! {
    "Objects" {
        "get": get::command, run;
        "describe": describe::command, run;
        "create": create::create_command, create;
        "replace": create::replace_command, replace;
        "apply": apply::command, run;
        "diff": diff::command, run;
        "delete": delete::command, run;
        "wait": wait::command, run;
    }
    "Versions and backup" {
        "history": history::history_command, history;
        "rollback": history::rollback_command, rollback;
        "export": export::command, run;
        "import": import::command, run;
    }
    "Mesh" {
        "validate": validate::command, run;
        "convert": convert::command, run;
        "proxy-settings": proxy_settings::command, run;
        "inject": inject::command, run;
        "check-inject": check_inject::command, run;
        "tag": tag::command, run;
        "grpc-bootstrap": grpc_bootstrap::command, run;
        "create-remote-secret": remote_secret::command, run;
        "token": token::command, run;
        "ca": ca::command, run;
        "workload": workload::command, run;
        "gateway": gateway::command, run;
    }
    "Setup" {
        "install": install::install_command, install;
        "upgrade": install::upgrade_command, upgrade;
        "uninstall": install::uninstall_command, uninstall;
        "precheck": install::precheck_command, precheck;
        "manifest": manifest::command, run;
        "crds": crds::command, run;
        "version": version::command, run;
    }
}
