//! The DNS proxy beside an application: answers from the name table, and forwards the rest.
