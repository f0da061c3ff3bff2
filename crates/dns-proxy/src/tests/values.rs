//! Values for tests.

use std::time::Duration;

use domain::base::{MessageBuilder, Name, Rtype};
use protos::istio::networking::nds::v1::NameTable;
use protos::istio::networking::nds::v1::name_table::NameInfo;

use crate::resolv::ResolvConf;
use crate::settings::Settings;

pub(crate) fn settings() -> Settings {
    Settings {
        addresses: vec![],
        resolv: ResolvConf::parse("search shop.svc.cluster.local svc.cluster.local"),
        namespace: "shop".to_owned(),
        domain: "svc.cluster.local".to_owned(),
        parallel: false,
        timeout: Duration::from_secs(5),
        forward_before_names: false,
    }
}

pub(crate) fn entry(ips: &str, registry: &str) -> NameInfo {
    let ips = ips.split(',').map(str::to_owned).collect();
    NameInfo { ips, registry: registry.to_owned(), ..NameInfo::default() }
}

/// A name table. Hosts of the cluster are Kubernetes services.
pub(crate) fn names<'a>(hosts: impl IntoIterator<Item = (&'a str, &'a str)>) -> NameTable {
    let entries = hosts.into_iter().map(|(host, ips)| match host.strip_suffix(".svc.cluster.local") {
        None => (host.to_owned(), entry(ips, "External")),
        Some(short) => {
            let (name, namespace) = short.rsplit_once('.').unwrap();
            let short =
                NameInfo { shortname: name.to_owned(), namespace: namespace.to_owned(), ..entry(ips, "Kubernetes") };
            (host.to_owned(), short)
        }
    });
    NameTable { table: entries.collect() }
}

/// A query with a payload size of EDNS, if there is one.
pub(crate) fn query(name: &str, rtype: Rtype, edns: Option<u16>) -> Vec<u8> {
    let mut builder = MessageBuilder::new_vec();
    builder.header_mut().set_id(0x1234);
    builder.header_mut().set_rd(true);
    let mut question = builder.question();
    question.push((Name::<Vec<u8>>::vec_from_str(name).unwrap(), rtype)).unwrap();
    let mut additional = question.additional();
    if let Some(size) = edns {
        let set = additional.opt(|opt| {
            opt.set_udp_payload_size(size);
            Ok(())
        });
        set.unwrap();
    }
    additional.finish()
}
