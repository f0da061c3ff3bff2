//! The given objects, and what a conversion has produced so far.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use config::core::Service;
use config::gateway_api::ReferenceGrant;
use config::gateway_api::reference::{ReferenceGrantFrom, ReferenceGrantTo};
use config::{AnyObject, Diagnostic, FieldPath, Kind, Object, ObjectKey, Resource, Segment, Severity, StringMap};
use model::service::ObjectId;

use crate::{CONVERTED, Conversion, NOT_EXPRESSIBLE, Options};

/// References across namespaces: the namespace of the target, and the kind and the namespace of the referring objects.
type Direction = (Arc<str>, Kind, Arc<str>);

/// A conversion in progress.
pub(crate) struct Context<'a> {
    objects: &'a [AnyObject],
    pub(crate) options: &'a Options,
    conversion: Conversion,
    /// The targets of references across namespaces.
    grants: BTreeMap<Direction, BTreeSet<(Kind, Arc<str>)>>,
}

impl<'a> Context<'a> {
    pub(crate) fn new(objects: &'a [AnyObject], options: &'a Options) -> Context<'a> {
        Context { objects, options, conversion: Conversion::default(), grants: BTreeMap::new() }
    }

    /// All given objects.
    pub(crate) fn objects(&self) -> &'a [AnyObject] {
        self.objects
    }

    /// The given objects of a kind.
    pub(crate) fn all<S: Resource>(&self) -> impl Iterator<Item = &'a Arc<Object<S>>> + use<'a, S> {
        self.objects.iter().filter_map(S::from_any)
    }

    /// A given Service.
    pub(crate) fn service(&self, id: &ObjectId) -> Option<&'a Service> {
        let mut all = self.all::<Service>();
        all.find(|one| one.meta.namespace == id.namespace && one.meta.name == id.name).map(|one| &one.spec)
    }

    /// The Services whose pods have all these labels, as far as their selectors tell.
    pub(crate) fn services_of(&self, labels: &StringMap) -> Vec<ObjectId> {
        if labels.is_empty() {
            return Vec::new();
        }
        let selects = |service: &&Arc<Object<Service>>| {
            labels.iter().all(|(key, value)| service.spec.selector.get(key) == Some(value))
        };
        let id = |service: &Arc<Object<Service>>| ObjectId {
            namespace: service.meta.namespace.clone(),
            name: service.meta.name.clone(),
        };
        self.all::<Service>().filter(selects).map(id).collect()
    }

    /// The namespace of the gateway proxies with these labels: that of the Service that the user names, or of the only
    /// given Service that selects them.
    pub(crate) fn namespace_of_proxies(&self, labels: &StringMap) -> Option<Arc<str>> {
        if let Some(service) = &self.options.service {
            return Some(service.namespace.clone());
        }
        match &self.services_of(labels)[..] {
            [only] => Some(only.namespace.clone()),
            _ => None,
        }
    }

    /// Adds a new object. One of the same key that exists already is not replaced.
    pub(crate) fn add<S: Resource>(&mut self, source: &ObjectKey, object: Object<S>) {
        let object = S::into_any(Arc::new(object));
        if let Some(given) = self.objects.iter().find(|given| given.key() == object.key()) {
            if given.spec_json() == object.spec_json() {
                let message = format!("{} exists already", object.key());
                return self.note(source, FieldPath::root(), message, "");
            }
            let message = format!("{} exists already, with another content or purpose", object.key());
            self.lost(source, FieldPath::root(), message, "Rename one of them, and convert again");
            return;
        }
        self.conversion.objects.push(object);
    }

    /// The new objects of a kind have this name already.
    pub(crate) fn is_taken(&self, kind: Kind, id: &ObjectId) -> bool {
        let key = ObjectKey::new(kind, id.namespace.clone(), id.name.clone());
        self.conversion.objects.iter().any(|object| object.key() == key)
    }

    /// Records that the new objects replace this one.
    pub(crate) fn replaces(&mut self, key: ObjectKey) {
        self.conversion.replaced.push(key);
    }

    /// Records that an object of one namespace refers to another one. Nothing is needed within a namespace.
    pub(crate) fn refer(&mut self, from: Kind, namespace: &Arc<str>, to: Kind, target: &ObjectId) {
        if *namespace != target.namespace {
            let key = (target.namespace.clone(), from, namespace.clone());
            self.grants.entry(key).or_default().insert((to, target.name.clone()));
        }
    }

    /// Reports something that cannot be expressed.
    pub(crate) fn lost(&mut self, object: &ObjectKey, path: FieldPath, message: impl Into<String>, hint: &str) {
        self.remark(object, path, Severity::Warning, NOT_EXPRESSIBLE, message.into(), hint);
    }

    /// Reports something that users should know.
    pub(crate) fn note(&mut self, object: &ObjectKey, path: FieldPath, message: impl Into<String>, hint: &str) {
        self.remark(object, path, Severity::Info, CONVERTED, message.into(), hint);
    }

    fn remark(
        &mut self,
        object: &ObjectKey,
        path: FieldPath,
        severity: Severity,
        code: &'static str,
        message: String,
        hint: &str,
    ) {
        let path = within(object, &path);
        let given = self.objects.iter().find(|given| given.key() == *object);
        let origin = given.and_then(|given| given.meta().origin.as_ref());
        let remark = Diagnostic {
            file: origin.map(|origin| origin.file.clone()),
            line: origin.map_or(0, |origin| origin.line),
            severity,
            hint: (!hint.is_empty()).then(|| hint.to_owned()),
            ..Diagnostic::warning(object.clone(), code, path, message, "")
        };
        // A rule is converted for each port.
        if !self.conversion.remarks.contains(&remark) {
            self.conversion.remarks.push(remark);
        }
    }

    /// The result, with the ReferenceGrants.
    pub(crate) fn finish(mut self) -> Conversion {
        for ((namespace, from, of), targets) in &self.grants {
            let group = |kind: Kind| kind.group().into();
            let to = targets.iter().map(|(kind, name)| ReferenceGrantTo {
                group: group(*kind),
                kind: kind.name().into(),
                name: Some(name.clone()),
            });
            let to: Vec<ReferenceGrantTo> = to.collect();
            for (index, part) in to.chunks(16).enumerate() {
                let suffix = if index == 0 { String::new() } else { format!("-{}", index + 1) };
                let name = format!("{}-of-{of}{suffix}", from.name().to_lowercase());
                let from = ReferenceGrantFrom { group: group(*from), kind: from.name().into(), namespace: of.clone() };
                let grant = ReferenceGrant { from: vec![from], to: part.to_vec() };
                let object = ReferenceGrant::into_any(Arc::new(Object::new(namespace.clone(), name, grant)));
                self.conversion.objects.push(object);
            }
        }
        self.conversion
    }
}

/// The part of a path that the object has: an Ingress has no conditions of a VirtualService, nor has a rule that delegates.
fn within(object: &ObjectKey, path: &FieldPath) -> FieldPath {
    let name = |segment: &Segment| match segment {
        Segment::Field(name) => name.to_string(),
        Segment::Index(_) | Segment::Key(_) => String::new(),
    };
    let segments = path.segments();
    let foreign = segments.iter().position(|segment| ["match", "route"].contains(&&*name(segment)));
    let delegate = segments.iter().position(|segment| name(segment) == "delegate").map(|at| at + 1);
    let end = if object.kind == Kind::Ingress { foreign } else { delegate };
    let kept = segments.iter().take(end.unwrap_or(segments.len()));
    kept.fold(FieldPath::root(), |path, segment| match segment {
        Segment::Field(name) => path.field(name.clone()),
        Segment::Index(index) => path.index(*index),
        Segment::Key(key) => path.key(key.clone()),
    })
}
