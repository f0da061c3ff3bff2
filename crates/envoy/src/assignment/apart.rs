//! Encodes LEDS: the assignment names a collection of endpoints for each locality instead of holding the endpoints.
//!
//! A collection's name is `xdstp:///envoy.config.endpoint.v3.LbEndpoint/CLUSTER/GENERATION.LEVEL.LOCALITY`; the name of an
//! endpoint in it has one more part. `LEVEL` is a priority that does not depend on other localities, so a locality keeps
//! its collection when a locality of higher priority becomes empty. Envoy parses names and formats them again with its own
//! escapes. The names are chosen so that this does not change them, because subscriptions are compared with them.

use std::fmt::Write;
use std::sync::Arc;

use bytes::Bytes;
use model::audience::{EndpointSpec, EndpointTarget, Leds, ResourceKey};
use model::service::{Endpoint, EndpointAddress};
use model::xds::Version;
use protos::Message;
use traffic::Catalogue;

use super::{Group, Member, Target, count, write_locality, write_member};
use crate::parts::aggregated_discovery;
use crate::wire::Writer;

/// What the names of all collections begin with.
const PREFIX: &str = "xdstp:///envoy.config.endpoint.v3.LbEndpoint/";

/// Bytes to set aside for each locality, from experience.
const BYTES_PER_LOCALITY: usize = 256;

