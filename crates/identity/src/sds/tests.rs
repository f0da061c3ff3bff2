use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::SystemTime;

use proptest::prelude::*;
use protos::envoy::service::discovery::v3::{DeltaDiscoveryRequest, DiscoveryRequest};
use tonic::Code;

use super::subscription::{Changes, SECRET_TYPE, Subscription, Update};
use super::wire::Request as _;
use crate::name::FileName;
use crate::secret::{Content, Entry, Pair, Secret, Table};
use crate::wanted::Wanted;

fn pair(chain: &str) -> Entry<Secret> {
    let pair = Pair { chain: chain.into(), key: "key".into(), expires: SystemTime::UNIX_EPOCH };
    Entry::Ready(Content::Pair(pair).into())
}

fn roots(text: &str) -> Entry<Secret> {
    Entry::Ready(Content::Roots(text.into(), None).into())
}

fn table() -> Table {
    Table { workload: pair("one"), roots: roots("root"), files: BTreeMap::new() }
}

fn sotw(names: &[&str], nonce: &str) -> Update {
    let resource_names = names.iter().map(|name| (*name).to_owned()).collect();
    DiscoveryRequest {
        resource_names,
        response_nonce: nonce.to_owned(),
        type_url: SECRET_TYPE.to_owned(),
        ..Default::default()
    }
    .update()
}

fn delta(add: &[&str], remove: &[&str], versions: &[(&str, &str)]) -> Update {
    let texts = |texts: &[&str]| texts.iter().map(|text| (*text).to_owned()).collect();
    DeltaDiscoveryRequest {
        resource_names_subscribe: texts(add),
        resource_names_unsubscribe: texts(remove),
        initial_resource_versions: versions.iter().map(|(name, version)| ((*name).into(), (*version).into())).collect(),
        ..Default::default()
    }
    .update()
}

fn names(changes: Option<Changes>) -> Vec<String> {
    let changes = changes.unwrap_or_default();
    let failed = changes.failed.into_iter().map(|(name, _)| format!("!{name}"));
    changes.ready.into_iter().map(|(name, _)| name).chain(failed).collect()
}

/// What a request leads to.
fn answer(stream: &mut Subscription, update: Update, table: &Table) -> Vec<String> {
    stream.update(update).unwrap();
    names(stream.next(table).unwrap())
}

#[test]
fn a_secret_is_sent_once_and_again_when_it_changes() {
    let (mut stream, mut table) = (Subscription::new(Arc::default(), true), table());
    assert_eq!(answer(&mut stream, sotw(&["default"], ""), &table), ["default"]);
    assert!(answer(&mut stream, sotw(&["default"], "1"), &table).is_empty(), "an ACK");
    assert_eq!(answer(&mut stream, sotw(&["default", "ROOTCA"], "1"), &table), ["ROOTCA"]);
    assert!(answer(&mut stream, sotw(&["default"], "1"), &table).is_empty(), "the nonce is old");
    table.workload = pair("two");
    assert_eq!(names(stream.next(&table).unwrap()), ["default"]);
    table.roots = roots("other");
    assert_eq!(names(stream.next(&table).unwrap()), ["ROOTCA"]);
    assert_eq!(answer(&mut stream, sotw(&["ROOTCA"], ""), &table), ["ROOTCA"], "a first request again");
}

#[test]
fn a_rejected_secret_is_not_sent_again() {
    let (mut stream, table) = (Subscription::new(Arc::default(), true), table());
    assert_eq!(answer(&mut stream, sotw(&["default"], ""), &table), ["default"]);
    let rejected = Update { rejected: Some("no".to_owned()), ..sotw(&["default"], "1") };
    assert!(answer(&mut stream, rejected, &table).is_empty());
}

#[test]
fn delta_sends_what_is_added() {
    let (mut stream, mut table) = (Subscription::new(Arc::default(), true), table());
    let Entry::Ready(secret) = &table.workload else { panic!() };
    let version = secret.version.to_string();
    let first = delta(&["default", "ROOTCA"], &[], &[("default", &version), ("ROOTCA", "other")]);
    assert_eq!(answer(&mut stream, first, &table), ["ROOTCA"], "the proxy has the certificate");
    assert!(answer(&mut stream, delta(&[], &["ROOTCA"], &[]), &table).is_empty());
    (table.workload, table.roots) = (pair("two"), roots("other"));
    assert_eq!(names(stream.next(&table).unwrap()), ["default"]);
    assert_eq!(answer(&mut stream, delta(&["default"], &[], &[]), &table), ["default"], "it was asked for again");
}

