//! The etcd backend passes the conformance suite. Each test has its own etcd.

mod conformance;

use std::sync::Arc;

use conformance::Backend;
use store::etcd::{Etcd, Options};
use test_harness::etcd::{Cluster, Settings};

conformance_tests!(fresh);

async fn fresh() -> Backend {
    let binary = test_harness::etcd::program(&mut |_| {}).expect("an etcd");
    let cluster = Cluster::start(&binary, 1, Settings::default()).await.expect("etcd starts");
    let store = Etcd::open(Options::new(cluster.endpoints())).await.expect("etcd answers");
    Backend { store: Arc::new(store), keep: Box::new(cluster), history: true }
}
