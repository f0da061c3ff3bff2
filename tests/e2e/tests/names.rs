//! The name table of agents (NDS), over both protocol variants.

use e2e::{Agent, Mesh, both_protocols};
use serde_json::json;
use test_harness::run::Node;

/// A service and the namespaces to which it is exported.
fn entry(name: &str, address: &str, export: &str) -> String {
    format!(
        "apiVersion: networking.istio.io/v1\nkind: ServiceEntry\nmetadata: {{ name: {name}, namespace: test }}\n\
         spec: {{ hosts: [{name}.example], addresses: [{address}], exportTo: ['{export}'], resolution: STATIC, \
         ports: [{{ number: 80, name: http, protocol: HTTP }}], endpoints: [{{ address: 127.0.0.1 }}] }}\n"
    )
}

/// A proxy whose agent answers DNS queries.
fn node(namespace: &str) -> Node {
    let mut node = Node::sidecar("client", namespace, "127.0.0.1", &[]);
    node.metadata["DNS_CAPTURE"] = json!("true");
    node
}

both_protocols! {
    async fn agents_are_told_of_names_and_of_their_changes(protocol) {
        let mesh = Mesh::start(&[("a.yaml", &entry("a", "192.0.2.1", "*")), ("b.yaml", &entry("b", "192.0.2.2", "."))]).await?;
        let mut near = Agent::start(mesh.control.grpc(), &node("test"), protocol).await?;
        let mut far = Agent::start(mesh.control.grpc(), &node("elsewhere"), protocol).await?;
        let of = |addresses: &[(&str, &str)]| addresses.iter().map(|(host, ip)| ((*host).to_owned(), vec![(*ip).to_owned()])).collect();
        assert_eq!(near.next().await?, of(&[("a.example", "192.0.2.1"), ("b.example", "192.0.2.2")]));
        assert_eq!(far.next().await?, of(&[("a.example", "192.0.2.1")]));

        mesh.config.put("b.yaml", &entry("b", "192.0.2.3", "."))?;
        assert_eq!(near.next().await?, of(&[("a.example", "192.0.2.1"), ("b.example", "192.0.2.3")]));
        mesh.config.put("a.yaml", &entry("a", "192.0.2.4", "*"))?;
        assert_eq!(near.next().await?, of(&[("a.example", "192.0.2.4"), ("b.example", "192.0.2.3")]));
        assert_eq!(far.next().await?, of(&[("a.example", "192.0.2.4")]), "b is none of its business: one answer less");
        assert_eq!((near.answers, far.answers), (3, 2));

        let page = mesh.control.debug("/debug/ndsz?proxyID=client.elsewhere").await?.json()?;
        assert_eq!(page, json!({ "table": { "a.example": { "ips": ["192.0.2.4"], "registry": "External" } } }));
        // Without any names, an empty table is sent.
        mesh.config.remove("a.yaml")?;
        assert_eq!(far.next().await?, of(&[]));
    }
}
