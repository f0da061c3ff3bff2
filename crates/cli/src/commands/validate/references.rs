//! References between the objects of files, and to those of a server.

use std::sync::Arc;

use config::istio::references::{Following, Target, references};
use config::{AnyObject, Diagnostic, Kind};

use super::live::Live;

/// Warnings about references that do not resolve among these objects and those of a server. References to a kind of which
/// the files have no object, and whose objects of the server are not known, are not checked: such objects are elsewhere.
pub(super) fn unresolved(objects: &[(Arc<str>, AnyObject)], live: &Live) -> Vec<Diagnostic> {
    let known = Known { objects: objects.iter().map(|(_, object)| object).chain(&live.objects).collect(), live };
    let mut out = Vec::new();
    for (file, object) in objects {
        let mut following = Following::default();
        for reference in references(object, DOMAIN) {
            if !following.needs(&reference.target) {
                continue;
            }
            let missing = !known.resolves(&reference.target);
            following.answer(&reference.target, missing);
            if missing {
                let line = object.meta().origin.as_ref().map_or(0, |origin| origin.line);
                out.push(Diagnostic { file: Some(file.clone()), line, column: 1, ..reference.missing(object.key()) });
            }
        }
    }
    out
}

/// The DNS domain with which short names of services are completed. Their own domain does not matter: names of Services are
/// compared by name and namespace.
const DOMAIN: &str = "cluster.local";

struct Known<'o> {
    objects: Vec<&'o AnyObject>,
    live: &'o Live,
}

impl Known<'_> {
    fn resolves(&self, target: &Target) -> bool {
        let kinds: &[Kind] = match target {
            Target::Gateway { .. } => &[Kind::Gateway],
            Target::Delegate { .. } => &[Kind::VirtualService],
            // Other schemes name ConfigMaps, Secrets of other namespaces, or what the agent provides.
            Target::Credential { name, .. } if name.contains("://") => return true,
            Target::Credential { .. } => &[Kind::Secret],
            Target::Host { .. } | Target::Port { .. } => &[Kind::Service, Kind::ServiceEntry],
            Target::Subset { .. } => &[Kind::DestinationRule],
        };
        self.elsewhere(kinds)
            || self.objects.iter().any(|object| target.is_defined_by(object, DOMAIN))
            || self.live.names.iter().any(|(kind, namespace, name)| names(target, *kind, namespace, name))
    }

    /// Whether objects of these kinds are elsewhere.
    fn elsewhere(&self, kinds: &[Kind]) -> bool {
        !kinds.iter().all(|kind| self.live.listed.contains(kind))
            && !self.objects.iter().any(|object| kinds.contains(&object.kind()))
    }
}

/// Whether an object of which only the name is known is the target. Such a Service may have any port.
fn names(target: &Target, kind: Kind, namespace: &str, name: &str) -> bool {
    match (target, kind) {
        (Target::Gateway { namespace: its, name: own }, Kind::Gateway)
        | (Target::Delegate { namespace: its, name: own }, Kind::VirtualService) => {
            **its == *namespace && **own == *name
        }
        (Target::Credential { .. }, Kind::Secret) => target.is_secret(name),
        (Target::Host { .. } | Target::Port { .. }, Kind::Service) => target.service() == Some((namespace, name)),
        _ => false,
    }
}
