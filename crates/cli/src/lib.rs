//! The command line, in the manner of kubectl.
