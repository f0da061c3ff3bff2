//! Where resources come from: directories of files
