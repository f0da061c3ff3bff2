//! XMesh: a service mesh as an object.

use std::sync::Arc;

use crate::gateway_api::reference::ObjectReference;
use crate::gateway_api::text::CONTROLLER;

message! {
    /// Mesh that is managed by one controller. Its status says which features of the Gateway API the mesh supports.
    pub struct XMesh {
        /// Name of the controller: a domain-prefixed path, such as `istio.io/mesh-controller`.
        pub controller_name: Arc<str> where [
            required, min 1, max 253, pattern CONTROLLER, rule "self == oldSelf" "controllerName is immutable",
        ],
        /// Object with controller-specific parameters. There are none: a mesh with this field is not accepted.
        pub parameters_ref: Option<ObjectReference>,
        /// Description of the mesh.
        pub description: Option<Arc<str>> where [max 64],
    }
}
