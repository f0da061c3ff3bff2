//! References between the objects of files, and to those of a server.

use std::sync::Arc;

use admission::{Host, Target, references};
use config::{AnyObject, Diagnostic, Kind};

use super::live::Live;

/// Warnings about references that do not resolve among these objects and those of a server. References to a kind of which
/// the files have no object, and whose objects of the server are not known, are not checked: such objects are elsewhere.
pub(super) fn unresolved(objects: &[(Arc<str>, AnyObject)], live: &Live) -> Vec<Diagnostic> {
    let known = Known { objects: objects.iter().map(|(_, object)| object).chain(&live.objects).collect(), live };
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

struct Known<'o> {
    objects: Vec<&'o AnyObject>,
    live: &'o Live,
}

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

    /// Whether objects of these kinds are elsewhere.
    fn unknown(&self, kinds: &[Kind]) -> bool {
        !kinds.iter().all(|kind| self.live.listed.contains(kind))
            && !self.objects.iter().any(|object| kinds.contains(&object.kind()))
    }

    fn has(&self, kind: Kind, namespace: Option<&str>, name: &str) -> bool {
        let is_it = |own: &str, its: &str| its == name && namespace.is_none_or(|namespace| own == namespace);
        self.unknown(&[kind])
            || self.objects.iter().any(|object| {
                let meta = object.meta();
                object.kind() == kind && is_it(&meta.namespace, &meta.name)
            })
            || self.live.names.iter().any(|(its, namespace, name)| *its == kind && is_it(namespace, name))
    }

    fn serves(&self, host: &Host) -> bool {
        let is_service = |namespace: &str, name: &str| host.service() == Some((namespace, name));
        self.unknown(&[Kind::Service, Kind::ServiceEntry])
            || host.service().is_some_and(|(namespace, name)| {
                self.live.names.contains(&(Kind::Service, namespace.to_owned(), name.to_owned()))
            })
            || self.objects.iter().any(|object| match object {
                AnyObject::Service(service) => is_service(&service.meta.namespace, &service.meta.name),
                AnyObject::ServiceEntry(entry) => {
                    entry.spec.hosts.iter().any(|own| host.is_covered_by(own, &entry.meta.namespace))
                }
                _ => false,
            })
    }

    fn defines(&self, host: &Host) -> bool {
        self.unknown(&[Kind::DestinationRule])
            || self.objects.iter().any(|object| match object {
                AnyObject::DestinationRule(rule) => {
                    host.is_covered_by(&rule.spec.host, &rule.meta.namespace)
                        && rule.spec.subsets.iter().any(|subset| subset.name == host.subset)
                }
                _ => false,
            })
    }
}
