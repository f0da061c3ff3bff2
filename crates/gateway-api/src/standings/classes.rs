//! GatewayClasses and XMeshes: whether they are served, and the features of their Gateways and of the mesh.

use std::sync::Arc;

use flow::Reads;
use model::standing::{Fact, MESH_CONTROLLERS, Standing, StandingBody, condition};
use registry::inputs::{GatewayClasses, XMeshes};

use crate::class::{Class, KnownClasses};

/// The features of the Gateway API that Gateways have, sorted. Conformance tests run for these.
const FEATURES: [&str; 48] = [
    "BackendTLSPolicy",
    "BackendTLSPolicySANValidation",
    "GRPCRoute",
    "GRPCRouteNamedRouteRule",
    "Gateway",
    "GatewayAddressEmpty",
    "GatewayBackendClientCertificate",
    "GatewayFrontendClientCertificateValidation",
    "GatewayFrontendClientCertificateValidationInsecureFallback",
    "GatewayHTTPListenerIsolation",
    "GatewayHTTPSListenerDetectMisdirectedRequests",
    "GatewayInfrastructurePropagation",
    "GatewayPort8080",
    "GatewayStaticAddresses",
    "HTTPRoute",
    "HTTPRoute303RedirectStatusCode",
    "HTTPRoute307RedirectStatusCode",
    "HTTPRoute308RedirectStatusCode",
    "HTTPRouteBackendProtocolH2C",
    "HTTPRouteBackendProtocolWebSocket",
    "HTTPRouteBackendRequestHeaderModification",
    "HTTPRouteBackendTimeout",
    "HTTPRouteCORS",
    "HTTPRouteDestinationPortMatching",
    "HTTPRouteHostRewrite",
    "HTTPRouteMethodMatching",
    "HTTPRouteNamedRouteRule",
    "HTTPRouteParentRefPort",
    "HTTPRoutePathRedirect",
    "HTTPRoutePathRewrite",
    "HTTPRoutePortRedirect",
    "HTTPRouteQueryParamMatching",
    "HTTPRouteRequestMirror",
    "HTTPRouteRequestMultipleMirrors",
    "HTTPRouteRequestPercentageMirror",
    "HTTPRouteRequestTimeout",
    "HTTPRouteResponseHeaderModification",
    "HTTPRouteRetry",
    "HTTPRouteRetryBackendTimeout",
    "HTTPRouteRetryConnectionError",
    "HTTPRouteSchemeRedirect",
    "ListenerSet",
    "ReferenceGrant",
    "TCPRoute",
    "TLSRoute",
    "TLSRouteModeMixed",
    "TLSRouteModeTerminate",
    "UDPRoute",
];

/// The features of the Gateway API that the mesh has, sorted.
const MESH_FEATURES: [&str; 11] = [
    "GRPCRoute",
    "HTTPRoute",
    "Mesh",
    "MeshConsumerRoute",
    "MeshHTTPRouteBackendRequestHeaderModification",
    "MeshHTTPRouteNamedRouteRule",
    "MeshHTTPRouteQueryParamMatching",
    "MeshHTTPRouteRedirectPath",
    "MeshHTTPRouteRedirectPort",
    "MeshHTTPRouteRewritePath",
    "MeshHTTPRouteSchemeRedirect",
];

flow::rule! {
    /// Facts about XMeshes of the controllers of meshes.
    pub MeshStandings: Arc<str> => Arc<Standing> = "standings of meshes", derive_mesh_standing;
    /// Facts about the GatewayClasses of controllers that are known.
    pub ClassStandings: Arc<str> => Arc<Standing> = "standings of gateway classes", derive_class_standing;
}

fn derive_class_standing(cx: &Reads<'_>, name: &Arc<str>) -> Option<Arc<Standing>> {
    if !cx.contains::<GatewayClasses>(name) {
        return None;
    }
    let features: &[&str] = match *cx.get::<KnownClasses>(name)? {
        Class::Served(_) => &FEATURES,
        Class::Remote => &[],
    };
    Some(Arc::new(Standing {
        conditions: vec![Fact::yes(condition::ACCEPTED, "Accepted", "Handled by Istio controller")],
        body: StandingBody::Class { features },
    }))
}

fn derive_mesh_standing(cx: &Reads<'_>, name: &Arc<str>) -> Option<Arc<Standing>> {
    let object = cx.get::<XMeshes>(name)?;
    if !MESH_CONTROLLERS.contains(&&*object.spec.controller_name) {
        return None;
    }
    let (accepted, features): (_, &'static [&'static str]) = match object.spec.parameters_ref {
        None => (Fact::yes(condition::ACCEPTED, "Accepted", "Handled by Istio controller"), &MESH_FEATURES[..]),
        Some(_) => (Fact::no(condition::ACCEPTED, "InvalidParameters", "spec.parametersRef is not supported"), &[][..]),
    };
    Some(Arc::new(Standing { conditions: vec![accepted], body: StandingBody::Class { features } }))
}

/// Adds this module's rules.
pub(super) fn register(b: &mut flow::Builder) {
    b.view::<ClassStandings>();
    b.view::<MeshStandings>();
}

#[cfg(test)]
mod tests {
    use super::{FEATURES, MESH_FEATURES};

    #[test]
    fn features_are_sorted() {
        assert!(FEATURES.is_sorted() && MESH_FEATURES.is_sorted());
    }
}
