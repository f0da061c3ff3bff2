//! The API's counters on `/metrics`.

use std::collections::BTreeMap;

use api::Snapshot;
use server::Metric;
use store::StoreSize;

/// Verbs whose requests carry an object that is validated.
const WRITES: [&str; 3] = ["create", "update", "patch"];

/// The metrics of the API as they are now.
pub(super) fn of(now: &Snapshot) -> Vec<Metric> {
    let series = |pick: fn(&api::Requests) -> f64| {
        let each = now.requests.iter();
        each.map(move |(series, requests)| {
            (vec![series.verb.to_owned(), series.resource.to_owned(), series.code.to_string()], pick(requests))
        })
    };
    let validated = |accepts: fn(u16) -> bool| {
        let written =
            now.requests.iter().filter(move |(series, _)| WRITES.contains(&series.verb) && accepts(series.code));
        written.map(|(series, requests)| (vec![series.resource.to_owned()], requests.count as f64))
    };
    vec![
        Metric::counter_by(
            "rutter_api_requests_total",
            "Requests that the API completed",
            &["verb", "resource", "code"],
            series(|requests| requests.count as f64),
        ),
        Metric::counter_by(
            "rutter_api_request_seconds_total",
            "Seconds spent on requests of the API; for watches until the response starts",
            &["verb", "resource", "code"],
            series(|requests| requests.seconds),
        ),
        Metric::gauge("rutter_api_watches", "Open watches of the API", now.watches as f64),
        Metric::counter("rutter_api_watch_events_total", "Events sent to watches of the API", now.events),
        Metric::counter(
            "rutter_api_watches_dropped_total",
            "Watches closed because they fell behind",
            now.watches_dropped,
        ),
        Metric::counter("rutter_api_requests_limited_total", "Requests rejected because of a limit", now.limited),
        Metric::counter_by(
            "galley_validation_passed",
            "Objects that passed validation when they were written",
            &["resource"],
            joined(validated(|code| code < 300)),
        ),
        Metric::counter_by(
            "galley_validation_failed",
            "Objects that failed validation when they were written",
            &["resource"],
            joined(validated(|code| code == 422)),
        ),
    ]
}

/// The size of the store.
pub(super) fn of_store(size: &StoreSize) -> Vec<Metric> {
    let objects = size.objects.iter().map(|(resource, count)| (resource.to_string(), *count as f64));
    let objects = Metric::gauge_by("rutter_store_objects", "Objects in the store", &["resource"], objects);
    let help = "Size of the embedded store's database, in bytes";
    let bytes = size.file_bytes.map(|bytes| Metric::gauge("rutter_store_bytes", help, bytes as f64));
    std::iter::once(objects).chain(bytes).collect()
}

/// The samples with the same labels added up.
fn joined(samples: impl Iterator<Item = (Vec<String>, f64)>) -> BTreeMap<Vec<String>, f64> {
    let mut sums = BTreeMap::new();
    samples.for_each(|(labels, value)| *sums.entry(labels).or_default() += value);
    sums
}
