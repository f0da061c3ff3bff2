//! Converts VirtualServices that are bound to converted Gateways.

use std::collections::BTreeSet;
use std::sync::Arc;

use config::gateway_api::HttpRoute as KubeRoute;
use config::gateway_api::filter::{HttpFilterType, HttpRouteFilter, RequestRedirectFilter};
use config::gateway_api::http_route::HttpRouteRule;
use config::gateway_api::reference::ParentReference;
use config::istio::{HttpRoute, VirtualService};
use config::{AnyObject, FieldPath, Kind, Object, ObjectKey};
use model::service::ObjectId;
use traffic::virtual_service::EffectiveVirtualServices;

use crate::check;
use crate::connections;
use crate::context::Context;
use crate::gateway::Placed;
use crate::listener::{self, Carries, is_hostname};
use crate::order::{self, Ordered};
use crate::rule::{self, Rules};

/// The most hostnames, and the most rules, of a route.
const MAX_HOSTNAMES: usize = 16;
const MAX_RULES: usize = 16;
/// The most matches of a route.
const MAX_MATCHES: usize = 128;
/// The most parents of a route.
const MAX_PARENTS: usize = 32;

/// Converts all VirtualServices.
pub(crate) fn convert(cx: &mut Context<'_>, gateways: &[Placed]) {
    let all: Vec<Arc<Object<VirtualService>>> = cx.all::<VirtualService>().cloned().collect();
    for object in &all {
        let bound = bound(cx, object, gateways);
        if bound.is_empty() || object.spec.is_delegate() {
            continue;
        }
        report(cx, object);
        connections::convert(cx, object, &bound);
        if object.spec.http.is_empty() {
            continue;
        }
        let spec = effective(cx, object);
        let key = object.key();
        let source = Source {
            key: &key,
            namespace: &object.meta.namespace,
            name: &object.meta.name,
            hosts: &object.spec.hosts,
            rules: spec.iter().map(|(rule, at)| (rule, at.clone())).collect(),
        };
        source.convert(cx, &bound);
    }
}

/// The Gateways that a VirtualService is bound to. Reports those that are not there.
fn bound<'g>(cx: &mut Context<'_>, object: &Object<VirtualService>, gateways: &'g [Placed]) -> Vec<&'g Placed> {
    let key = object.key();
    let mut found: Vec<&Placed> = Vec::new();
    for (index, name) in object.spec.gateways.iter().enumerate() {
        let at = FieldPath::spec().field("gateways").index(index);
        if &**name == VirtualService::MESH {
            continue;
        }
        let full = VirtualService::full_gateway(name, &object.meta.namespace);
        let is_it = |placed: &&Placed| format!("{}/{}", placed.source.namespace, placed.source.name) == *full;
        match gateways.iter().find(is_it) {
            Some(placed) if placed.id.is_some() => found.push(placed),
            Some(_) => cx.lost(&key, at, format!("Gateway {full} is not converted"), "Keep the VirtualService for it"),
            None => {
                cx.lost(&key, at, format!("Gateway {full} is not among the files"), "Add it, and convert again");
            }
        }
    }
    if !found.is_empty() && object.spec.gateways.iter().any(|name| &**name == VirtualService::MESH) {
        let message = "sidecars use this VirtualService, too; routes of gateways do not apply to them";
        let at = FieldPath::spec().field("gateways");
        cx.note(&key, at, message, "Keep the VirtualService with `gateways: [mesh]`");
    }
    found
}

/// Reports parts of a VirtualService that routes do not have.
fn report(cx: &mut Context<'_>, object: &Object<VirtualService>) {
    let (key, spec) = (object.key(), &object.spec);
    if !spec.export_to.is_empty() && spec.export_to.iter().all(|name| &**name != "*") {
        let message = "a route has no list of namespaces whose proxies may use it";
        let hint = "Nothing, if its Gateway is in one of these namespaces";
        cx.note(&key, FieldPath::spec().field("exportTo"), message, hint);
    }
}

