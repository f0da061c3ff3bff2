//! The TLS port: its certificate, the methods of authentication, and the rules of the certificate service.

mod claims;
mod oidc;
mod reviews;
mod serving;

use std::sync::Arc;

use anyhow::Result;
use ca::caller::{TrustedNodeAccounts, TrustedRanges};
use ca::{Lifetimes, TrustBundle};
use config::MeshConfig;
use names::TrustDomain;
use server::signing::{Issuer, Signing, Watched};
use server::{
    Authenticator, Authenticators, CertificateOptions, ForwardedCertificates, PageAccess, SecurePort, Security,
    ServingStatus, WorldHandle,
};
use settings::{CertProvider, Settings};
use tokio::sync::watch;
use tokio::task::JoinSet;

use super::{backend, bindable};
use crate::kubernetes::Cluster;

pub(crate) use reviews::Reviews;

/// The settings of the server, and the tasks that keep its certificates current.
pub(super) struct Secure {
    pub(super) security: Security,
    serving: Option<serving::Serving>,
    /// The tasks that run already.
    tasks: JoinSet<()>,
}

/// Reads the settings. `signing` is the certificate authority, if there is one, and `joining` accepts join tokens.
///
/// # Errors
/// A file cannot be used, or a setting is not valid.
pub(super) fn prepare(
    settings: &Settings,
    pilot: &WorldHandle,
    cluster: Option<&Cluster>,
    signing: Option<Watched>,
    joining: Option<Arc<dyn Authenticator>>,
) -> Result<Secure> {
    let files = serving::Files::of(settings)?;
    let can_issue = signing.is_some() && settings.cert_provider == CertProvider::Istiod;
    let signing = signing.unwrap_or_else(|| nobody(&pilot.mesh().borrow()));
    let address = settings.secure_grpc_addr.0.filter(|_| {
        let is_served = settings.cert_provider != CertProvider::None && (files.is_some() || can_issue);
        if !is_served {
            tracing::info!(
                "xDS over TLS and the certificate service are off: there is no certificate authority \
                 (--tls-cert-file, --cert-provider)"
            );
        }
        is_served
    });
    let trusted_accounts = trusted_accounts(settings);
    if trusted_accounts != TrustedNodeAccounts::default() {
        pilot.pods().enable();
    }
    let mut tasks = JoinSet::new();
    let own = oidc::begin(settings, pilot.mesh(), &mut tasks)?;
    let own = own.map(|oidc| Arc::new(oidc) as Arc<dyn Authenticator>).into_iter().chain(joining);
    let mut security = Security {
        authenticators: authenticators(settings, pilot, cluster, own.collect()),
        signing: signing.clone(),
        port: None,
        authenticate_streams: settings.xds_auth.0,
        authenticate_plaintext: settings.xds_auth_plaintext.0,
        check_identity: settings.xds_identity_check.0,
        pages: pages(settings),
        protect_configuration: settings.protect_configuration.0,
    };
    let Some(address) = address else {
        return Ok(Secure { security, serving: None, tasks });
    };
    let serving = serving::Serving::new(settings, files, signing, pilot.mesh());
    security.signing = serving.signing();
    security.port = Some(SecurePort {
        address: bindable(&address),
        certificate: serving.certificate(),
        certificates: settings.ca_server.0.then(|| CertificateOptions {
            lifetimes: lifetimes(settings),
            trusted_accounts,
            cluster: settings.cluster_id.as_str().into(),
        }),
    });
    Ok(Secure { security, serving: Some(serving), tasks })
}

impl Secure {
    /// Starts the tasks. `/ready` shows why the port is not served, if it is not.
    pub(super) fn run(self, status: ServingStatus) -> JoinSet<()> {
        let mut tasks = self.tasks;
        if let Some(serving) = self.serving {
            serving.run(&mut tasks, status);
        }
        tasks
    }
}

