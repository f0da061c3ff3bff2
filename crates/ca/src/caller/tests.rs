use proptest::prelude::*;

use super::*;
use crate::tests::identity;

fn own() -> TrustDomain {
    TrustDomain::default()
}

fn audiences(list: &[&str]) -> Vec<String> {
    list.iter().map(|audience| (*audience).to_owned()).collect()
}

fn token(username: &str) -> ReviewedToken {
    ReviewedToken {
        authenticated: true,
        audiences: audiences(&["istio-ca"]),
        username: username.to_owned(),
        groups: vec!["system:serviceaccounts".to_owned(), "system:authenticated".to_owned()],
        pod_name: Some("ztunnel-1".to_owned()),
        pod_uid: Some("uid-1".to_owned()),
        ..ReviewedToken::default()
    }
}

fn reviewed(token: &ReviewedToken) -> Result<Caller, CallerError> {
    Caller::from_token(token, &audiences(&["istio-ca"]), &own())
}

const ZTUNNEL: &str = "system:serviceaccount:istio-system:ztunnel";

#[test]
fn a_reviewed_token_proves_a_service_account_and_its_pod() {
    let caller = reviewed(&token(ZTUNNEL)).unwrap();
    assert_eq!(caller.identity.to_string(), "spiffe://cluster.local/ns/istio-system/sa/ztunnel");
    assert_eq!(caller.pod, Some(BoundPod { name: "ztunnel-1".to_owned(), uid: "uid-1".to_owned() }));
    assert_eq!(caller.method, Method::KubernetesToken);
}

#[test]
fn tokens_that_prove_nothing_are_refused() {
    let good = token(ZTUNNEL);
    let rejected = [
        ReviewedToken { authenticated: false, ..good.clone() },
        ReviewedToken { error: "expired".to_owned(), ..good.clone() },
        ReviewedToken { audiences: audiences(&["vault"]), ..good.clone() },
        ReviewedToken { audiences: Vec::new(), ..good.clone() },
        ReviewedToken { groups: Vec::new(), ..good.clone() },
        token("system:node:a"),
        token("system:serviceaccount:a"),
        token("system:serviceaccount:a:b:c"),
        token("system:serviceaccount::b"),
        token("system:serviceaccount:a/sa/x:b"),
        token("system:serviceaccount:a:b/../c"),
        ReviewedToken::default(),
    ];
    for token in rejected {
        let error = reviewed(&token).unwrap_err();
        assert_eq!(
            (error.code(), error.message()),
            (Code::Unauthenticated, "request authenticate failure"),
            "{token:?}"
        );
    }
    let without = ReviewedToken { audiences: Vec::new(), ..good };
    assert!(Caller::from_token(&without, &[], &own()).is_ok(), "TOKEN_AUDIENCES is empty");
}

#[test]
fn claims_need_an_expected_audience_and_a_service_account() {
    let claims = |subject: &str, found: &[&str]| {
        Caller::from_claims(subject, &audiences(found), &audiences(&["istio-ca", "mesh"]), &own())
    };
    let caller = claims("system:serviceaccount:shop:cart", &["x", "mesh"]).unwrap();
    assert_eq!((caller.identity, caller.pod, caller.method), (identity("cart"), None, Method::Oidc));
    assert!(matches!(claims("system:serviceaccount:shop:cart", &["x"]), Err(CallerError::Audience { .. })));
    assert!(matches!(claims("system:serviceaccount", &["mesh"]), Err(CallerError::NotServiceAccount(_))));
    assert!(matches!(claims("alice", &["mesh"]), Err(CallerError::NotServiceAccount(_))));
}

/// The pods `ztunnel-1` on `node-1` and, on nodes, the service accounts of the namespace `shop`.
struct Cluster(Pod);

impl Cluster {
    fn new() -> Cluster {
        Cluster(Pod { uid: "uid-1".to_owned(), service_account: "ztunnel".to_owned(), node: "node-1".to_owned() })
    }
}

impl Pods for Cluster {
    fn pod(&self, namespace: &str, name: &str) -> Option<Pod> {
        ((namespace, name) == ("istio-system", "ztunnel-1")).then(|| self.0.clone())
    }

    fn has_account_on_node(&self, node: &str, namespace: &str, service_account: &str) -> bool {
        [("node-1", "shop", "cart"), ("node-2", "shop", "bank")].contains(&(node, namespace, service_account))
    }
}

