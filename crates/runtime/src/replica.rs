//! The names of this replica.

/// The identity of this process in the lease: a name and a UUID. A process ID would not be unique, since two containers
/// may share it, and a restarted process must not mistake the lease of its predecessor for its own.
pub(super) fn identity(name: &str) -> String {
    format!("{name}_{}", uuid::Uuid::new_v4())
}

pub(super) fn hostname() -> String {
    rustix::system::uname().nodename().to_string_lossy().into_owned()
}
