//! The statistics that Envoy records: names, tags, histogram buckets, and the interval of flushes.

use std::collections::BTreeMap;
use std::time::Duration;

use serde_json::{Map, Value, json};

use crate::diagnostic::Diagnostics;
use crate::node::Node;

const EXTRA_TAGS: &str = "sidecar.istio.io/extraStatTags";
const PREFIXES: &str = "sidecar.istio.io/statsInclusionPrefixes";
const SUFFIXES: &str = "sidecar.istio.io/statsInclusionSuffixes";
const REGEXPS: &str = "sidecar.istio.io/statsInclusionRegexps";
const BUCKETS: &str = "sidecar.istio.io/statsHistogramBuckets";
const FLUSH_INTERVAL: &str = "sidecar.istio.io/statsFlushInterval";
const EVICTION_INTERVAL: &str = "sidecar.istio.io/statsEvictionInterval";

/// Statistics that readiness checks need.
const REQUIRED_PREFIXES: [&str; 5] = ["cluster_manager", "listener_manager", "server", "cluster.xds-grpc", "wasm"];
/// Statistics of authorization.
const REQUIRED_SUFFIXES: [&str; 4] = ["rbac.allowed", "rbac.denied", "shadow_allowed", "shadow_denied"];
/// The statistic from which the agent learns that a drained proxy has no connections.
const ACTIVE_CONNECTIONS: &str = "downstream_cx_active";
/// Statistics of routes with a `stat_prefix`.
const REQUIRED_REGEXP: &str = r"vhost\..*\.route\..*";

/// Tags with the regular expressions that find them. The first group is removed from the name, the second is the value.
const TAGS: [(&str, &str); 16] = [
    ("cluster_name", r"^cluster(\.(.+);)"),
    ("http_conn_manager_prefix", r"^http\.(([\w.:\[\]]*);\.)"),
    ("thread_name", r"^server(\.([^.]+))\.watchdog"),
    ("tcp_prefix", r"^tcp\.((.+?)\.)\w+$"),
    ("response_code", r"_rq(_(\d{3}))$"),
    ("response_code_class", r"_rq(_(\dxx))$"),
    ("http_conn_manager_listener_prefix", r"^listener\..*?\.http\.(([_.\d]*|[_\[\]a-fA-F\d]*)\.)"),
    ("listener_address", r"^listener\.(([_.\d]*|[_\[\]a-fA-F\d]*)\.)"),
    ("mongo_prefix", r"^mongo\.((.+?)\.)(?:collection|cmd|cx_|op_|delays_|decoding_)"),
    ("cache", r"(cache\.(.+?)\.)"),
    ("component", r"(component\.(.+?)\.)"),
    ("tag", r"(tag\.(.+?);\.)"),
    ("wasm_filter", r"(wasm_filter\.(.+?)\.)"),
    ("authz_enforce_result", r"rbac(\.(allowed|denied))"),
    ("authz_dry_run_action", r"(\.istio_dry_run_(allow|deny)_)"),
    ("authz_dry_run_result", r"(\.shadow_(allowed|denied))"),
];
/// The number of the tags above that come before the extra ones. Envoy applies them in order.
const BEFORE_EXTRA: usize = 9;

/// The settings of statistics.
#[derive(Clone, PartialEq, Debug)]
pub(crate) struct Stats {
    pub(crate) prefixes: Vec<String>,
    pub(crate) suffixes: Vec<String>,
    pub(crate) regexps: Vec<String>,
    pub(crate) extra_tags: Vec<String>,
    /// Buckets by prefix of the histograms' names.
    pub(crate) buckets: BTreeMap<String, Vec<f64>>,
    pub(crate) flush_interval: Option<Duration>,
    pub(crate) eviction_interval: Option<Duration>,
}

impl Stats {
    pub(super) fn new(node: &Node, diagnostics: &mut Diagnostics) -> Stats {
        let matcher = node.settings.proxy_stats_matcher.clone().unwrap_or_default();
        let mut suffixes = REQUIRED_SUFFIXES.to_vec();
        if node.options.exit_on_zero {
            suffixes.push(ACTIVE_CONNECTIONS);
        }
        let mut extra_tags: Vec<String> = Vec::new();
        let given = node.settings.extra_stat_tags.iter().map(|tag| &**tag);
        for tag in given.chain(list(node, EXTRA_TAGS)).filter(|tag| !tag.is_empty()) {
            if !extra_tags.iter().any(|known| known == tag) {
                extra_tags.push(tag.to_owned());
            }
        }
        let flush_interval = interval(node, FLUSH_INTERVAL, diagnostics);
        Stats {
            prefixes: inclusions(node, PREFIXES, &matcher.inclusion_prefixes, &REQUIRED_PREFIXES),
            suffixes: inclusions(node, SUFFIXES, &matcher.inclusion_suffixes, &suffixes),
            regexps: inclusions(node, REGEXPS, &matcher.inclusion_regexps, &[REQUIRED_REGEXP]),
            extra_tags,
            buckets: buckets(node, diagnostics),
            flush_interval,
            eviction_interval: eviction(node, flush_interval, diagnostics),
        }
    }

