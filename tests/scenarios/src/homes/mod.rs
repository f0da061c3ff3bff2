//! Where a scenario's objects live when they do not go straight into a world: real sources.
//!
//! A step of a scenario is an edit of such a home: objects are created, updated and deleted as a user would. What the
//! home's source then says is what the world gets, as one commit, so that every answer must be the one that the file has.
//!
//! What is not the same, because no user can choose it: a server says itself when an object was made, so that objects
//! that come from one get the age that the file gives them. And what a server has that no file speaks of is left out: what
//! was there before, namespaces that an object needs to exist, and the [`markers`] by which an edit's arrival is known.

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

/// Where objects live, and the source that reads them from there.
pub trait Home {
    /// What files call it that cannot be played there (`not-in`).
    fn name(&self) -> &'static str;

    /// Makes an edit, and returns what the source said of it, when it has said all.
    ///
    /// # Errors
    /// The home refuses it, or the source did not say it in time.
    fn edit(&mut self, puts: Vec<Document>, gone: Vec<ObjectKey>) -> Result<ChangeSet>;

    /// Takes everything away that edits brought.
    ///
    /// # Errors
    /// As for an edit.
    fn clear(&mut self) -> Result<()>;
}
