//! The arguments of Envoy.

use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::exchange::Configuration;
use crate::settings::{Proxy, Settings};

/// The time for which the old process of a hot restart lives longer than it drains.
const SHUTDOWN_MARGIN: Duration = Duration::from_secs(1);

/// The folder of shared memory.
const SHARED_MEMORY: &str = "/dev/shm";

/// The role of a process in hot restarts.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Restart {
    /// It takes part in none.
    Disabled,
    /// It takes over from the process of the epoch before, if there is one.
    Epoch(u32),
}

pub(crate) fn arguments(settings: &Settings, configuration: &Configuration, restart: Restart) -> Vec<String> {
    let proxy = &settings.proxy;
    let mut all = vec!["-c".to_owned(), configuration.path.display().to_string()];
    let mut pair = |name: &str, value: String| all.extend([name.to_owned(), value]);
    let flush = proxy.file_flush_interval.unwrap_or(Duration::from_secs(1));
    pair("--drain-time-s", proxy.drain.as_secs().to_string());
    pair("--drain-strategy", "immediate".to_owned());
    pair("--local-address-ip-version", if proxy.is_ipv6 { "v6" } else { "v4" }.to_owned());
    pair("--file-flush-interval-msec", flush.as_millis().to_string());
    if proxy.file_flush_min_size_kb > 0 {
        pair("--file-flush-min-size-kb", proxy.file_flush_min_size_kb.to_string());
    }
    let (level, components) = log_levels(&proxy.log_level, &proxy.component_log_level);
    if !level.is_empty() {
        pair("-l", level);
    }
    if !components.is_empty() {
        pair("--component-log-level", components);
    }
    if let Some(overlay) = &configuration.overlay {
        pair("--config-yaml", overlay.to_string());
    }
    if proxy.concurrency > 0 {
        pair("--concurrency", proxy.concurrency.to_string());
    }
    if let Restart::Epoch(epoch) = restart {
        pair("--parent-shutdown-time-s", (proxy.drain + SHUTDOWN_MARGIN).as_secs().to_string());
        pair("--base-id", base_id(proxy).to_string());
        pair("--restart-epoch", epoch.to_string());
    }
    let switches = [
        (true, "--allow-unknown-static-fields"),
        (restart == Restart::Disabled, "--disable-hot-restart"),
        (settings.skip_deprecated_logs, "--skip-deprecated-logs"),
        (settings.core_dump, "--enable-core-dump"),
    ];
    all.extend(switches.iter().filter(|(on, _)| *on).map(|(_, name)| (*name).to_owned()));
    all
}

/// Splits `info,misc:error` into a level and those of components, which otherwise are in an argument of their own.
fn log_levels(given: &str, components: &str) -> (String, String) {
    let (of_components, levels): (Vec<&str>, Vec<&str>) = given.split(',').partition(|level| level.contains(':'));
    let valid: Vec<&str> = of_components.into_iter().filter(|level| level.split(':').count() == 2).collect();
    let components = if valid.is_empty() { components.to_owned() } else { valid.join(",") };
    (levels.last().copied().unwrap_or_default().to_owned(), components)
}

/// The ID of the memory and the sockets that processes share. No other Envoy in the pod has it, because it would need the same
/// admin port.
fn base_id(proxy: &Proxy) -> u32 {
    proxy.admin_port.into()
}

/// The memory that processes share. Envoy leaves it behind.
pub(crate) fn shared_memory(proxy: &Proxy) -> PathBuf {
    Path::new(SHARED_MEMORY).join(format!("envoy_shared_memory_{}0", base_id(proxy)))
}

/// Whether processes may share memory, which hot restarts need.
pub(crate) fn has_shared_memory(proxy: &Proxy) -> bool {
    // Several supervisors of one process may probe at once.
    let probe = Path::new(SHARED_MEMORY).join(format!("rutter-agent-{}-{}", std::process::id(), base_id(proxy)));
    let created = std::fs::File::create_new(&probe).is_ok();
    if created {
        // A file that cannot be removed is empty, and harmless.
        let _ = std::fs::remove_file(&probe);
    }
    created
}
