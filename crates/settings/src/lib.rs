//! One table of settings, from flags, environment and a file, as one immutable value.
//!
//! [`TABLE`] is the only list of settings: the command line's flags and their help, the environment variables, the
//! settings file's keys and the reference (`docs/reference/settings.md`) are all made from it, and so is [`Settings`]. Where a
//! setting is given more than once, a flag wins over the environment, the environment over the file, the file over the
//! default.

mod reference;
mod resolve;
mod table;
mod value;

pub use reference::reference;
pub use resolve::{Given, Problem, Problems, Source, flags};
pub use table::{Setting, Settings, TABLE};
pub use value::{
    Address, ByteSize, Ipv4Range, Ipv6Range, LogFilter, LogFormat, OptionalName, SecretsFor, StoreBackend, Switch,
    Threshold, Value,
};

/// What the name of every environment variable begins with.
pub const ENVIRONMENT_PREFIX: &str = "RUTTER_";
