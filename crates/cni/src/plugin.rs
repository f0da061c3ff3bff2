//! The CNI plugin, which the container runtime starts for each pod.
//!
//! It is a chained plugin: it gets the result of the plugins before it and returns it unchanged.

use std::net::IpAddr;
use std::path::PathBuf;
use std::time::Duration;

use serde::Deserialize;
use serde_json::{Value, json};

use crate::kubernetes::{client_of_file, pod};
use crate::pod::Pod;

/// The name of the plugin's kubeconfig in the directory of the agent.
pub(crate) const KUBECONFIG: &str = "istio-cni-kubeconfig";
/// The versions of the specification.
const VERSIONS: [&str; 8] = ["0.1.0", "0.2.0", "0.3.0", "0.3.1", "0.4.0", "1.0.0", "1.1.0", "1.2.0"];
/// The largest input.
const MAX_INPUT: usize = 1 << 20;
/// The time in which the pod must be read. The API may not be reachable for a while.
const PATIENCE: Duration = Duration::from_secs(30);
const PAUSE: Duration = Duration::from_secs(1);
/// The beginnings of the names of the agent's pods.
const AGENTS: [&str; 2] = ["istio-cni-node-", "rutter-cni-node-"];

/// The outcome of the program: its exit code and its standard output.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Exit {
    /// The exit code.
    pub code: u8,
    /// The standard output: a result, or an error of the specification.
    pub output: String,
}

/// The codes of the specification, and one of our own from 100 on.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Code {
    IncompatibleVersion = 1,
    InvalidEnvironment = 4,
    Decode = 6,
    InvalidConfig = 7,
    TryAgain = 11,
    Capture = 100,
}

#[derive(Debug)]
struct Failure {
    code: Code,
    message: &'static str,
    details: String,
}

fn failure(code: Code, message: &'static str) -> impl FnOnce(String) -> Failure {
    move |details| Failure { code, message, details }
}

/// The configuration of the plugin, as the agent writes it.
#[derive(Deserialize, Debug, Default)]
#[serde(default, rename_all = "camelCase")]
struct NetConf {
    cni_version: String,
    prev_result: Option<Value>,
    #[serde(rename = "cni_agent_run_dir")]
    run_dir: PathBuf,
    #[serde(rename = "exclude_namespaces")]
    exclude_namespaces: Vec<String>,
    #[serde(rename = "pod_namespace")]
    pod_namespace: String,
    #[serde(rename = "native_nftables")]
    native_nftables: bool,
}

/// The pod that `CNI_ARGS` names.
#[derive(Debug, Default, PartialEq, Eq)]
struct Arguments {
    name: String,
    namespace: String,
}

/// Handles a call of the container runtime: the environment has the command, the standard input the configuration.
pub async fn run(input: &[u8], variable: impl Fn(&str) -> Option<String>) -> Exit {
    let command = variable("CNI_COMMAND").unwrap_or_default();
    let conf = decode(input);
    let version = conf.as_ref().map_or("1.0.0", |conf| &conf.cni_version).to_owned();
    let result = match (command.as_str(), conf) {
        ("VERSION", _) => Ok(Some(json!({ "cniVersion": version, "supportedVersions": VERSIONS }))),
        // Nothing is left of a pod whose network namespace goes away.
        ("DEL" | "GC", _) => Ok(None),
        ("CHECK" | "STATUS", conf) => conf.map(|_| None),
        ("ADD", Ok(conf)) => add(conf, variable).await.map(Some),
        ("ADD", Err(error)) => Err(error),
        _ => Err(failure(Code::InvalidEnvironment, "unknown CNI_COMMAND")(command.chars().take(60).collect())),
    };
    let (code, output) = match result {
        Ok(output) => (0, output),
        Err(Failure { code, message, details }) => {
            tracing::error!(message, details, "the plugin failed");
            let code = code as u32;
            (1, Some(json!({ "cniVersion": version, "code": code, "msg": message, "details": details })))
        }
    };
    Exit { code, output: output.map(|output| output.to_string()).unwrap_or_default() }
}

