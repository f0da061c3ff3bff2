//! Starts the Envoy of a Gateway, or changes it.

use std::collections::BTreeSet;
use std::collections::hash_map::DefaultHasher;
use std::hash::{Hash as _, Hasher as _};
use std::net::IpAddr;
use std::sync::Arc;

use supervisor::Configuration;
use tokio::sync::watch;
use tokio::task;
use tracing::Instrument as _;

use crate::Xds;
use crate::bootstrap::{self, bootstrap};
use crate::fleet::Fleet;
use crate::gateway::{Gateway, Id};
use crate::machine::FILE_BYTES;
use crate::mesh::Member;
use crate::parameters::Tuning;
use crate::supervised::{Channels, supervise, supervisor_settings};

/// A supervised Envoy.
#[derive(Debug)]
pub(crate) struct Running {
    pub(crate) task: task::Id,
    configuration: watch::Sender<Configuration>,
    pub(crate) stop: watch::Sender<bool>,
    pub(crate) ports: watch::Sender<BTreeSet<u16>>,
    pub(crate) member: Option<Member>,
    /// The settings with which it started, and the newest ones.
    started: supervisor::Settings,
    newest: supervisor::Settings,
}

impl Fleet {
    /// Starts the Envoy of a Gateway, or changes its bootstrap.
    pub(crate) fn run(&mut self, gateway: &Gateway, addresses: &[IpAddr], restarts: u32, tuning: &Tuning) {
        let file = file_name(&gateway.id);
        let admin = self.folder.join(&format!("{file}.sock"));
        let ip = addresses.first().copied().unwrap_or(self.outward);
        let member = match &self.settings.xds {
            Xds::Tls(secure) => Some(Member::new(secure, &self.settings.cluster, gateway, &self.folder, &file)),
            Xds::Tcp(..) | Xds::Unix(_) => None,
        };
        let (machine, of_mesh) = (&self.machine, member.as_ref());
        let proxy =
            bootstrap::Proxy { gateway, addresses, ip, admin: &admin, machine, restarts, tuning, member: of_mesh };
        let text = format!("{:#}\n", bootstrap(&proxy, &self.settings));
        let path = self.folder.join(&format!("{file}.json"));
        let configuration = Configuration { path, text: Some(Arc::from(text)), overlay: None };
        let number = hash(&format!("{}/{file}", std::process::id()));
        let of_supervisor = match supervisor_settings(&self.settings, tuning, ip.is_ipv6(), number, admin) {
            Ok(settings) => settings,
            Err(error) => return tracing::error!(gateway = %gateway.id, %error, "cannot start its Envoy"),
        };
        if let Some(running) = self.running.get_mut(&gateway.id) {
            if running.member != member {
                // Its certificate is one of another service account.
                return self.drain(&gateway.id);
            }
            if running.newest != of_supervisor {
                if running.started != of_supervisor {
                    tracing::warn!(
                        gateway = %gateway.id,
                        "new settings of the threads, the log or the end of its Envoy take effect when it is started again"
                    );
                }
                running.newest = of_supervisor;
            }
            // One that drains is replaced when it has ended.
            running.configuration.send_if_modified(|current| {
                let differs = *current != configuration;
                *current = configuration;
                differs
            });
            return;
        }
        tracing::info!(gateway = %gateway.id, "starting an Envoy");
        let (configuration, configured) = watch::channel(configuration);
        let (stop, stopping) = watch::channel(false);
        let (ports, programmed) = watch::channel(BTreeSet::new());
        let channels =
            Channels { configurations: configured, stop: stopping, starting: self.starting.clone(), ports: programmed };
        let (id, events) = (gateway.id.clone(), self.events.0.clone());
        let report = move |event| drop(events.try_send((id.clone(), event)));
        let supervised = supervise(of_supervisor.clone(), member.clone(), channels, report);
        let span = tracing::info_span!("gateway", id = %gateway.id);
        let task = self.tasks.spawn(supervised.instrument(span)).id();
        let (started, newest) = (of_supervisor.clone(), of_supervisor);
        let running = Running { task, configuration, stop, ports, member, started, newest };
        self.running.insert(gateway.id.clone(), running);
    }
}

/// The name of the files of a Gateway. Long ones are shortened.
fn file_name(id: &Id) -> String {
    let whole = format!("{}.{}", id.namespace, id.name);
    if whole.len() + ".sock".len() <= FILE_BYTES {
        return whole;
    }
    let kept: String = whole.chars().take(24).collect();
    format!("{kept}-{:016x}", hash(&whole))
}

fn hash(text: &str) -> u64 {
    let mut hasher = DefaultHasher::new();
    text.hash(&mut hasher);
    hasher.finish()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_files_are_short_and_distinct() {
        let id = |namespace: &str, name: &str| Id { namespace: namespace.to_owned(), name: name.to_owned() };
        assert_eq!(file_name(&id("shop", "edge")), "shop.edge");
        let (one, two) = (file_name(&id("shop", &"x".repeat(200))), file_name(&id("shop", &"x".repeat(201))));
        assert!(one != two && one.len() + ".sock".len() <= FILE_BYTES, "{one}");
    }
}
