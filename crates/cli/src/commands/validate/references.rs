//! References between the objects of files.

use std::sync::Arc;

use admission::{Host, Target, references};
use config::{AnyObject, Diagnostic, Kind};

/// Warnings about references that do not resolve among these objects. References to a kind of which the files have no
/// object are not checked: such objects are elsewhere.
pub(super) fn unresolved(objects: &[(Arc<str>, AnyObject)]) -> Vec<Diagnostic> {
    let known = Known(objects.iter().map(|(_, object)| object).collect());
    let mut out = Vec::new();
    for (file, object) in objects {
        let missing = references(object).into_iter().filter(|reference| !known.resolves(&reference.target));
        out.extend(missing.map(|reference| {
            let line = object.meta().origin.as_ref().map_or(0, |origin| origin.line);
            Diagnostic { file: Some(file.clone()), line, column: 1, ..reference.unresolved(object.key()) }
        }));
    }
    out
}

struct Known<'o>(Vec<&'o AnyObject>);

impl Known<'_> {
    fn resolves(&self, target: &Target) -> bool {
        match target {
            Target::Gateway { namespace, name } => self.has(Kind::Gateway, Some(namespace), name),
            Target::VirtualService { namespace, name } => self.has(Kind::VirtualService, Some(namespace), name),
            Target::Secret { name } => self.has(Kind::Secret, None, name),
            Target::Host(host) if !host.subset.is_empty() => self.defines(host),
            Target::Host(host) => self.serves(host),
        }
    }

    fn none_of(&self, kinds: &[Kind]) -> bool {
        !self.0.iter().any(|object| kinds.contains(&object.kind()))
    }

    fn has(&self, kind: Kind, namespace: Option<&str>, name: &str) -> bool {
        self.none_of(&[kind])
            || self.0.iter().any(|object| {
                let meta = object.meta();
                object.kind() == kind
                    && *meta.name == *name
                    && namespace.is_none_or(|namespace| *meta.namespace == *namespace)
            })
    }

    fn serves(&self, host: &Host) -> bool {
        let is_service = |namespace: &str, name: &str| host.service() == Some((namespace, name));
        self.none_of(&[Kind::Service, Kind::ServiceEntry])
            || self.0.iter().any(|object| match object {
                AnyObject::Service(service) => is_service(&service.meta.namespace, &service.meta.name),
                AnyObject::ServiceEntry(entry) => {
                    entry.spec.hosts.iter().any(|own| host.is_covered_by(own, &entry.meta.namespace))
                }
                _ => false,
            })
    }

    fn defines(&self, host: &Host) -> bool {
        self.none_of(&[Kind::DestinationRule])
            || self.0.iter().any(|object| match object {
                AnyObject::DestinationRule(rule) => {
                    host.is_covered_by(&rule.spec.host, &rule.meta.namespace)
                        && rule.spec.subsets.iter().any(|subset| subset.name == host.subset)
                }
                _ => false,
            })
    }
}