fn decode(input: &[u8]) -> Result<NetConf, Failure> {
    if input.len() > MAX_INPUT {
        return Err(failure(Code::Decode, "the configuration is too large")(format!("{} bytes", input.len())));
    }
    let invalid = failure(Code::Decode, "the configuration is not valid");
    let conf = match serde_json::from_slice::<Value>(input) {
        Ok(value) if value.is_object() => serde_json::from_value::<NetConf>(value),
        Ok(_) => return Err(invalid("it is not an object".to_owned())),
        Err(error) => Err(error),
    };
    let mut conf = conf.map_err(|error| invalid(error.to_string()))?;
    if conf.cni_version.is_empty() {
        "0.1.0".clone_into(&mut conf.cni_version);
    }
    match VERSIONS.contains(&conf.cni_version.as_str()) {
        true => Ok(conf),
        false => {
            let version = conf.cni_version.chars().take(60).collect();
            Err(failure(Code::IncompatibleVersion, "the version is not supported")(version))
        }
    }
}

async fn add(conf: NetConf, variable: impl Fn(&str) -> Option<String>) -> Result<Value, Failure> {
    let required = |name: &str| {
        let missing = || failure(Code::InvalidEnvironment, "a variable is missing")(name.to_owned());
        variable(name).filter(|value| !value.is_empty()).ok_or_else(missing)
    };
    let (_, _) = (required("CNI_CONTAINERID")?, required("CNI_IFNAME")?);
    let namespace = required("CNI_NETNS")?;
    let arguments = arguments(&variable("CNI_ARGS").unwrap_or_default());
    capture(&conf, &arguments, &namespace).await?;
    let result = conf.prev_result.unwrap_or_else(|| json!({ "cniVersion": conf.cni_version }));
    match result.is_object() {
        true => Ok(result),
        false => Err(failure(Code::InvalidConfig, "prevResult is not an object")(String::new())),
    }
}

/// The values of `CNI_ARGS`: pairs with `=`, separated by `;`.
fn arguments(text: &str) -> Arguments {
    let value = |key: &str| {
        let mut pairs = text.split(';').filter_map(|pair| pair.split_once('='));
        pairs.find(|(of, _)| *of == key).map(|(_, value)| value.to_owned()).unwrap_or_default()
    };
    Arguments { name: value("K8S_POD_NAME"), namespace: value("K8S_POD_NAMESPACE") }
}

async fn capture(conf: &NetConf, arguments: &Arguments, namespace: &str) -> Result<(), Failure> {
    let Arguments { name, namespace: of } = arguments;
    let own = *of == conf.pod_namespace && AGENTS.iter().any(|prefix| name.starts_with(prefix));
    if name.is_empty() || of.is_empty() || own || conf.exclude_namespaces.contains(of) {
        tracing::info!(pod = %name, namespace = %of, "not captured: not a pod, a pod of the agent, or an excluded namespace");
        return Ok(());
    }
    let pod = get(conf, arguments).await?;
    if let Some(reason) = pod.excluded() {
        tracing::info!(pod = %name, namespace = %of, "not captured: {reason}");
        return Ok(());
    }
    let addresses = conf.prev_result.as_ref().map(addresses).unwrap_or_default();
    let capture = make_rules(pod, namespace.to_owned(), addresses, conf.native_nftables).await;
    capture.map_err(failure(Code::Capture, "the traffic of the pod cannot be captured"))?;
    tracing::info!(pod = %name, namespace = %of, "captured");
    Ok(())
}

async fn get(conf: &NetConf, arguments: &Arguments) -> Result<Pod, Failure> {
    let file = conf.run_dir.join(KUBECONFIG);
    let client = client_of_file(&file).await;
    let client = client.map_err(|error| {
        let details = format!("{}: {error}; it is there while the node agent runs", file.display());
        failure(Code::TryAgain, "the kubeconfig of the plugin cannot be used")(details)
    })?;
    let mut last = "no answer".to_owned();
    let read = async {
        loop {
            match pod(&client, &arguments.namespace, &arguments.name).await {
                Ok(pod) => return pod,
                Err(error) => last = error.to_string(),
            }
            tracing::warn!("cannot read the pod: {last}");
            tokio::time::sleep(PAUSE).await;
        }
    };
    match tokio::time::timeout(PATIENCE, read).await {
        Ok(pod) => Ok(pod),
        Err(_) => Err(failure(Code::TryAgain, "the pod cannot be read")(last)),
    }
}

