//! `rutter convert`, from arguments to exit code.

use std::io::Write;
use std::sync::{Arc, Mutex};

use clap::Command;

use crate::{Io, run_with, with_commands};

const GATEWAY: &str = "\
apiVersion: networking.istio.io/v1
kind: Gateway
metadata: {name: edge}
spec:
  selector: {istio: ingressgateway}
  servers:
  - port: {number: 80, name: http, protocol: HTTP}
    hosts: [\"*\"]
";

const ROUTE: &str = "\
apiVersion: networking.istio.io/v1
kind: VirtualService
metadata: {name: shop}
spec:
  hosts: [shop.example.com]
  gateways: [edge]
  http:
  - match: [{uri: {exact: /a}}]
    route: [{destination: {host: web, port: {number: 80}}}]
";

/// A stream that a test reads.
#[derive(Clone, Default)]
struct Stream(Arc<Mutex<Vec<u8>>>);

impl Write for Stream {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0.lock().unwrap().write(bytes)
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

impl Stream {
    fn text(&self) -> String {
        String::from_utf8(self.0.lock().unwrap().clone()).unwrap()
    }
}

fn root() -> Command {
    with_commands(Command::new("rutter"))
}

/// Runs the command with this input. Returns the exit code, standard output and standard error.
fn run(input: &str, arguments: &[&str]) -> (u8, String, String) {
    let all = ["rutter", "convert", "-f", "-"].iter().chain(arguments);
    let matches = root().try_get_matches_from(all).unwrap();
    let (name, matches) = matches.subcommand().unwrap();
    let (out, err) = (Stream::default(), Stream::default());
    let mut io = Io::to(out.clone(), err.clone());
    io.stdin = Box::new(std::io::Cursor::new(input.to_owned()));
    let code = run_with(name, matches, root, &mut io);
    (code, out.text(), err.text())
}

#[test]
fn equal_routes_end_with_zero() {
    let (code, out, err) = run(&format!("{GATEWAY}---\n{ROUTE}"), &["-n", "default", "--gateway-class", "mine"]);
    assert_eq!(code, 0, "{err}");
    assert!(out.contains("kind: HTTPRoute") && out.contains("gatewayClassName: mine"), "{out}");
    assert!(err.contains("check: HTTP port 80, host shop.example.com: equal"), "{err}");
    assert!(err.contains("info: Gateway default/edge: spec.selector:"), "{err}");
    let read = crate::manifests::parse(out.as_bytes(), "out").unwrap();
    assert_eq!(read.manifests.len(), 2);
}

#[test]
fn lost_fields_are_named_with_their_line_and_end_with_one() {
    let lossy =
        ROUTE.replace("    route:", "    fault: {abort: {httpStatus: 500, percentage: {value: 1}}}\n    route:");
    let input = format!("{GATEWAY}---\n{lossy}");
    let (code, out, err) = run(&input, &["-o", "json"]);
    assert_eq!(code, 1, "{err}");
    assert!(err.contains("<stdin>:18:5") && err.contains("VirtualService default/shop: spec.http[0].fault:"), "{err}");
    assert!(err.contains("/a: typedPerFilterConfig") && err.contains("1 of 1 hosts differ"), "{err}");
    let list: serde_json::Value = serde_json::from_str(&out).unwrap();
    assert_eq!(list["items"][1]["kind"], "HTTPRoute");
    let (code, _, err) = run(&input, &["--no-check"]);
    assert!(code == 1 && !err.contains("check:"), "{err}");
}

#[test]
fn errors_end_with_two() {
    let (code, out, err) = run("apiVersion: v1\nkind: Service\nmetadata: {name: a}\n", &[]);
    assert!(code == 2 && out.is_empty() && err.contains("there is no Ingress"), "{err}");
    let (code, ..) = run("a: [", &[]);
    assert_eq!(code, 2);
    let (code, _, err) = run(GATEWAY, &["--service", "/a"]);
    assert!(code == 2 && err.contains("--service"), "{err}");
}
