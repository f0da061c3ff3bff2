//! The images of the pods, made of programs of this machine.

use std::path::{Path, PathBuf};

use rcgen::CertifiedKey;
use test_harness::kubernetes::{Image, mesh};
use test_harness::run::Result;

use crate::suite::Suite;

/// The image of Rutter.
pub(crate) const RUTTER: &str = "localhost/rutter-conformance/rutter:1";
/// The image of gateways and sidecars.
pub(crate) const PROXY: &str = "localhost/rutter-conformance/proxy:1";
/// The image of the cluster's DNS server.
pub(crate) const DNS: &str = "localhost/rutter-conformance/dns:1";

/// The images of Rutter, of the agent with Envoy, and of DNS.
pub(crate) fn of_mesh(suite: &Suite) -> Result<[Image; 3]> {
    let envoy = test_harness::envoy(&mut |line| eprintln!("==> {line}"))?;
    Ok([
        mesh::control_plane(RUTTER, &program("rutter")?)?,
        mesh::proxy(PROXY, &program("rutter-agent")?, &envoy)?,
        single(DNS, &suite.dns, "/coredns")?,
    ])
}

/// The images that the suite's pods name and that can be built.
pub(crate) fn of_suite(suite: &Suite) -> Result<Vec<Image>> {
    let mut images = Vec::new();
    for name in suite.image_names()? {
        images.push(match &*name {
            name if name.contains("/echo-basic:") => single(name, &suite.echo, "/echo-basic")?,
            name if name.contains("/coredns:") => single(name, &suite.dns, "/coredns")?,
            name if name.contains("/lwepp:") => match &suite.picker {
                Some(picker) => single(name, picker, "/lwepp")?,
                None => continue,
            },
            name if name.contains("/echo-advanced:") => match &suite.mesh {
                Some(programs) => echo(name, programs)?,
                None => continue,
            },
            _ => continue,
        });
    }
    Ok(images)
}

/// An image with one program.
fn single(name: &str, program: &Path, at: &str) -> Result<Image> {
    Ok(Image::new(name).copy(program, at)?.entrypoint(&[at]))
}

/// The image for mesh tests, with the programs at the paths of the published one, and a certificate.
fn echo(name: &str, [server, client]: &[PathBuf; 2]) -> Result<Image> {
    let entrypoint = "/usr/local/bin/server";
    let CertifiedKey { cert, signing_key } = rcgen::generate_simple_self_signed(["localhost".to_owned()])?;
    Ok(Image::new(name)
        .copy(server, entrypoint)?
        .copy(client, "/usr/local/bin/client")?
        .file("/cert.crt", cert.pem().as_bytes(), 0o644)
        .file("/cert.key", signing_key.serialize_pem().as_bytes(), 0o644)
        .entrypoint(&[entrypoint]))
}

/// A program of Rutter: the one that an environment variable names, or the one beside this one, which the task runner builds.
pub(crate) fn program(name: &str) -> Result<PathBuf> {
    let variable = format!("{}_BIN", name.replace('-', "_").to_uppercase());
    let path = match std::env::var_os(variable) {
        Some(path) => PathBuf::from(path),
        None => std::env::current_exe()?.with_file_name(name),
    };
    if path.is_file() {
        return Ok(path);
    }
    Err(format!("{} does not exist; `cargo xtask conformance` builds it", path.display()).into())
}