/// The addresses of a result.
fn addresses(result: &Value) -> Vec<IpAddr> {
    let ips = result["ips"].as_array().map_or([].as_slice(), Vec::as_slice);
    ips.iter().filter_map(|ip| ip["address"].as_str()?.split('/').next()?.parse().ok()).collect()
}

/// Makes the rules in a pod's network namespace. If its addresses are not known, they are read there.
pub(crate) async fn make_rules(
    pod: Pod,
    namespace: String,
    addresses: Vec<IpAddr>,
    nftables: bool,
) -> Result<(), String> {
    let mut config = pod.config(&namespace).map_err(|error| error.to_string())?;
    config.native_nftables = nftables;
    let work = move || {
        let host = match addresses.is_empty() {
            true => interception_exec::host(&config, None)?,
            false => interception::Host { addresses, ..interception::Host::default() },
        };
        interception_exec::run(&config, &host, &mut std::io::sink()).map(|_| ())
    };
    let done = tokio::task::spawn_blocking(work).await;
    done.map_err(|error| error.to_string())?.map_err(|error: interception_exec::ExecError| error.to_string())
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use proptest::prelude::*;

    use super::*;
    use crate::fake_api::FakeApi;

    /// A pod with a sidecar, as the API returns it.
    fn sidecar() -> Value {
        json!({
            "apiVersion": "v1", "kind": "Pod",
            "metadata": {
                "name": "app", "namespace": "shop",
                "annotations": {
                    "sidecar.istio.io/status": "{}",
                    "traffic.sidecar.istio.io/excludeOutboundPorts": "3306",
                },
            },
            "spec": {
                "initContainers": [{
                    "name": "istio-proxy", "args": ["proxy", "sidecar"], "securityContext": { "runAsUser": 1500 },
                    "env": [{ "name": "ISTIO_META_DNS_CAPTURE", "value": "true" }, { "name": "A", "valueFrom": {} }],
                }],
                "containers": [{ "name": "app" }],
            },
        })
    }

    fn variables<'a>(command: &'a str, netns: &'a str) -> impl Fn(&str) -> Option<String> + 'a {
        move |name| {
            let value = match name {
                "CNI_COMMAND" => command,
                "CNI_NETNS" => netns,
                "CNI_CONTAINERID" => "c1",
                "CNI_IFNAME" => "eth0",
                "CNI_ARGS" => "IgnoreUnknown=1;K8S_POD_NAMESPACE=shop;K8S_POD_NAME=app",
                _ => return None,
            };
            Some(value.to_owned())
        }
    }

    async fn call(command: &str, conf: &Value) -> (u8, Value) {
        let exit = run(conf.to_string().as_bytes(), variables(command, "/run/netns/none")).await;
        (exit.code, serde_json::from_str(&exit.output).unwrap_or_default())
    }

    #[tokio::test]
    async fn versions_are_listed_and_other_commands_do_nothing() {
        let (code, output) = call("VERSION", &json!({ "cniVersion": "1.0.0" })).await;
        assert_eq!((code, &output["cniVersion"]), (0, &json!("1.0.0")));
        assert!(output["supportedVersions"].as_array().is_some_and(|all| all.contains(&json!("0.4.0"))));
        for command in ["CHECK", "DEL"] {
            assert_eq!(call(command, &json!({ "cniVersion": "1.0.0" })).await, (0, Value::Null), "{command}");
        }
        // The container runtime calls this even if the configuration is gone.
        assert_eq!(run(b"", variables("DEL", "")).await, Exit { code: 0, output: String::new() });
    }

    #[tokio::test]
    async fn errors_have_the_form_of_the_specification() {
        let conf = json!({ "cniVersion": "1.0.0", "cni_agent_run_dir": "/nowhere" });
        for (command, conf, expected) in [
            ("ADD", json!({ "cniVersion": "9.0.0" }), 1),
            ("REMOVE", conf.clone(), 4),
            ("ADD", json!([]), 6),
            ("ADD", json!({ "cniVersion": 1 }), 6),
            // Without a kubeconfig.
            ("ADD", conf.clone(), 11),
        ] {
            let (code, output) = call(command, &conf).await;
            assert_eq!((code, &output["code"]), (1, &json!(expected)), "{output}");
            assert!(output["msg"].is_string() && output["cniVersion"].is_string());
        }
        let missing = run(conf.to_string().as_bytes(), |name| (name == "CNI_COMMAND").then(|| "ADD".to_owned())).await;
        assert!(missing.output.contains("CNI_CONTAINERID"), "{}", missing.output);
    }

    #[tokio::test]
    async fn the_result_of_other_plugins_is_passed_on() {
        let previous = json!({ "cniVersion": "1.0.0", "ips": [{ "address": "10.0.0.9/24" }], "dns": {} });
        let conf = json!({ "cniVersion": "1.0.0", "exclude_namespaces": ["shop"], "prevResult": previous });
        assert_eq!(call("ADD", &conf).await, (0, previous));
        assert_eq!(
            call("ADD", &json!({ "cniVersion": "1.0.0", "exclude_namespaces": ["shop"] })).await,
            (0, json!({ "cniVersion": "1.0.0" }))
        );
    }

    /// A network namespace that is removed at the end.
    struct Namespace(String);

    impl Namespace {
        fn run(&self, command: &str) -> Option<String> {
            let output = Command::new("ip").args(["netns", "exec", &self.0]).args(command.split(' ')).output().ok()?;
            output.status.success().then(|| String::from_utf8_lossy(&output.stdout).into_owned())
        }
    }

    impl Drop for Namespace {
        fn drop(&mut self) {
            let _ = Command::new("ip").args(["netns", "del", &self.0]).status();
        }
    }

    #[tokio::test]
    async fn the_traffic_of_a_pod_is_captured() {
        let namespace = Namespace(format!("rutcni-{}", std::process::id()));
        let made = Command::new("ip").args(["netns", "add", &namespace.0]).output();
        if !made.as_ref().is_ok_and(|output| output.status.success()) || namespace.run("iptables-nft-save").is_none() {
            eprintln!(
                "SKIPPED: the traffic of a pod is captured: no network namespaces or no iptables-nft here: {made:?}"
            );
            return;
        }
        let pod = sidecar();
        let api = FakeApi::start(move |line| {
            Some(match line {
                "GET /api/v1/namespaces/shop/pods/app" => (200, pod.to_string()),
                _ => (404, "{}".to_owned()),
            })
        })
        .await;
        let dir = tempfile::tempdir().expect("a directory");
        api.write_kubeconfig(&dir.path().join(KUBECONFIG));
        let path = format!("/run/netns/{}", namespace.0);
        let add = async |nftables: bool| {
            let previous = json!({ "cniVersion": "1.0.0", "ips": [{ "address": "10.0.0.9/24" }] });
            let conf = json!({
                "cniVersion": "1.0.0", "cni_agent_run_dir": dir.path(), "prevResult": previous, "native_nftables": nftables,
            });
            let exit = run(conf.to_string().as_bytes(), variables("ADD", &path)).await;
            assert_eq!((exit.code, exit.output), (0, previous.to_string()));
        };
        add(false).await;
        let rules = namespace.run("iptables-nft-save").expect("rules");
        for expected in [
            "-A ISTIO_OUTPUT -p tcp -m tcp --dport 3306 -j RETURN",
            "--uid-owner 1500 -j RETURN",
            "-A ISTIO_INBOUND -p tcp -m tcp --dport 15090 -j RETURN",
            "-A ISTIO_OUTPUT_DNS -p udp -m udp --dport 53 -j REDIRECT --to-ports 15053",
            "-A ISTIO_OUTPUT -j ISTIO_REDIRECT",
        ] {
            assert!(rules.contains(expected), "{expected}\n{rules}");
        }
        assert!(namespace.run("ip6tables-nft-save").is_some_and(|rules| !rules.contains("ISTIO")));
        // The container runtime may repeat a call.
        add(false).await;
        assert_eq!(
            namespace.run("iptables-nft-save").map(|text| text.lines().filter(|l| l.starts_with('-')).count()),
            Some(rules.lines().filter(|l| l.starts_with('-')).count())
        );
        add(true).await;
        assert!(
            namespace
                .run("nft list table inet istio-proxy-nat")
                .is_some_and(|table| table.contains("redirect to :15001"))
        );
    }

    proptest! {
        #[test]
        fn any_input_gives_an_answer(input in proptest::collection::vec(any::<u8>(), 0..200), arguments in "\\PC{0,50}") {
            let _ = super::arguments(&arguments);
            if let Err(error) = decode(&input) {
                prop_assert!(matches!(error.code, Code::Decode | Code::IncompatibleVersion));
            }
        }
    }
}
