//! Controllers in other clusters, started and stopped as clusters come and go: service exports in all of them, root
//! certificates in those without a control plane of their own.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use controllers::{ExportDriver, RootDriver};
use kube::Client;
use kube::api::{Api, DynamicObject};
use kube::core::{ApiResource, GroupVersionKind};
use tokio::sync::watch;
use tokio::task::JoinSet;

use super::{Context, NAMESPACES, SERVICE_EXPORTS};
use crate::kubernetes::clusters::{Way, Ways};

/// The annotation of the control plane's namespace in another cluster. It names the clusters whose control planes write
/// there.
const WRITERS: &str = "topology.istio.io/controlPlaneClusters";
/// The interval of attempts while a cluster does not respond or does not name this control plane.
const AGAIN: Duration = Duration::from_secs(15);

/// A cluster and its running controllers.
struct RemoteCluster {
    /// The number of the connection that they use.
    way: u64,
    stop: watch::Sender<bool>,
    tasks: JoinSet<()>,
}

/// Runs the controllers of other clusters until `stopped` is true. Returns when all have ended.
pub(super) async fn run(context: Context, mut ways: watch::Receiver<Ways>, mut stopped: watch::Receiver<bool>) {
    let mut sites: BTreeMap<Arc<str>, RemoteCluster> = BTreeMap::new();
    let mut leaving = JoinSet::new();
    loop {
        let now = ways.borrow_and_update().clone();
        let over: Vec<Arc<str>> = sites
            .iter()
            .filter(|(cluster, site)| now.get(*cluster).is_none_or(|way| way.number != site.way))
            .map(|(cluster, _)| cluster.clone())
            .collect();
        for site in over.iter().filter_map(|cluster| sites.remove(cluster)) {
            leaving.spawn(site.end());
        }
        for (cluster, way) in now {
            let start = || RemoteCluster::start(&context, &cluster, &way);
            sites.entry(cluster.clone()).or_insert_with(start);
        }
        tokio::select! {
            changed = ways.changed() => if changed.is_err() {
                break;
            },
            _ = stopped.wait_for(|stopped| *stopped) => break,
            Some(_) = leaving.join_next() => {}
        }
    }
    for site in sites.into_values() {
        leaving.spawn(site.end());
    }
    while leaving.join_next().await.is_some() {}
}

impl RemoteCluster {
    fn start(context: &Context, cluster: &Arc<str>, way: &Way) -> RemoteCluster {
        let (stop, stopped) = watch::channel(false);
        let mut tasks = JoinSet::new();
        let context = context.for_remote_cluster(&way.client, stopped.clone());
        if context.exports {
            let domain = context.domain.clone();
            tasks.spawn(context.clone().run(SERVICE_EXPORTS, move || ExportDriver::new(&domain)));
        }
        if context.external {
            tasks.spawn(certificates(context, cluster.clone(), stopped));
        }
        RemoteCluster { way: way.number, stop, tasks }
    }

    /// Stops the controllers gracefully, which releases their leases.
    async fn end(mut self) {
        self.stop.send_replace(true);
        while self.tasks.join_next().await.is_some() {}
    }
}

/// Writes root certificates in a cluster once its annotation names this control plane.
async fn certificates(context: Context, cluster: Arc<str>, mut stopped: watch::Receiver<bool>) {
    loop {
        let wanted = wants(&context.client, &context.namespace, &context.cluster);
        let wanted = tokio::select! {
            wanted = wanted => wanted,
            _ = stopped.wait_for(|stopped| *stopped) => return,
        };
        match wanted {
            Ok(true) => break,
            Ok(false) => {}
            Err(error) => tracing::debug!(cluster = %cluster, %error, "nobody knows yet who writes in this cluster"),
        }
        tokio::select! {
            () = tokio::time::sleep(AGAIN) => {}
            _ = stopped.wait_for(|stopped| *stopped) => return,
        }
    }
    tracing::info!(cluster = %cluster, "root certificates are written in this cluster, too");
    let names = context.root_maps.clone();
    context.run(NAMESPACES, move || RootDriver::new(&names)).await;
}

/// Whether a cluster names ours as one whose control plane writes there.
async fn wants(client: &Client, namespace: &str, ours: &str) -> kube::Result<bool> {
    let kind = ApiResource::from_gvk(&GroupVersionKind::gvk("", "v1", "Namespace"));
    let namespaces: Api<DynamicObject> = Api::all_with(client.clone(), &kind);
    let found = namespaces.get_opt(namespace).await?;
    let annotations = found.and_then(|found| found.metadata.annotations).unwrap_or_default();
    let named = annotations.get(WRITERS).map(String::as_str).unwrap_or_default();
    Ok(named.split(',').map(str::trim).any(|name| name == "*" || name == ours))
}