fn ask(caller: &Caller, asked: Option<&str>, pods: &Cluster) -> Result<Vec<Identity>, CallerError> {
    let trust = TrustBundle::new(own(), [TrustDomain::parse("old.example").unwrap()]);
    let (trusted, invalid) = TrustedNodeAccounts::parse("istio-system/ztunnel, kube-system/agent,bad,a/b/c");
    assert_eq!(invalid, ["bad", "a/b/c"]);
    identities(caller, asked, &trust, &trusted, pods)
}

const CART: &str = "spiffe://cluster.local/ns/shop/sa/cart";

#[test]
fn a_caller_gets_its_own_identity() {
    let pods = Cluster::new();
    for method in Method::ORDER {
        let caller = Caller::new(method, identity("cart"));
        for nothing in [None, Some("")] {
            assert_eq!(ask(&caller, nothing, &pods), Ok(vec![identity("cart")]));
        }
    }
    let foreign = Identity::parse("spiffe://partner.example/ns/shop/sa/cart").unwrap();
    let error = ask(&Caller::new(Method::ClientCertificate, foreign), None, &pods).unwrap_err();
    assert!(matches!(error, CallerError::ForeignDomain(_)));
    let alias = Identity::parse("spiffe://old.example/ns/shop/sa/cart").unwrap();
    assert_eq!(ask(&Caller::new(Method::ClientCertificate, alias.clone()), None, &pods), Ok(vec![alias]));
}

#[test]
fn a_node_agent_gets_identities_of_pods_on_its_node_only() {
    let caller = reviewed(&token(ZTUNNEL)).unwrap();
    let pods = Cluster::new();
    assert_eq!(ask(&caller, Some(CART), &pods), Ok(vec![identity("cart")]));
    let elsewhere = CART.replace("cart", "bank");
    let foreign = CART.replace("cluster.local", "partner.example");
    for asked in [&*elsewhere, &foreign, "cart", "spiffe://cluster.local/ns/shop/sa/cart/x", "spiffe://a,b/ns/a/sa/b"] {
        let error = ask(&caller, Some(asked), &pods).unwrap_err();
        assert_eq!(error.message(), "request impersonation authentication failure", "{asked}");
    }
}

#[test]
fn other_callers_may_not_ask_for_identities() {
    let caller = reviewed(&token(ZTUNNEL)).unwrap();
    let pod = |change: fn(&mut Pod)| {
        let mut pods = Cluster::new();
        change(&mut pods.0);
        pods
    };
    let cases = [
        (Caller { pod: None, ..caller.clone() }, Cluster::new(), "bound to a pod"),
        (Caller { identity: identity("cart"), ..caller.clone() }, Cluster::new(), "CA_TRUSTED_NODE_ACCOUNTS"),
        (Caller::new(Method::ClientCertificate, caller.identity.clone()), Cluster::new(), "bound to a pod"),
        (caller.clone(), pod(|pod| pod.uid = "uid-2".to_owned()), "was created again"),
        (caller.clone(), pod(|pod| pod.service_account = "other".to_owned()), "another service account"),
        (caller.clone(), pod(|pod| pod.node.clear()), "or no node"),
        (caller, pod(|pod| pod.node = "node-2".to_owned()), "is on the node node-2"),
    ];
    for (caller, pods, reason) in cases {
        let error = ask(&caller, Some(CART), &pods).unwrap_err();
        assert!(error.to_string().contains(reason), "{error}");
        assert_eq!(error.message(), "request impersonation authentication failure");
        assert_eq!(error.code(), Code::Unauthenticated);
    }
}

#[test]
fn the_order_of_methods_is_that_of_istiod() {
    let ours = Method::ORDER.into_iter().filter(|method| *method != Method::JoinToken);
    let theirs = [Method::ClientCertificate, Method::Oidc, Method::KubernetesToken, Method::ForwardedCertificate];
    assert!(ours.eq(theirs));
}

proptest! {
    #[test]
    fn no_text_gives_an_identity_that_it_does_not_spell(text in "(system:serviceaccount:)?\\PC{0,60}") {
        if let Ok(caller) = reviewed(&token(&text)) {
            let Identity { namespace, service_account, .. } = caller.identity;
            prop_assert_eq!(format!("system:serviceaccount:{namespace}:{service_account}"), text);
        }
    }

    #[test]
    fn nobody_is_impersonated_without_a_pod_on_the_node(asked in "\\PC{0,80}") {
        let caller = reviewed(&token(ZTUNNEL)).unwrap();
        prop_assert!(asked.is_empty() || asked == CART || ask(&caller, Some(&asked), &Cluster::new()).is_err());
    }
}