    pub(super) fn config(&self, discovers_metadata: bool) -> Value {
        let pattern = |kind: &str, text: &str| json!({ kind: text });
        let mut patterns = vec![pattern("prefix", "reporter=")];
        if discovers_metadata {
            patterns.push(pattern("prefix", "workload_discovery"));
        }
        patterns.extend(self.prefixes.iter().map(|text| pattern("prefix", text)));
        patterns.extend(self.suffixes.iter().map(|text| pattern("suffix", text)));
        patterns.extend(self.regexps.iter().map(|text| json!({"safe_regex": {"regex": text}})));
        patterns.extend(["component", "istio"].map(|text| pattern("prefix", text)));
        let mut config = json!({
            "use_all_default_tags": false,
            "stats_tags": self.tags(),
            "stats_matcher": {"inclusion_list": {"patterns": patterns}},
        });
        if !self.buckets.is_empty() {
            config["histogram_bucket_settings"] = self.bucket_settings();
        }
        config
    }

    pub(crate) fn bucket_settings(&self) -> Value {
        self.buckets.iter().map(|(prefix, buckets)| json!({"match": {"prefix": prefix}, "buckets": buckets})).collect()
    }

    fn tags(&self) -> Vec<Value> {
        let tag = |name: &str, regex: &str| json!({"tag_name": name, "regex": regex});
        let (first, last) = TAGS.split_at(BEFORE_EXTRA);
        let extra = self.extra_tags.iter().map(|name| tag(name, &format!(r"({}=\.=(.*?);\.;)", escaped(name))));
        let fixed = |tags: &'static [(&str, &str)]| tags.iter().map(|(name, regex)| tag(name, regex));
        fixed(first).chain(extra).chain(fixed(last)).collect()
    }
}

/// A text as a part of a regular expression.
fn escaped(text: &str) -> String {
    let one = |c: char| if r"\^$.|?*+()[]{}".contains(c) { format!("\\{c}") } else { c.to_string() };
    text.chars().map(one).collect()
}

/// The entries of an annotation, which are separated by commas.
fn list<'a>(node: &'a Node, annotation: &str) -> impl Iterator<Item = &'a str> {
    node.annotations.get(annotation).filter(|text| !text.is_empty()).into_iter().flat_map(|text| text.split(','))
}

/// Included names: those of the annotation or, without it, of the settings, and the required ones. `{pod_ip}` stands for each
/// address of the pod.
fn inclusions(node: &Node, annotation: &str, settings: &[std::sync::Arc<str>], required: &[&str]) -> Vec<String> {
    let mut given: Vec<&str> = list(node, annotation).collect();
    if given.is_empty() {
        given = settings.iter().map(|text| &**text).collect();
    }
    let mut included = Vec::new();
    for text in given.into_iter().chain(required.iter().copied()) {
        if text.contains("{pod_ip}") {
            included.extend(node.role.addresses.iter().map(|ip| text.replace("{pod_ip}", &ip.to_string())));
        } else {
            included.push(text.to_owned());
        }
    }
    included
}

fn buckets(node: &Node, diagnostics: &mut Diagnostics) -> BTreeMap<String, Vec<f64>> {
    let Some(text) = node.annotations.get(BUCKETS) else { return BTreeMap::new() };
    let parsed: Result<Map<String, Value>, _> = serde_json::from_str(text);
    let numbers = |value: &Value| value.as_array()?.iter().map(Value::as_f64).collect::<Option<Vec<f64>>>();
    let increasing =
        |list: &Vec<f64>| list.first().is_some_and(|first| *first > 0.0) && list.is_sorted_by(|a, b| a < b);
    let mut valid = BTreeMap::new();
    for (prefix, value) in parsed.unwrap_or_else(|error| {
        diagnostics.add(BUCKETS, format_args!("is not a JSON object; it is ignored: {error}"));
        Map::new()
    }) {
        match numbers(&value).filter(increasing) {
            Some(list) => drop(valid.insert(prefix, list)),
            None => diagnostics.add(
                BUCKETS,
                format_args!("the buckets of {prefix:?} are not increasing numbers above 0; they are ignored"),
            ),
        }
    }
    valid
}

fn interval(node: &Node, annotation: &str, diagnostics: &mut Diagnostics) -> Option<Duration> {
    let text = node.annotations.get(annotation)?;
    // Envoy's limits of the flush interval.
    let allowed = Duration::from_millis(1)..Duration::from_secs(300);
    let parsed =
        protos::parse_duration(text).filter(|interval| annotation != FLUSH_INTERVAL || allowed.contains(interval));
    if parsed.is_none() {
        diagnostics
            .add(annotation, format_args!("{text:?} is not a duration that Envoy accepts, such as 10s; it is ignored"));
    }
    parsed
}

/// The eviction interval, which must be a multiple of the flush interval.
fn eviction(node: &Node, flush: Option<Duration>, diagnostics: &mut Diagnostics) -> Option<Duration> {
    let interval = interval(node, EVICTION_INTERVAL, diagnostics)?;
    let flush = flush.unwrap_or(Duration::from_secs(5)).as_nanos();
    if interval.is_zero() || interval.as_nanos() % flush != 0 {
        diagnostics.add(EVICTION_INTERVAL, "is not a multiple of the flush interval; it is ignored");
        return None;
    }
    Some(interval)
}