#[test]
fn an_error_concerns_only_its_name() {
    let (mut stream, mut table) = (Subscription::new(Arc::default(), true), table());
    assert_eq!(answer(&mut stream, sotw(&["default", "other"], ""), &table), ["default", "!other"]);
    assert!(answer(&mut stream, sotw(&["default", "other"], "1"), &table).is_empty());

    let unknown = |table: &Table, name: &str, waits: bool| {
        let mut stream = Subscription::new(Arc::default(), waits);
        stream.update(sotw(&[name], "")).unwrap();
        stream.next(table).map(names).map_err(|status| status.code())
    };
    assert_eq!(unknown(&table, "other", true), Err(Code::NotFound));
    table.workload = Entry::Pending;
    assert_eq!(unknown(&table, "default", false), Ok(vec![]));
    table.workload = Entry::Failed("no connection".into());
    assert_eq!(unknown(&table, "default", true), Ok(vec![]), "a stream waits");
    assert_eq!(unknown(&table, "default", false), Err(Code::Unavailable));
}

#[test]
fn files_are_watched_while_a_stream_uses_them() {
    let wanted: Arc<Wanted> = Arc::default();
    let (mut stream, mut table) = (Subscription::new(wanted.clone(), true), table());
    let name = FileName::Roots(PathBuf::from("/r.pem"));
    assert!(answer(&mut stream, sotw(&["file-root:/r.pem", "default"], ""), &table).contains(&"default".to_owned()));
    assert_eq!(wanted.names(), std::slice::from_ref(&name));
    assert!(!stream.complete(&table));
    table.files.insert(name, roots("root"));
    assert_eq!(names(stream.next(&table).unwrap()), ["file-root:/r.pem"]);
    assert!(stream.complete(&table));
    assert!(answer(&mut stream, sotw(&["default"], "2"), &table).is_empty());
    assert!(wanted.names().is_empty());
}

#[test]
fn limits_end_only_the_stream() {
    let mut stream = Subscription::new(Arc::default(), true);
    let many: Vec<String> = (0..1001).map(|number| number.to_string()).collect();
    let many: Vec<&str> = many.iter().map(String::as_str).collect();
    assert_eq!(stream.update(sotw(&many, "")).unwrap_err().code(), Code::ResourceExhausted);
    let clusters =
        Update { type_url: "type.googleapis.com/envoy.config.cluster.v3.Cluster".to_owned(), ..Update::default() };
    assert_eq!(stream.update(clusters).unwrap_err().code(), Code::InvalidArgument);
}

const NAMES: [&str; 4] = ["default", "ROOTCA", "file-root:/r", "other"];

fn updates() -> impl Strategy<Value = Update> {
    let some = || proptest::sample::subsequence(&NAMES, 0..=4);
    (some(), some(), 0..4u8, any::<bool>()).prop_map(|(one, two, nonce, is_delta)| {
        if is_delta {
            delta(&one, &two, &[("default", "x")])
        } else {
            sotw(&one, &[String::new(), nonce.to_string()][usize::from(nonce > 0)])
        }
    })
}

proptest! {
    #[test]
    fn everything_known_is_sent_and_nothing_twice(steps in proptest::collection::vec((updates(), 0..3u8), 1..20)) {
        let mut stream = Subscription::new(Arc::default(), true);
        let mut table = table();
        for (update, change) in steps {
            match change {
                0 => table.workload = pair("two"),
                1 => { table.files.insert(FileName::Roots("/r".into()), roots("file")); }
                _ => {}
            }
            stream.update(update).unwrap();
            match stream.next(&table) {
                Ok(Some(changes)) => prop_assert!(!changes.ready.is_empty() || !changes.failed.is_empty()),
                Ok(None) => {}
                Err(_) => break,
            }
            prop_assert!(stream.next(&table).unwrap().is_none());
        }
    }
}
