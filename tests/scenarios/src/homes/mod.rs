//! Sources in which a scenario's objects are stored, in place of putting them into a world directly.
//!
//! A step of a scenario is an edit of such a home: objects are created, updated and deleted as by a user. The changes
//! that the source then reports are committed to the world together. Every answer must equal the one in the file.
//!
//! Some things differ because no user can choose them: a server sets the creation time, so objects get the age in the
//! file. Other objects of a server are left out: existing ones, the namespaces of objects, and the [`markers`] that
//! show when an edit has arrived.

mod cluster;
mod document;
mod files;
mod markers;
mod servers;
mod writer;

use anyhow::Result;
use config::{ChangeSet, ObjectKey};

pub use document::Document;
pub use files::Files;
pub use servers::Servers;

/// A store of objects, and the source that reads them from it.
pub trait Home {
    /// Its name in `not-in` sections.
    fn name(&self) -> &'static str;

    /// Makes an edit. Returns the changes that the source reports, when they are complete.
    ///
    /// # Errors
    /// The home rejects the edit, or the source does not report it in time.
    fn edit(&mut self, puts: Vec<Document>, gone: Vec<ObjectKey>) -> Result<ChangeSet>;

    /// Deletes everything that edits created.
    ///
    /// # Errors
    /// As for an edit.
    fn clear(&mut self) -> Result<()>;
}
