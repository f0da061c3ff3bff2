//! Controllers against an API server that a few lines imitate: what they plan is written, seen later or not at all, and
//! disturbed by others. In the end all is as it should be, and nothing was written that need not have been.

#![allow(clippy::unwrap_used)]

mod addresses;
mod ingress;
mod root_certificate;
mod service_exports;
mod untaint;
