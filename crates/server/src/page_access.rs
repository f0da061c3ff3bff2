//! Access to debug pages and to the configuration for other control planes, by istiod's rules.
//!
//! | client | debug pages | configuration |
//! |---|---|---|
//! | on this machine | all | yes |
//! | identity in the root namespace | all | yes |
//! | identity in a namespace of `DEBUG_ENDPOINT_AUTH_ALLOWED_NAMESPACES` | all | no |
//! | other identity | `config_dump`, `edsz` and `ndsz` of proxies of its namespace | no |
//! | none | none | no |

use std::net::IpAddr;
use std::sync::Arc;

use config::MeshConfig;
use http::HeaderMap;
use names::Identity;
use tokio::sync::watch;

use crate::authentication::{Credentials, Purpose};
use crate::gate::Gate;
use crate::grpc::Status;
use crate::peer::Peer;
use crate::security::PageAccess;

/// The debug pages that a client may read.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Access {
    /// All.
    All,
    /// Those about one proxy, for proxies of this namespace.
    Namespace(Arc<str>),
    /// None.
    None,
}

impl Access {
    /// The only namespace of proxies that the client may see.
    pub(crate) fn namespace(&self) -> Option<&Arc<str>> {
        match self {
            Access::Namespace(namespace) => Some(namespace),
            Access::All | Access::None => None,
        }
    }
}

/// Decides about access. Cheap to clone.
#[derive(Clone)]
pub(crate) struct Guard {
    gate: Gate,
    rules: PageAccess,
    mesh: watch::Receiver<Arc<MeshConfig>>,
}

impl Guard {
    pub(crate) fn new(gate: Gate, rules: PageAccess, mesh: watch::Receiver<Arc<MeshConfig>>) -> Guard {
        Guard { gate, rules, mesh }
    }

    /// The access of an HTTP request.
    pub(crate) async fn of_request(&self, headers: &HeaderMap, address: IpAddr, local: bool) -> Access {
        if local {
            return Access::All;
        }
        let credentials = Credentials::new(headers, Some(address), None);
        let caller = self.gate.authenticate(&credentials, Purpose::Page).await;
        caller.map_or(Access::None, |caller| self.of_identity(&caller.identity))
    }

    /// The access of a client over xDS.
    pub(crate) fn of_peer(&self, peer: &Peer) -> Access {
        match peer {
            Peer::Authenticated(identity) => self.of_identity(identity),
            Peer::Local { namespace: Some(namespace) } => Access::Namespace(namespace.clone()),
            Peer::Local { namespace: None } | Peer::Loopback => Access::All,
            Peer::Anonymous => Access::None,
        }
    }

    fn of_identity(&self, identity: &Identity) -> Access {
        let namespace = &identity.namespace;
        let is_allowed = match &self.rules {
            PageAccess::Everyone => true,
            PageAccess::Namespaces(allowed) => allowed.iter().any(|allowed| **allowed == **namespace),
        };
        match is_allowed || self.is_root(namespace) {
            true => Access::All,
            false => Access::Namespace(namespace.clone()),
        }
    }

    /// Checks whether a client may read the configuration.
    ///
    /// # Errors
    /// It may not.
    pub(crate) fn check_control_plane(&self, peer: &Peer) -> Result<(), Status> {
        match peer {
            Peer::Local { namespace: None } | Peer::Loopback => Ok(()),
            Peer::Authenticated(identity) if self.is_root(&identity.namespace) => Ok(()),
            Peer::Authenticated(_) | Peer::Local { .. } => Err(Status::new(
                Status::PERMISSION_DENIED,
                "the configuration is served to control planes of the root namespace (--protect-configuration)",
            )),
            Peer::Anonymous => Err(Status::new(
                Status::UNAUTHENTICATED,
                "the configuration is served to control planes with an identity: connect to --secure-grpc-addr \
                 (--protect-configuration)",
            )),
        }
    }

