//! The status port beside a real Envoy.

use std::net::SocketAddr;

use serde_json::{Value, json};
use test_harness::run::Envoy;

use crate::support::{Port, settings};

fn source(path: &std::path::Path) -> Value {
    json!({"resource_api_version": "V3", "path_config_source": {"path": path}})
}

#[tokio::test]
async fn a_real_envoy_becomes_ready_and_is_scraped() {
    let Some(binary) = test_harness::envoy_if_present() else {
        return println!("skipped: run `cargo xtask setup` to install Envoy");
    };
    let folder = tempfile::tempdir().unwrap();
    let admin = json!({"address": {"socket_address": {"address": "127.0.0.1", "port_value": 0}}});
    let mut bootstrap = json!({"node": {"id": "a", "cluster": "a"}, "admin": admin});
    for configured in [false, true] {
        if configured {
            for kind in ["cds", "lds"] {
                let file = folder.path().join(kind);
                std::fs::write(&file, json!({"version_info": "1", "resources": []}).to_string()).unwrap();
                bootstrap["dynamic_resources"][format!("{kind}_config")] = source(&file);
            }
        }
        let envoy = Envoy::start_with(&binary, &bootstrap).await.unwrap();
        let mut settings = settings();
        let admin: SocketAddr = std::fs::read_to_string(envoy.dir().join("admin")).unwrap().trim().parse().unwrap();
        (settings.admin, settings.envoy_metrics) = (Some(admin), Some(admin.port()));
        let port = Port::open(settings).await;
        if configured {
            let ready = async { while port.get("/healthz/ready").await.status != 200 {} };
            tokio::time::timeout(std::time::Duration::from_secs(30), ready).await.unwrap();
        } else {
            let reason = port.get("/healthz/ready").await.text();
            assert!(reason.starts_with("config not received from XDS server"), "{reason}");
        }
        let metrics = port.get("/stats/prometheus").await.text();
        assert!(
            metrics.contains("istio_agent_scrapes_total 1\n") && metrics.contains("\nenvoy_server_live{} "),
            "{metrics}"
        );
    }
}
