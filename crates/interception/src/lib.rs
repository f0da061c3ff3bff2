//! The rules that send a pod's traffic through its proxy, for iptables and nftables.
//!
//! A [`Config`] holds the settings, with the names and defaults of `istio-iptables`; [`FLAGS`] is the table of their flags and
//! environment variables. A [`Host`] holds the facts of the network namespace that the rules depend on. From both, a [`Plan`]
//! lists the rules once, for both families of addresses and both back ends:
//!
//! - [`iptables`] renders them as input of `iptables-restore`, and compares them with the output of
//!   `iptables-save`. Only what differs is replaced; rules that were left behind, by this program or by Istio's, are removed.
//! - [`nftables`] renders them as one script of `nft`, which replaces the tables in one transaction.
//! - [`routes`] has the routes and addresses that the rules rely on.
//!
//! The crate runs nothing: its results are [`Command`]s, for `interception-exec` to run or for `--dry-run` to print.

mod command;
mod config;
mod flags;
pub mod iptables;
pub mod nftables;
mod plan;
pub mod routes;
mod rule;
mod saved;
mod values;

pub use command::{Command, Program};
pub use config::{Binary, Config, ConfigError, Host, Mode};
pub use flags::{FLAGS, Flag, Kind};
pub use plan::Plan;
pub use rule::{Chain, Family, Match, Net, Protocol, Rule, Table, Target, Test};
pub use values::{Included, Owner, Ports};
