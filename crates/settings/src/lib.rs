//! The settings of `rutter serve`, as one immutable value.
//!
//! [`TABLE`] is the only list of settings. The struct [`Settings`], the flags and their help, the environment variables, the
//! keys of the settings file and the reference page (`docs/reference/settings.md`) are generated from it.
//!
//! ```text
//! flags, environment, file ─Given::gather─► Given ─Settings::from_given─► Settings
//! ```
//!
//! Precedence: flag, `RUTTER_` variable, variable of istiod, file, default. [`Problems`] contains all errors, not only the
//! first.

mod given;
mod keys;
mod resolve;
mod table;
mod value;

pub use given::{Given, Problem, Problems, Source};
pub use keys::{HostPatterns, JwksFetcher};
pub use resolve::flags;
pub use table::{Setting, Settings, TABLE};
pub use value::{
    Address, ByteSize, CertProvider, Ipv4Range, Ipv6Range, LogFilter, LogFormat, NamespaceUsers, NativeSidecars,
    OptionalAddress, OptionalName, SecretsFor, ServiceRanges, StoreBackend, Switch, Value, ValueError,
};

/// The prefix of environment variables.
pub const ENVIRONMENT_PREFIX: &str = "RUTTER_";
