//! Reads DNS queries and answers them from a name table with a name of the input, and reads a `resolv.conf`. Nothing may panic,
//! answers keep to the limit of the client, and they belong to the query.

#![no_main]

use std::net::IpAddr;
use std::sync::Arc;

use agent_core::environment::Environment;
use agent_core::exchange::NameTable;
use dns_proxy::Settings;
use dns_proxy::message::{Rejected, Transport, read, truncated};
use dns_proxy::resolv::ResolvConf;
use dns_proxy::table::{Found, Table};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|input: (&[u8], &str, bool, usize)| {
    let (bytes, text, over_tcp, turn) = input;
    let transport = if over_tcp { Transport::Tcp } else { Transport::Udp };
    let mut settings = Settings::from_environment(&Environment::default(), "shop", "svc.cluster.local").expect("settings");
    settings.resolv = ResolvConf::parse(text);
    let entry = protos::istio::networking::nds::v1::name_table::NameInfo {
        ips: (1..200).map(|last| format!("10.0.0.{last}")).collect(),
        registry: "Kubernetes".to_owned(),
        shortname: "cart".to_owned(),
        namespace: "shop".to_owned(),
        ..Default::default()
    };
    let hosts = [text, "*.example.com", "cart.shop.svc.cluster.local"];
    let names = NameTable { table: hosts.map(|host| (host.to_owned(), entry.clone())).into() };
    let table = Table::new(Arc::new(names), &settings);
    match read(bytes, transport) {
        Ok(query) => {
            let found = table.find(&query.name);
            let found = found.unwrap_or(Found { canonical: None, addresses: vec![IpAddr::from([10, 0, 0, 1]); 300] });
            for answer in [query.answer(&found, turn), truncated(&query)] {
                assert!(answer.len() <= query.limit, "the answer is too large");
                assert_eq!(answer[..2], bytes[..2], "the answer belongs to another query");
            }
        }
        Err(Rejected::Answer(answer)) => assert!(answer.len() >= 12 && answer[..2] == bytes[..2]),
        Err(Rejected::Silently) => {}
    }
});