/// The rules of a VirtualService with their paths. Rules that delegate are replaced by those of the delegate.
fn effective(cx: &Context<'_>, object: &Object<VirtualService>) -> Vec<(HttpRoute, FieldPath)> {
    let http = FieldPath::spec().field("http");
    let own = |object: &Object<VirtualService>| {
        let rules = object.spec.http.iter().enumerate();
        rules.map(|(index, rule)| (rule.clone(), http.index(index))).collect::<Vec<_>>()
    };
    if object.spec.http.iter().all(|rule| rule.delegate.is_none()) {
        return own(object);
    }
    let is_needed = |one: &&AnyObject| one.kind() == Kind::VirtualService;
    let needed: Vec<AnyObject> = cx.objects().iter().filter(is_needed).cloned().collect();
    let world = check::world(&needed, &cx.options.mesh);
    let mut out = Vec::new();
    for (rule, at) in own(object) {
        if rule.delegate.is_none() {
            out.push((rule, at));
            continue;
        }
        // The rules of the delegate, as if this rule were the only one.
        let mut alone = object.clone();
        alone.spec.http = vec![rule.clone()];
        let mut fork = world.fork();
        let mut batch = world::Batch::new();
        batch.put(AnyObject::VirtualService(Arc::new(alone)));
        fork.commit(batch);
        let id = ObjectId { namespace: object.meta.namespace.clone(), name: object.meta.name.clone() };
        let merged = fork.engine().get::<EffectiveVirtualServices>(&id);
        match merged.as_deref().map(|merged| &merged.spec.http[..]) {
            Some([]) | None => out.push((rule, at)),
            Some(rules) => out.extend(rules.iter().map(|rule| (rule.clone(), at.field("delegate")))),
        }
    }
    out
}

/// An object whose rules become routes.
pub(crate) struct Source<'s> {
    pub(crate) key: &'s ObjectKey,
    /// The namespace of the routes.
    pub(crate) namespace: &'s Arc<str>,
    /// The name of the first route.
    pub(crate) name: &'s Arc<str>,
    pub(crate) hosts: &'s [Arc<str>],
    /// The rules with their paths.
    pub(crate) rules: Vec<(&'s HttpRoute, FieldPath)>,
}

/// The ports of Gateways at which the rules are equal.
struct Part<'g> {
    places: Vec<(&'g Placed, u16)>,
    rules: Vec<HttpRouteRule>,
}

impl Source<'_> {
    /// Adds routes for all ports of these Gateways.
    pub(crate) fn convert(&self, cx: &mut Context<'_>, gateways: &[&Placed]) {
        let mut parts: Vec<Part<'_>> = Vec::new();
        for placed in gateways {
            for port in placed.ports() {
                let of_port = |one: &&listener::Port| one.number == port && one.carries == Carries::Requests;
                let secure = placed.listeners.iter().filter(of_port).any(|one| one.secure);
                let rules = self.rules_at(cx, &placed.source, port, secure);
                match parts.iter_mut().find(|part| part.rules == rules) {
                    Some(part) => part.places.push((placed, port)),
                    None => parts.push(Part { places: vec![(placed, port)], rules }),
                }
            }
        }
        parts.retain(|part| !part.rules.is_empty());
        if parts.is_empty() {
            let message = "no rule is left for a gateway, so there is no HTTPRoute";
            cx.lost(self.key, FieldPath::root(), message, "See the other remarks about this object");
            return;
        }
        let hosts = self.hostnames(cx);
        let mut names = Names::of(self.name.clone());
        for part in &parts {
            let parents = self.parents(cx, part);
            for hostnames in &hosts {
                for rules in chunks(&part.rules) {
                    let route = KubeRoute {
                        parent_refs: parents.clone(),
                        hostnames: hostnames.clone(),
                        rules,
                        ..KubeRoute::default()
                    };
                    let name = names.take(cx, Kind::HttpRoute, self.namespace);
                    cx.add(self.key, Object::new(self.namespace.clone(), name, route));
                }
            }
        }
        if self.key.kind != Kind::VirtualService {
            cx.replaces(self.key.clone());
        }
    }

    fn rules_at(&self, cx: &mut Context<'_>, gateway: &ObjectId, port: u16, secure: bool) -> Vec<HttpRouteRule> {
        let kind = Kind::HttpRoute;
        let mut rules =
            Rules { cx: &mut *cx, object: self.key, kind, namespace: self.namespace, gateway, port, secure };
        let mut all: Vec<Ordered> = Vec::new();
        for (found, at) in &self.rules {
            let converted = rule::convert(&mut rules, found, at);
            all.extend(converted.into_iter().map(|rule| Ordered { rule, at: at.clone() }));
        }
        let mut out: Vec<HttpRouteRule> = Vec::new();
        for mut rule in order::keep(cx, self.key, all).into_iter().map(|ordered| ordered.rule) {
            // Names are unique.
            if out.iter().any(|other| other.name == rule.name) {
                rule.name = None;
            }
            out.push(rule);
        }
        out
    }

    /// The hostnames of routes, in groups. A route without any serves all hosts.
    fn hostnames(&self, cx: &mut Context<'_>) -> Vec<Vec<Arc<str>>> {
        let mut some: Vec<Arc<str>> = Vec::new();
        let mut all = false;
        for (index, host) in self.hosts.iter().enumerate() {
            match &**host {
                "*" => all = true,
                host if is_hostname(host) => some.push(host.to_ascii_lowercase().into()),
                host => {
                    let at = FieldPath::spec().field("hosts").index(index);
                    let hint = "Use a DNS name, or `*.` and a DNS name";
                    cx.lost(self.key, at, format!("{host} is no hostname of a route; it is left out"), hint);
                }
            }
        }
        let groups = some.chunks(MAX_HOSTNAMES).map(<[_]>::to_vec);
        all.then(Vec::new).into_iter().chain(groups).collect()
    }

    /// The parents of a part: whole Gateways if possible, else listeners.
    fn parents(&self, cx: &mut Context<'_>, part: &Part<'_>) -> Vec<ParentReference> {
        let mut out: Vec<ParentReference> = Vec::new();
        let mut seen: Vec<&ObjectId> = Vec::new();
        for (placed, _) in &part.places {
            let Some(id) = &placed.id else { continue };
            if seen.contains(&id) {
                continue;
            }
            seen.push(id);
            let whole = ParentReference {
                namespace: (id.namespace != *self.namespace).then(|| id.namespace.clone()),
                name: id.name.clone(),
                ..ParentReference::default()
            };
            let here = part.places.iter().filter(|(other, _)| other.source == placed.source);
            let ports: BTreeSet<u16> = here.map(|(_, port)| *port).collect();
            if ports == placed.ports() && !placed.redirects() {
                out.push(whole);
                continue;
            }
            let served = placed.serving().filter(|one| ports.contains(&one.number));
            out.extend(served.map(|one| ParentReference { section_name: Some(one.name.clone()), ..whole.clone() }));
        }
        if out.len() > MAX_PARENTS {
            let message = format!("a route has {MAX_PARENTS} parents at most, and needs {}", out.len());
            cx.lost(self.key, FieldPath::spec().field("gateways"), message, "Use listeners with wildcards");
        }
        out
    }
}

