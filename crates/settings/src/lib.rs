//! One table of settings, from flags, environment and files, as one immutable value
