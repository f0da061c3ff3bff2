//! The values of all metrics at one point in time.

use std::collections::BTreeMap;
use std::sync::Arc;

use config::Kind;
use flow::RelationStats;
use model::xds::ResourceType;
use prometheus::core::Collector as _;
use prometheus::process_collector::ProcessCollector;
use xds::{Stats, TypeStats};

use super::{Families, Labels, Metric};
use crate::core::Core;
use crate::counters::Counters;
use crate::status_tracker::TrackerStats;

/// All metrics as they are now.
#[derive(Debug)]
pub(crate) struct Snapshot {
    hub: Stats,
    /// Connected streams by the version that their proxies state.
    streams: BTreeMap<Arc<str>, usize>,
    /// Type, proxy and message of each current NACK.
    rejected_by: Vec<(ResourceType, Arc<str>, Arc<str>)>,
    /// The number of quarantined resources, by type.
    quarantined: BTreeMap<&'static str, usize>,
    sizes: [(&'static str, usize); 6],
    counters: Counters,
    relations: Vec<RelationStats>,
    services: usize,
    feedback: TrackerStats,
    uptime: f64,
}

impl Snapshot {
    pub(crate) fn of(core: &Core) -> Snapshot {
        let (mut streams, mut rejected_by) = (BTreeMap::new(), Vec::new());
        for (proxy, nacks) in core.hub.nacks() {
            *streams.entry(proxy.version.clone()).or_default() += 1;
            rejected_by.extend(nacks.map(|(kind, nack)| (kind, proxy.id.clone(), nack.message)));
        }
        rejected_by.sort_unstable();
        Snapshot {
            hub: core.hub.stats(),
            streams,
            rejected_by,
            quarantined: core.hub.quarantined().fold(BTreeMap::new(), |mut counts, one| {
                *counts.entry(one.kind.short_name).or_default() += 1;
                counts
            }),
            sizes: core.hub.sizes(),
            counters: core.counters.clone(),
            relations: core.served.world.engine().stats().relations,
            services: core.served.world.services(),
            feedback: core.tracker.numbers(),
            uptime: core.started.elapsed().as_secs_f64(),
        }
    }

    /// The text that Prometheus scrapes, with the version of the program and the metrics of its other parts.
    pub(crate) fn text(self, version: &str, more: &[Metric]) -> String {
        let mut out = Families::default();
        self.program(version, &mut out);
        self.discovery(&mut out);
        self.quarantine(&mut out);
        self.commits(&mut out);
        self.graph(&mut out);
        self.statuses(&mut out);
        more.iter().for_each(|metric| out.metric(metric));
        out.text()
    }

    fn program(&self, version: &str, out: &mut Families) {
        let build: Labels<'_> = vec![("component", "pilot"), ("tag", version)];
        out.gauge("istio_build", "The version of the control plane", [(build, 1.0)]);
        out.gauge("pilot_info", "The version of the control plane", [(vec![("version", version)], 1.0)]);
        out.gauge("istiod_uptime_seconds", "Seconds since the start", [(vec![], self.uptime)]);
        // CPU time, memory, threads and file descriptors, under Prometheus' names for all programs.
        out.extend(ProcessCollector::for_self().collect());
    }

    fn discovery(&self, out: &mut Families) {
        let (hub, counters) = (&self.hub, &self.counters);
        let streams = self.streams.iter().map(|(version, count)| (vec![("version", &**version)], *count as f64));
        out.gauge("pilot_xds", "Connected xDS streams, by the version of the proxy", streams);
        out.gauge("pilot_services", "Services known to the control plane", [(vec![], self.services as f64)]);
        by_type(out, "pilot_xds_pushes", "Responses sent", hub, |stats| stats.responses);
        by_type(out, "rutter_xds_response_bytes_total", "Bytes of responses sent", hub, |stats| stats.bytes);
        by_type(out, "rutter_xds_resources_total", "Resources in responses sent", hub, |stats| stats.resources);
        let help = "Responses that were composed for one stream and not shared";
        by_type(out, "rutter_xds_responses_composed_total", help, hub, |stats| stats.composed);
        let help = "Responses acknowledged by proxies (ACK)";
        by_type(out, "rutter_xds_acks_total", help, hub, |stats| stats.accepted);
        let help = "Responses rejected by proxies (NACK)";
        by_type(out, "pilot_total_xds_rejects", help, hub, |stats| stats.rejected);
        let help = "Requests with the nonce of an earlier response";
        by_type(out, "pilot_xds_expired_nonce", help, hub, |stats| stats.stale);
        let help = "Responses sent after the wait for resources that they depend on timed out";
        by_type(out, "rutter_xds_overdue_total", help, hub, |stats| stats.overdue);
        for (kind, _) in hub.iter() {
            let rejected = self.rejected_by.iter().filter(|rejected| rejected.0 == *kind);
            let rejected = rejected.map(|(_, node, error)| (vec![("node", &**node), ("err", &**error)], 1.0));
            let help = "Proxies that rejected the last response of the type";
            out.gauge(&format!("pilot_xds_{}_reject", short(*kind)), help, rejected);
        }
        counters.pushes.write(out);
        let help = "Seconds from a change until it is sent to a proxy";
        out.histogram("pilot_proxy_convergence_time", help, [(vec![], &counters.convergence)]);
        let unread = [(vec![], counters.unread as f64)];
        out.counter("pilot_xds_write_timeout", "Streams closed because the client did not read responses", unread);
        let sizes = self.sizes.iter().map(|(name, size)| (vec![("what", *name)], *size as f64));
        out.gauge("rutter_hub", "Sizes of the xDS hub's tables", sizes);
    }

    fn quarantine(&self, out: &mut Families) {
        let counts = self.quarantined.iter().map(|(kind, count)| (vec![("type", *kind)], *count as f64));
        let help = "Resources and parts of resources that proxies rejected and that they are not sent";
        out.gauge("rutter_xds_quarantined_resources", help, counts);
        let added = [(vec![], self.counters.quarantined as f64)];
        let help = "Resources and parts of resources that were put in quarantine";
        out.counter("rutter_xds_quarantines_total", help, added);
    }

    fn commits(&self, out: &mut Families) {
        let counters = &self.counters;
        counters.events.write(out);
        let help = "Seconds for which changes waited for others to be committed together";
        out.histogram("pilot_debounce_time", help, [(vec![], &counters.debounce)]);
        out.counter("rutter_commits_total", "Commits of changes", [(vec![], counters.commits as f64)]);
        let seconds = [(vec![], counters.commit_seconds)];
        out.counter("rutter_commit_seconds_total", "Seconds spent on commits", seconds);
        let panics = [(vec![], counters.rule_panics as f64)];
        out.counter("rutter_rule_panics_total", "Panics in rules; the rows derived before stay in effect", panics);
        let panics = [(vec![], counters.panics as f64)];
        out.counter(
            "pilot_total_xds_internal_errors",
            "Panics outside of rules, as in `rutter_panics_total`",
            panics.clone(),
        );
        out.counter("rutter_panics_total", "Panics outside of rules, limited to one stream or page", panics);
        let help = "Seconds for which the thread that owns the world held up all other work, by kind of step";
        let steps = counters.stalls.iter().map(|(step, durations)| (vec![("step", step)], durations));
        out.histogram("rutter_world_step_seconds", help, steps);
        let help = "Seconds of processor time that the thread that owns the world needed for a step, by kind";
        let steps = counters.stalls.processor().map(|(step, used)| (vec![("step", step)], used));
        out.histogram("rutter_world_step_processor_seconds", help, steps);
    }

    fn graph(&self, out: &mut Families) {
        let of = |pick: fn(&RelationStats) -> f64| {
            self.relations.iter().map(move |relation| (vec![("relation", relation.name)], pick(relation)))
        };
        out.gauge("rutter_cells", "Cells in the derivation graph", of(|relation| relation.cells as f64));
        out.gauge("rutter_edges", "Recorded reads in the derivation graph", of(|relation| relation.edges as f64));
        out.counter("rutter_rule_runs_total", "Executions of rules", of(|relation| relation.runs as f64));
    }

    fn statuses(&self, out: &mut Families) {
        let feedback = &self.feedback;
        let sizes = feedback.sizes.iter().map(|(state, size)| (vec![("state", *state)], *size));
        out.gauge(
            "rutter_objects",
            "Configuration objects with a status: all; not yet acknowledged by some proxy; waiting to be counted; rejected by \
             some proxy",
            sizes,
        );
        let problems = &feedback.problems;
        let rows = problems
            .iter()
            .map(|((kind, condition), count)| (vec![("kind", *kind), ("condition", *condition)], *count));
        let help = "Configuration objects with a condition that reports a problem: Accepted, ResolvedRefs or PatchesApplied is False, \
                    or Conflicted is True";
        out.gauge("rutter_objects_with_problems", help, rows);
        let conflicted = |kind: Kind| problems.get(&(kind.name(), "Conflicted")).copied().unwrap_or_default();
        let help = "VirtualServices with a host that another VirtualService also has";
        out.gauge("pilot_vservice_dup_domain", help, [(vec![], conflicted(Kind::VirtualService))]);
        let help = "ServiceEntries with a port whose address and port another service already uses";
        let entries = conflicted(Kind::ServiceEntry);
        out.gauge("pilot_conflict_outbound_listener_tcp_over_current_tcp", help, [(vec![], entries)]);
        for (name, help, value) in [
            ("rutter_status_planned_total", "Statuses handed to the writer", feedback.planned),
            ("rutter_status_counted_total", "Counts of proxies for an object", feedback.counted),
            ("rutter_status_seconds_total", "Seconds spent counting proxies for statuses", feedback.seconds),
        ] {
            out.counter(name, help, [(vec![], value)]);
        }
    }
}

/// A counter with one sample for each resource type.
fn by_type(out: &mut Families, name: &str, help: &str, stats: &Stats, value: fn(&TypeStats) -> u64) {
    let samples: Vec<(String, f64)> = stats.iter().map(|(kind, stats)| (short(*kind), value(stats) as f64)).collect();
    out.counter(name, help, samples.iter().map(|(kind, value)| (vec![("type", kind.as_str())], *value)));
}

/// The label that Istio uses: `cds`, `eds`, and so on.
pub(crate) fn short(kind: ResourceType) -> String {
    kind.short_name.to_lowercase()
}
