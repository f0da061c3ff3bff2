//! The running agent: its parts, their order of start, and their end.