    fn is_root(&self, namespace: &str) -> bool {
        *self.mesh.borrow().root_namespace == *namespace
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pace::Pace;
    use crate::pages::{Awaited, Pages, ServingStatus};
    use crate::security::Security;
    use crate::world_handle::WorldHandle;

    fn guard(rules: PageAccess) -> Guard {
        let security = Security::default();
        let gate = Gate::new(security.authenticators, security.signing);
        Guard::new(gate, rules, watch::channel(Arc::default()).1)
    }

    fn identity(namespace: &str) -> Peer {
        Peer::Authenticated(Identity::parse(&format!("spiffe://cluster.local/ns/{namespace}/sa/a")).unwrap())
    }

    #[test]
    fn the_root_namespace_and_listed_ones_see_everything() {
        let some = guard(PageAccess::Namespaces(["tools".to_owned()].into()));
        for (peer, expected) in [
            (identity("istio-system"), Access::All),
            (identity("tools"), Access::All),
            (identity("shop"), Access::Namespace("shop".into())),
            (Peer::Loopback, Access::All),
            (Peer::Local { namespace: None }, Access::All),
            (Peer::Local { namespace: Some("shop".into()) }, Access::Namespace("shop".into())),
            (Peer::Anonymous, Access::None),
        ] {
            assert_eq!(some.of_peer(&peer), expected, "{peer:?}");
        }
        let everyone = guard(PageAccess::Everyone);
        assert_eq!(everyone.of_peer(&identity("shop")), Access::All);
        assert_eq!(everyone.of_peer(&Peer::Anonymous), Access::None);
    }

    /// CVE-2026-31838, over HTTP: a request from another machine reads pages of its own namespace only. A test on one machine
    /// cannot send such a request.
    #[tokio::test]
    async fn cve_2026_31838_debug_pages_do_not_cross_namespaces_over_http() {
        let world = world::World::new(registry::inputs::MeshSettings::default(), 1);
        let world = WorldHandle::start(world, xds::Limits::default(), Pace::UNLIMITED).unwrap();
        let pages = Pages {
            world,
            ready: Arc::default(),
            awaited: Awaited::default(),
            serving_status: ServingStatus::default(),
            version: "test".into(),
            recomputing: Arc::default(),
            showing: Arc::default(),
        };
        let guard = guard(PageAccess::Namespaces(Arc::default()));
        let status = async |path: &str, access: Access| {
            let request = http::Request::get(path).body(()).unwrap();
            assert_eq!(Pages::is_debug(&request), path.contains("debug"), "{path}");
            pages.answer(&request, false, access).await.status().as_u16()
        };
        let (root, shop) = (guard.of_peer(&identity("istio-system")), guard.of_peer(&identity("shop")));
        let stranger = guard.of_request(&HeaderMap::new(), IpAddr::from([192, 0, 2, 1]), false).await;
        assert_eq!(guard.of_request(&HeaderMap::new(), IpAddr::from([127, 0, 0, 1]), true).await, Access::All);
        for (path, by_root, by_shop, by_stranger) in [
            ("/debug/configz", 200, 403, 401),
            ("//debug/configz", 200, 403, 401),
            ("/debug/syncz", 200, 403, 401),
            ("/debug", 200, 403, 401),
            ("/debug/list", 200, 403, 401),
            ("/debug/recompute", 200, 403, 401),
            ("/debug/config_dump/", 404, 403, 401),
            ("/debug/config_dump?proxyID=a.bank", 404, 404, 401),
            ("/debug/edsz?proxyID=a.bank", 404, 404, 401),
            ("/debug/ndsz", 400, 400, 401),
            ("/version", 200, 200, 200),
        ] {
            assert_eq!(status(path, root.clone()).await, by_root, "{path}");
            assert_eq!(status(path, shop.clone()).await, by_shop, "{path}");
            assert_eq!(status(path, stranger.clone()).await, by_stranger, "{path}");
        }
    }

    #[test]
    fn the_configuration_is_for_control_planes() {
        let guard = guard(PageAccess::Everyone);
        let code = |peer: &Peer| guard.check_control_plane(peer).err().map(|status| status.code);
        for peer in [identity("istio-system"), Peer::Loopback, Peer::Local { namespace: None }] {
            assert_eq!(code(&peer), None, "{peer:?}");
        }
        assert_eq!(code(&identity("shop")), Some(Status::PERMISSION_DENIED));
        assert_eq!(code(&Peer::Local { namespace: Some("shop".into()) }), Some(Status::PERMISSION_DENIED));
        assert_eq!(code(&Peer::Anonymous), Some(Status::UNAUTHENTICATED));
    }
}
