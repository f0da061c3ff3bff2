//! A machine with an agent: a network namespace with a folder of files, in which `rutter-agent` runs a sidecar as on a virtual
//! machine. The agent's own rules capture the traffic of its applications.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::process::{Output, Stdio};

use serde_json::{Value, json};
use tempfile::{NamedTempFile, TempDir};
use test_harness::run::{Control, Result, wait_for};
use tokio::process::{Child, Command};

use crate::issued::{root, token};
use crate::{Namespace, PATIENCE, agent_binary, envoy_binary};

/// The user of the agent and of Envoy, whose traffic is not captured. The applications run as another user.
const PROXY: &str = "0";
/// A group that nobody has.
const NO_GROUP: &str = "1337";

/// A machine of the mesh.
pub struct Machine {
    /// Its network.
    pub namespace: Namespace,
    /// The directory of the agent.
    pub folder: TempDir,
    account: String,
    /// The ProxyConfig.
    pub settings: Value,
    /// The environment of the agent, besides the ProxyConfig.
    pub variables: BTreeMap<&'static str, String>,
    agent: Option<Child>,
    log: NamedTempFile,
}

impl Machine {
    /// Makes a machine of a service account of the namespace `test`: the files with which it joins are there, and traffic is captured.
    pub async fn new(control: &Control, namespace: Namespace, account: &str) -> Result<Machine> {
        let folder = tempfile::tempdir()?;
        let write = |file: &str, text: &str| {
            let path = folder.path().join(file);
            std::fs::create_dir_all(path.parent().ok_or("no folder")?)?;
            Ok::<_, test_harness::run::Error>(std::fs::write(path, text)?)
        };
        write("var/run/secrets/tokens/istio-token", &token(control, "test", account).await?)?;
        write("var/run/secrets/istio/root-cert.pem", &root(control).await?)?;
        let settings = json!({
            "discoveryAddress": control.secure().to_string(),
            "binaryPath": envoy_binary(),
            "terminationDrainDuration": "1s",
        });
        let certificates = folder.path().join("certs");
        let ip = namespace.ip.to_string();
        let variables = BTreeMap::from([
            ("ISTIOD_SAN", crate::issued::ISTIOD.to_owned()),
            ("POD_NAME", format!("{account}-1")),
            ("POD_NAMESPACE", "test".to_owned()),
            ("SERVICE_ACCOUNT", account.to_owned()),
            ("INSTANCE_IP", ip),
            ("OUTPUT_CERTS", certificates.display().to_string()),
            ("ISTIO_META_DNS_CAPTURE", "true".to_owned()),
            ("ECC_SIGNATURE_ALGORITHM", "ECDSA".to_owned()),
        ]);
        let log = NamedTempFile::new()?;
        let machine = Machine { namespace, folder, account: account.to_owned(), settings, variables, agent: None, log };
        machine.namespace.ask_for_names([192, 0, 2, 1].into())?;
        let users = ["-u", PROXY, "-g", NO_GROUP];
        let traffic = ["-i", "*", "-b", "*", "-d", "15090,15021,15020", "--redirect-dns"];
        machine.done(&[&["istio-iptables"], &users[..], &traffic].concat()).await?;
        Ok(machine)
    }

    /// A command of the agent's program on this machine.
    fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new("ip");
        command
            .args(["netns", "exec", &self.namespace.name])
            .arg(agent_binary())
            .args(arguments)
            .env_clear()
            .env("PATH", std::env::var_os("PATH").unwrap_or_default())
            .envs(&self.variables)
            .env("PROXY_CONFIG", self.settings.to_string())
            .current_dir(self.folder.path())
            .kill_on_drop(true);
        command
    }

    /// Runs a command of the agent's program to its end.
    pub async fn run(&self, arguments: &[&str]) -> Result<Output> {
        Ok(self.command(arguments).output().await?)
    }

    /// The output of a command that must succeed.
    pub async fn done(&self, arguments: &[&str]) -> Result<String> {
        let output = self.run(arguments).await?;
        if !output.status.success() {
            return Err(format!("{arguments:?}: {}", String::from_utf8_lossy(&output.stderr)).into());
        }
        Ok(String::from_utf8(output.stdout)?)
    }

    /// Starts the agent, and waits until its proxy is ready.
    pub async fn start(&mut self) -> Result<()> {
        let log = self.log.reopen()?;
        let mut command = self.command(&["proxy", "sidecar", "--concurrency", "1", "--proxyLogLevel", "warning"]);
        self.agent = Some(command.stdout(Stdio::from(log.try_clone()?)).stderr(Stdio::from(log)).spawn()?);
        let ready = self.done(&["wait", "--timeoutSeconds", "60", "--periodMillis", "50"]).await;
        ready.map(drop).map_err(|error| format!("{}: {error}\n{}", self.account, self.log().unwrap_or_default()).into())
    }

    /// Asks the agent to end, and returns its exit code.
    pub async fn stop(&mut self) -> Result<Option<i32>> {
        let mut agent = self.agent.take().ok_or("the agent does not run")?;
        let pid = agent.id().ok_or("the agent has ended")?;
        Command::new("kill").arg(pid.to_string()).status().await?;
        let ended = tokio::time::timeout(PATIENCE, agent.wait()).await.map_err(|_| "the agent does not end")?;
        Ok(ended?.code())
    }

    /// Starts an application on port 8080 that answers with the certificate of the caller.
    pub fn application(&self) -> Result<Application> {
        let mut command = self.namespace.application(APPLICATION);
        Ok(Application(command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).spawn()?))
    }

    /// An application's view of a page: the status, and the certificate that the server's application saw; or the error.
    pub fn fetch(&self, url: &str) -> Result<String> {
        let program = format!(
            "try: r = urllib.request.urlopen('{url}', timeout=10)\n\
             except urllib.error.HTTPError as e: r = e\n\
             except OSError as e: r = None; print('error:', e)\n\
             if r: print(r.status, r.headers.get('x-caller'))"
        );
        Ok(self.namespace.python(&program)?.trim().to_owned())
    }

    /// Waits until a page is answered with status 200 and this in the caller's certificate.
    pub async fn reaches(&self, url: &str, caller: &str) -> Result<()> {
        let reached = || async {
            self.fetch(url).ok().filter(|answer| answer.starts_with("200 ") && answer.contains(caller)).map(drop)
        };
        let result = wait_for(&format!("{url} called by {caller}"), PATIENCE, reached).await;
        let Err(error) = result else { return Ok(()) };
        let answer = self.fetch(url)?;
        let clusters = self.done(&["request", "GET", "clusters"]).await.unwrap_or_else(|error| error.to_string());
        Err(format!("{error}; the last answer: {answer}\n{clusters}\n{}", self.log()?).into())
    }

    /// The log of the agent and its proxy.
    pub fn log(&self) -> Result<String> {
        Ok(std::fs::read_to_string(self.log.path())?)
    }

    /// The address of its application.
    pub fn address(&self) -> SocketAddr {
        (self.namespace.ip, 8080).into()
    }
}

/// A running application. It ends when this is dropped.
pub struct Application(std::process::Child);

impl Drop for Application {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

const APPLICATION: &str = "\
class Answer(http.server.BaseHTTPRequestHandler):
    protocol_version = 'HTTP/1.1'
    def do_GET(self):
        self.send_response(200)
        self.send_header('x-caller', self.headers.get('x-forwarded-client-cert') or 'nobody')
        self.send_header('content-length', '0')
        self.end_headers()
    def log_message(self, *arguments): pass
http.server.ThreadingHTTPServer(('', 8080), Answer).serve_forever()";
