//! The etcd home keeps what every home promises. Each test has an etcd of its own.

mod conformance;

use std::sync::Arc;

use conformance::Home;
use store::etcd::{Etcd, Options};
use test_harness::etcd::{Cluster, Settings};

conformance_tests!(fresh);

async fn fresh() -> Home {
    let binary = test_harness::etcd::program(&mut |_| {}).expect("an etcd");
    let cluster = Cluster::start(&binary, 1, Settings::default())
        .await
        .expect("etcd starts");
    let store = Etcd::open(Options::new(cluster.endpoints()))
        .await
        .expect("etcd answers");
    Home {
        store: Arc::new(store),
        keep: Box::new(cluster),
        history: true,
    }
}
