//! The same scenarios with their objects in files, in the embedded store, in its API and in a real Kubernetes API.

use anyhow::Result;
use scenarios::all_in;
use scenarios::homes::{Files, Servers};

#[test]
fn scenarios_from_files() -> Result<()> {
    all_in(&mut Files::new()?)
}

#[test]
fn scenarios_from_the_embedded_store() -> Result<()> {
    all_in(&mut Servers::store()?)
}

#[test]
fn scenarios_from_the_api() -> Result<()> {
    all_in(&mut Servers::api()?)
}

#[test]
fn scenarios_from_kubernetes() -> Result<()> {
    all_in(&mut Servers::kubernetes()?)
}
