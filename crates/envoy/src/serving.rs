//! The served types that no EnvoyFilter changes, and this crate's relations of the others.

use std::sync::Arc;

use model::audience::{EndpointsSection, LOCAL_CLUSTER, NameAudience, ResourceKey, SecretAudience};
use model::xds::{Resource, ResourceType};
use traffic::audience::ProxyAudiences;
use traffic::clusters;
use traffic::name_table::NameTableCatalogue;
use traffic::serving::{Hosts, List, NoList, ResourceRelation, ServedType, ServedTypes};
use traffic::trust_bundle::TrustBundleCatalogue;

use crate::{
    Clusters, Endpoints, GrpcClusters, GrpcListeners, Listeners, NameTables, OwnInstances, RouteConfigs, RouteShells,
    Secrets, TrustBundles, VirtualHostResources, types,
};

/// Registers this crate's resource types.
pub fn register_types(to: &mut ServedTypes) {
    to.register::<EndpointsType>().register::<SecretType>().register::<NameTableType>().register::<ProxyConfigType>();
}

struct EndpointsType;

impl ServedType for EndpointsType {
    const TYPE: ResourceType = types::ENDPOINTS;
    type Audience = EndpointsSection;
    type Lists = NoList;
    type Resources = (Endpoints, OwnInstances);

    fn audience(proxy: &ProxyAudiences) -> Option<EndpointsSection> {
        Some(EndpointsSection::Shared(proxy.endpoints.clone()))
    }

    fn own_audience(proxy: &ProxyAudiences) -> Option<EndpointsSection> {
        proxy.own_endpoints.clone().map(EndpointsSection::Own)
    }

    fn resolve(audience: &EndpointsSection, name: &Arc<str>) -> Option<ResourceKey> {
        // An own audience has few names, and most calls are about others.
        let key = audience.resolve(name)?;
        (clusters::is_outbound(name) || &**name == LOCAL_CLUSTER).then_some(key)
    }

    fn required_host(name: &str) -> Option<&str> {
        clusters::hostname_in(name)
    }

    fn own_hosts(audience: &EndpointsSection) -> Option<Hosts> {
        match audience {
            EndpointsSection::Shared(_) => None,
            EndpointsSection::Own(own) => Some(own.hosts.clone()),
        }
    }
}

struct SecretType;

impl ServedType for SecretType {
    const TYPE: ResourceType = types::SECRET;
    type Audience = Arc<SecretAudience>;
    type Lists = NoList;
    type Resources = (Secrets,);

    fn audience(proxy: &ProxyAudiences) -> Option<Arc<SecretAudience>> {
        proxy.secrets.clone()
    }

    fn resolve(audience: &Arc<SecretAudience>, name: &Arc<str>) -> Option<ResourceKey> {
        audience.resolve(name).map(ResourceKey::Secret)
    }
}

struct NameTableType;

impl ServedType for NameTableType {
    const TYPE: ResourceType = types::NAME_TABLE;
    type Audience = Arc<NameAudience>;
    type Lists = List<NameTableCatalogue>;
    type Resources = (NameTables,);

    fn audience(proxy: &ProxyAudiences) -> Option<Arc<NameAudience>> {
        Some(Arc::new(proxy.names()))
    }

    fn list(audience: &Arc<NameAudience>, _: &Arc<str>) -> Option<Arc<NameAudience>> {
        Some(audience.clone())
    }
}

struct ProxyConfigType;

impl ServedType for ProxyConfigType {
    const TYPE: ResourceType = types::PROXY_CONFIG;
    type Audience = ();
    type Lists = List<TrustBundleCatalogue>;
    type Resources = (TrustBundles,);

    fn audience(_: &ProxyAudiences) -> Option<()> {
        Some(())
    }

    fn list((): &(), _: &Arc<str>) -> Option<()> {
        Some(())
    }
}

/// Relations whose rows are resources or have one `in` a field: the keys that they hold, and whether their ACKs count in
/// the status of objects.
#[macro_export]
macro_rules! resource_relations {
    ($($relation:ty $(, in $field:ident)?, counted: $counted:literal, $pattern:pat $(if $guard:expr)? => $key:expr;)+) => {
        $(impl ResourceRelation for $relation {
            const COUNTED: bool = $counted;

            fn key(key: &ResourceKey) -> Option<Self::Key> {
                match key {
                    $pattern $(if $guard)? => $key,
                    _ => None,
                }
            }

            fn resource(row: &Self::Row) -> &Resource {
                &row$(.$field)?
            }
        })+
    };
}

resource_relations! {
    Clusters, counted: true, ResourceKey::Cluster(key) => Some(key.clone());
    GrpcClusters, counted: true, ResourceKey::GrpcCluster(scope, name) => Some((scope.clone(), name.clone()));
    Endpoints, counted: true, ResourceKey::Endpoints(audience, name) => Some((audience.clone(), name.clone()));
    OwnInstances, counted: true, ResourceKey::OwnInstances(own) => Some(own.clone());
    // Policies are read by listeners; all else is in their keys.
    Listeners, counted: true, ResourceKey::Listener(spec) => Some(spec.clone());
    GrpcListeners, counted: true, ResourceKey::GrpcListener(audience, name) => Some((audience.clone(), name.clone()));
    RouteConfigs, counted: true, ResourceKey::Route(audience, name) if audience.filters.is_empty() => {
        Some((audience.clone(), name.clone()))
    };
    // The virtual hosts are counted instead.
    RouteShells, counted: false, ResourceKey::RouteShell(audience, name) if audience.filters.is_empty() => {
        Some((audience.clone(), name.clone()))
    };
    VirtualHostResources, counted: true, ResourceKey::VirtualHost(table, host) => Some((table.clone(), host.clone()));
    Secrets, counted: false, ResourceKey::Secret(key) => Some(key.clone());
    NameTables, counted: true, ResourceKey::NameTable(audience) => Some(audience.clone());
    TrustBundles, counted: false, ResourceKey::TrustBundle => Some(());
}