/// Without an authority: no issuer, and no roots.
fn nobody(mesh: &MeshConfig) -> Watched {
    let domain = |name: &Arc<str>| TrustDomain::parse(name).ok();
    let own = domain(&mesh.trust_domain).unwrap_or_default();
    let trust = TrustBundle::new(own, mesh.trust_domain_aliases.iter().filter_map(domain));
    watch::channel(Arc::new(Signing::unavailable("there is no certificate authority", trust))).1
}

fn lifetimes(settings: &Settings) -> Lifetimes {
    let (default, maximum) = (settings.workload_cert_ttl, settings.max_workload_cert_ttl);
    if default > maximum {
        tracing::warn!("--workload-cert-ttl is longer than --max-workload-cert-ttl, which is used instead");
    }
    Lifetimes { default: default.min(maximum), maximum }
}

fn trusted_accounts(settings: &Settings) -> TrustedNodeAccounts {
    let (accounts, invalid) = TrustedNodeAccounts::parse(settings.trusted_node_accounts.as_str());
    if !invalid.is_empty() {
        tracing::error!(?invalid, "--trusted-node-accounts: ignored, because they are not NAMESPACE/NAME");
    }
    accounts
}

fn pages(settings: &Settings) -> PageAccess {
    let namespaces = settings.debug_namespaces.as_str().split(',').map(str::trim);
    match settings.debug_auth.0 {
        true => PageAccess::Namespaces(namespaces.filter(|name| !name.is_empty()).map(str::to_owned).collect()),
        false => PageAccess::Everyone,
    }
}

fn authenticators(
    settings: &Settings,
    pilot: &WorldHandle,
    cluster: Option<&Cluster>,
    mut all: Vec<Arc<dyn Authenticator>>,
) -> Authenticators {
    if let Some(cluster) = cluster {
        let audiences = settings.token_audiences.split(',').map(str::trim).filter(|name| !name.is_empty());
        let reviews = cluster.token_reviews(settings, audiences.map(str::to_owned).collect(), pilot.mesh());
        all.push(Arc::new(reviews));
    }
    let (ranges, invalid) = TrustedRanges::parse(settings.trusted_gateways.as_str());
    if !invalid.is_empty() {
        tracing::error!(?invalid, "--trusted-gateways: ignored, because they are not address ranges (ADDRESS/LENGTH)");
    }
    if ranges != TrustedRanges::default() {
        all.push(Arc::new(ForwardedCertificates(ranges)));
    }
    Authenticators::new(all)
}

/// The trust domain of the mesh.
fn trust_domain(mesh: &watch::Receiver<Arc<MeshConfig>>) -> TrustDomain {
    TrustDomain::parse(&mesh.borrow().trust_domain).unwrap_or_default()
}

/// Warns if other machines reach the plaintext port.
pub(super) fn warn_of_plaintext(settings: &Settings, grpc: std::net::SocketAddr) {
    if !grpc.ip().to_canonical().is_loopback() && !settings.xds_auth_plaintext.0 {
        tracing::warn!(
            address = %grpc,
            "other machines can reach the plaintext xDS port, which does not authenticate proxies: everyone who reaches it reads \
             the configuration of any proxy; once all proxies use TLS, set --grpc-addr {}",
            settings::Address::loopback(grpc.port())
        );
    }
}

/// The address of the plaintext port. On a machine, other machines do not reach it unless that is set.
pub(super) fn plaintext_address(settings: &Settings) -> settings::Address {
    const PORT: u16 = 15010;
    let default = if backend::in_a_pod() { settings::Address::any(PORT) } else { settings::Address::loopback(PORT) };
    settings.grpc_addr.0.unwrap_or(default)
}

/// The reason for which the authority does not sign, if it does not.
fn reason(signing: &Signing) -> Option<&str> {
    match &signing.issuer {
        Issuer::Unavailable(reason) => Some(reason),
        Issuer::Own(_) | Issuer::External(_) => None,
    }
}