/// Names of routes: `NAME`, `NAME-2` and so on.
pub(crate) struct Names {
    base: Arc<str>,
    next: usize,
}

impl Names {
    pub(crate) fn of(base: Arc<str>) -> Names {
        Names { base, next: 1 }
    }

    /// The next name that no new route of the kind has.
    pub(crate) fn take(&mut self, cx: &Context<'_>, kind: Kind, namespace: &Arc<str>) -> Arc<str> {
        loop {
            let name: Arc<str> = match self.next {
                1 => self.base.clone(),
                number => format!("{}-{number}", self.base).into(),
            };
            self.next += 1;
            if !cx.is_taken(kind, &ObjectId { namespace: namespace.clone(), name: name.clone() }) {
                return name;
            }
        }
    }
}

/// The rules in groups that fit into one route.
fn chunks(rules: &[HttpRouteRule]) -> Vec<Vec<HttpRouteRule>> {
    let mut out: Vec<Vec<HttpRouteRule>> = Vec::new();
    let mut matches = 0;
    for rule in rules {
        match out.last_mut() {
            Some(last) if last.len() < MAX_RULES && matches + rule.matches.len() <= MAX_MATCHES => {
                matches += rule.matches.len();
                last.push(rule.clone());
            }
            _ => {
                matches = rule.matches.len();
                out.push(vec![rule.clone()]);
            }
        }
    }
    out
}

/// Adds the route that redirects the requests of these listeners to HTTPS.
pub(crate) fn redirect_to_https(cx: &mut Context<'_>, source: &ObjectKey, gateway: &ObjectId, sections: &[Arc<str>]) {
    let redirect =
        RequestRedirectFilter { scheme: Some("https".into()), status_code: 301, ..RequestRedirectFilter::default() };
    let filter = HttpRouteFilter {
        kind: HttpFilterType::RequestRedirect,
        request_redirect: Some(redirect),
        ..HttpRouteFilter::default()
    };
    let parent = |name: &Arc<str>| ParentReference {
        name: gateway.name.clone(),
        section_name: Some(name.clone()),
        ..ParentReference::default()
    };
    let route = KubeRoute {
        parent_refs: sections.iter().map(parent).collect(),
        rules: vec![HttpRouteRule { filters: vec![filter], ..HttpRouteRule::default() }],
        ..KubeRoute::default()
    };
    let base = format!("{}-to-https", listener::dns_label(&gateway.name)).into();
    let name = Names::of(base).take(cx, Kind::HttpRoute, &gateway.namespace);
    cx.add(source, Object::new(gateway.namespace.clone(), name, route));
}
