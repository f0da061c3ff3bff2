//! The bank on this machine: a ledger and two callers. Each has an agent, which joins with a token, and a sidecar, which uses
//! the certificate.

use std::net::{Ipv4Addr, SocketAddr};
use std::path::Path;

use test_agent::client::{Client, Key, Proof};
use test_agent::{Secrets, bootstrap, over_tls, serve};
use test_harness::run::{Backend, Control, Envoy, Node, Protocol, Result, free_port, http, wait_for};
use tokio::sync::watch;

use super::objects::{self, BANK, LEDGER};
use super::{Answer, Bank, Caller, PATIENCE, Place};
use crate::config::Manifest;
use crate::operator::Operator;
use crate::promises::Promises;
use crate::screen::Screen;
use crate::stage::Stage;

/// The name of the control plane in its certificate.
const ISTIOD: &str = "istiod.istio-system.svc";
/// The addresses of the workloads: different ones, so that none is taken for another.
const LEDGER_IP: Ipv4Addr = Ipv4Addr::new(127, 0, 0, 11);
const TELLER_IP: Ipv4Addr = Ipv4Addr::new(127, 0, 0, 12);
const VISITOR_IP: Ipv4Addr = Ipv4Addr::new(127, 0, 0, 13);

struct Here<'a> {
    operator: &'a Operator,
    /// The port of the service, at which the callers' sidecars listen.
    port: u16,
    /// The address of the ledger's sidecar.
    entrance: SocketAddr,
}

/// Runs the steps, the first of which has the number `step`.
pub(crate) async fn run(stage: &Stage, screen: &mut Screen, promises: &mut Promises, step: u32) -> Result<()> {
    let application = Backend::start("v1", "ledger").await?;
    let (port, entrance) = (free_port(), SocketAddr::from((LEDGER_IP, free_port())));
    let callers = [("teller", TELLER_IP), ("visitor", VISITOR_IP)];
    for manifest in objects::service(port, entrance, application.address(), &callers) {
        stage.operator.perform(stage.operator.apply(&manifest)?).await?;
    }
    let place = Here { operator: &stage.operator, port, entrance };
    let mut bank = Bank { place: &place, screen, promises, step };
    bank.begin("three workloads join, each with a certificate of Rutter's own authority");
    let (envoy, protocol) = &stage.envoy;
    // They run until the end.
    let mut sidecars = Vec::new();
    for (account, ip, listens) in [
        ("ledger", LEDGER_IP, entrance),
        ("teller", TELLER_IP, (TELLER_IP, port).into()),
        ("visitor", VISITOR_IP, (VISITOR_IP, port).into()),
    ] {
        bank.screen.say(&format!("     $ rutter token create -n {BANK} --service-account {account}"));
        let sidecar = join(&stage.operator, &stage.control, (envoy, *protocol), (account, ip)).await?;
        sidecar.wait_for_listener(listens).await?;
        sidecars.push(sidecar);
    }
    bank.run().await
}

/// Joins as the service account `account`: creates a token, gets a certificate for it at the TLS port, and starts a sidecar
/// that uses it, also towards the control plane.
async fn join(
    operator: &Operator,
    control: &Control,
    (envoy, protocol): (&Path, Protocol),
    (account, ip): (&str, Ipv4Addr),
) -> Result<Envoy> {
    let roots = || async { operator.rutter(&["ca", "root"]).await.ok() };
    let roots = wait_for("the root certificate", PATIENCE, roots).await?;
    let token = operator.rutter(&["token", "create", "-n", BANK, "--service-account", account]).await?;
    let connect = || async { Client::connect(control.secure(), (&roots, ISTIOD), None).await.ok() };
    let client = wait_for("a connection to the TLS port", PATIENCE, connect).await?;
    let key = Key::new()?;
    // The request names nobody: the certificate has the identity of the token.
    let chain = client.create(Proof::token(&token), &key.request(&[])?, &[]).await??;
    let sds = serve(watch::Sender::new(Secrets::issued(chain, &key, None)?)).await?;
    let mut node = Node::sidecar(account, BANK, &ip.to_string(), &[("app", account)]);
    node.metadata["SERVICE_ACCOUNT"] = account.into();
    Envoy::start_with(envoy, &over_tls(bootstrap(node, protocol, control.secure(), sds), ISTIOD)).await
}

impl Place for Here<'_> {
    async fn apply(&self, manifest: &Manifest) -> Result<String> {
        let step = self.operator.apply(manifest)?;
        let command = step.command.clone();
        self.operator.perform(step).await?;
        Ok(command)
    }

    async fn ask(&self, caller: Caller, token: Option<&str>) -> Answer {
        let address = match caller {
            Caller::Teller => (TELLER_IP, self.port).into(),
            Caller::Visitor => (VISITOR_IP, self.port).into(),
            Caller::Stranger => self.entrance,
        };
        let bearer = token.map(|token| format!("Bearer {token}"));
        let bearer = bearer.as_deref().map(|bearer| ("authorization", bearer));
        let headers: Vec<(&str, &str)> = [("host", LEDGER)].into_iter().chain(bearer).collect();
        Answer::read(http::get(address, "/", &headers).await)
    }
}
