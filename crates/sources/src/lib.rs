//! Where resources come from: directories of files.
//!
//! A source turns a place outside into a stream of changes of objects, and knows nothing of what they are for.

pub mod files;