/// Whether the endpoints of a cluster are sent singly to those who take them so.
pub(crate) fn applies(apart: Option<Leds>, cluster: &str, groups: &[Group<'_>]) -> Option<Leds> {
    // A slash would end the cluster's name; no name has one that users can write.
    apart.filter(|apart| count(groups) >= apart.from.get() as usize && !cluster.contains('/'))
}

/// The encoded `ClusterLoadAssignment` without endpoints. Weights of localities, which change with every endpoint that
/// comes or goes, are only there if they count (`weights`).
pub(crate) fn assignment(cluster: &str, groups: &[Group<'_>], apart: Leds, weights: bool) -> Bytes {
    let source = aggregated_discovery().encode_to_vec();
    let mut writer = Writer::with_capacity(cluster.len() + 16 + groups.len() * BYTES_PER_LOCALITY);
    writer.text(1, cluster);
    for group in groups {
        writer.message(2, |w| {
            w.message(1, |w| write_locality(w, group.locality));
            if weights || apart.weights {
                w.wrapped(3, u64::from(group.weight));
            }
            w.uint(5, u64::from(group.priority));
            w.message(8, |w| {
                w.bytes(1, &source);
                w.display(2, format_args!("{}/*", collection(cluster, group, apart.generation)));
            });
        });
    }
    writer.finish()
}

/// The collections of a cluster, by name, and what is in them. Of several endpoints at one address Envoy takes one.
pub(crate) fn collections(cluster: &str, groups: &[Group<'_>], generation: u32) -> Vec<(Arc<str>, Catalogue)> {
    let one = |group: &Group<'_>| {
        let collection = collection(cluster, group, generation);
        let entry = |member: &Member<'_>| {
            let name: Arc<str> = member_name(&collection, member).into();
            let key = ResourceKey::LbEndpoint(name.clone(), Arc::new(spec(member)));
            (name, key)
        };
        let catalogue = Catalogue::new(group.members.iter().map(entry).collect());
        (collection.into(), catalogue)
    };
    groups.iter().map(one).collect()
}

/// The encoded `LbEndpoint`.
pub(crate) fn endpoint(spec: &EndpointSpec) -> Bytes {
    let (place, mutual_tls) = match &spec.target {
        EndpointTarget::Endpoint(endpoint, port) => (Target::Endpoint(endpoint, *port), endpoint.mutual_tls),
        EndpointTarget::Gateway(entry) => (Target::Gateway(entry), true),
    };
    let member = Member {
        place,
        mutual_tls,
        weight: spec.weight,
    };
    let mut writer = Writer::with_capacity(super::BYTES_PER_ENDPOINT);
    write_member(&mut writer, &member);
    writer.finish()
}

/// The cluster whose collection this is, and the generation of its name. None: it is no collection.
pub(crate) fn cluster_of(collection: &str) -> Option<(String, u32)> {
    let (cluster, locality) = collection.strip_prefix(PREFIX)?.split_once('/')?;
    let (generation, _) = locality.split_once('.')?;
    Some((unescaped(cluster)?, generation.parse().ok()?))
}

fn collection(cluster: &str, group: &Group<'_>, generation: u32) -> String {
    let mut name = String::with_capacity(PREFIX.len() + cluster.len() + 32);
    name.push_str(PREFIX);
    escape(cluster, &mut name);
    let locality = group.locality;
    let text = [&*locality.region, &*locality.zone, &*locality.sub_zone].join("\0");
    // Writing to memory does not fail.
    let _ = write!(name, "/{generation}.{}.{}", group.level, Version::of(text.as_bytes()));
    name
}

fn member_name(collection: &str, member: &Member<'_>) -> String {
    let mut name = String::with_capacity(collection.len() + 24);
    name.push_str(collection);
    name.push('/');
    let (address, port) = match member.place {
        Target::Endpoint(endpoint, port) => (&endpoint.address, port),
        Target::Gateway(entry) => (&EndpointAddress::Ip(entry.address), entry.port),
    };
    // Colons would be escaped.
    let _ = match address {
        EndpointAddress::Ip(ip) if ip.is_ipv4() => write!(name, "{ip}-{port}"),
        EndpointAddress::Ip(ip) => write!(name, "{}-{port}", ip.to_string().replace(':', "_")),
        EndpointAddress::Hostname(text) | EndpointAddress::Unix(text) => {
            write!(name, "{}-{port}", Version::of(text.as_bytes()))
        }
    };
    name
}

fn spec(member: &Member<'_>) -> EndpointSpec {
    EndpointSpec {
        target: match member.place {
            Target::Endpoint(endpoint, port) => {
                let mutual_tls = member.mutual_tls;
                let endpoint = Endpoint {
                    mutual_tls,
                    ..endpoint.clone()
                };
                EndpointTarget::Endpoint(endpoint, port)
            }
            Target::Gateway(entry) => EndpointTarget::Gateway(entry.clone()),
        },
        weight: member.weight,
    }
}

/// Escapes what Envoy escapes in such names, and nothing else.
fn escape(text: &str, out: &mut String) {
    for byte in text.bytes() {
        match byte {
            b'%' | b':' | b'?' | b'#' | b'[' | b']' | ..=b' ' | b'~'.. => {
                let _ = write!(out, "%{byte:02X}");
            }
            plain => out.push(char::from(plain)),
        }
    }
}

fn unescaped(text: &str) -> Option<String> {
    let mut out = Vec::with_capacity(text.len());
    let mut bytes = text.bytes();
    while let Some(byte) = bytes.next() {
        let plain = match byte {
            b'%' => {
                let digit = |byte: Option<u8>| char::from(byte?).to_digit(16);
                let value = digit(bytes.next())? << 4 | digit(bytes.next())?;
                u8::try_from(value).ok()?
            }
            plain => plain,
        };
        out.push(plain);
    }
    String::from_utf8(out).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn escaped(text: &str) -> String {
        let mut out = String::new();
        escape(text, &mut out);
        out
    }

    #[test]
    fn names_of_clusters_survive() {
        for (name, written) in [
            ("outbound|80||a.b.svc", "outbound|80||a.b.svc"),
            ("outbound|80|v1|*.b", "outbound|80|v1|*.b"),
            ("outbound_.80_._.a", "outbound_.80_._.a"),
            ("a%b:c d~é", "a%25b%3Ac%20d%7E%C3%A9"),
        ] {
            assert_eq!(escaped(name), written);
            assert_eq!(unescaped(written).as_deref(), Some(name));
            let collection = format!("{PREFIX}{written}/7.0.0123456789abcdef");
            assert_eq!(cluster_of(&collection), Some((name.to_owned(), 7)));
        }
    }

    #[test]
    fn what_is_no_collection_has_no_cluster() {
        let broken = [
            "",
            "a",
            "a/",
            "a/b",
            "a/x.0.1",
            "a%/0.0.1",
            "a%zz/0.0.1",
            "%ff/0.0.1",
            "a/-1.0.1",
        ];
        for name in broken {
            assert_eq!(cluster_of(&format!("{PREFIX}{name}")), None, "{name}");
        }
        assert_eq!(cluster_of("outbound|80||a/0.0.1"), None);
    }

    proptest::proptest! {
        #[test]
        fn any_cluster_is_found_again(cluster in "[^/]{0,40}", generation: u32) {
            let collection = format!("{PREFIX}{}/{generation}.0.00", escaped(&cluster));
            proptest::prop_assert_eq!(cluster_of(&collection), Some((cluster, generation)));
        }

        #[test]
        fn no_name_panics(name in ".{0,60}") {
            cluster_of(&name);
            cluster_of(&format!("{PREFIX}{name}"));
        }
    }
}
