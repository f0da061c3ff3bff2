//! Objects of several sources and of unselected namespaces: random changes have the same effect as a look at all sources.
#![allow(clippy::unwrap_used)]

mod support;

use std::collections::{BTreeMap, BTreeSet};

use config::{AnyObject, ChangeSet, Kind, ObjectKey, ParseOptions, parse_documents};
use registry::inputs::{Sharing, Sidecars};
use registry::tables::Rank;
use support::Random;
use world::{Batch, World};

const RANKS: u16 = 3;
const NAMES: [&str; 3] = ["a", "b", "c"];
const NAMESPACES: [&str; 2] = ["shop", "other"];

fn parse(text: &str) -> AnyObject {
    let parsed = parse_documents(text.as_bytes(), "test", &ParseOptions::default());
    assert!(parsed.is_whole(), "{:#?}", parsed.diagnostics);
    parsed.objects.into_iter().next().unwrap()
}

/// A Sidecar whose label tells the versions apart.
fn sidecar(namespace: &str, name: &str, version: u8) -> AnyObject {
    parse(&format!(
        "{{apiVersion: networking.istio.io/v1, kind: Sidecar, metadata: {{name: {name}, namespace: {namespace}, \
         labels: {{version: v{version}}}}}, spec: {{workloadSelector: {{labels: {{app: {name}}}}}, egress: [{{hosts: ['*/*']}}]}}}}"
    ))
}

fn namespace(name: &str, label: u8) -> AnyObject {
    parse(&format!("{{apiVersion: v1, kind: Namespace, metadata: {{name: {name}, labels: {{in: l{label}}}}}}}"))
}

fn mesh(label: Option<u8>) -> AnyObject {
    let selectors =
        label.map_or(String::new(), |label| format!("discoverySelectors: [{{matchLabels: {{in: l{label}}}}}]"));
    let (config, diagnostics) = config::parse_mesh_config(selectors.as_bytes(), "mesh", &ParseOptions::default());
    assert!(diagnostics.is_empty(), "{diagnostics:?}");
    config::Object::new("", config::MeshConfig::NAME, config.unwrap()).into()
}

/// The objects of all sources, kept without the engine.
#[derive(Default)]
struct Model {
    sidecars: [BTreeMap<(&'static str, &'static str), u8>; RANKS as usize],
    namespaces: BTreeMap<&'static str, u8>,
    selector: Option<u8>,
}

impl Model {
    fn in_effect(&self) -> BTreeMap<(String, String), String> {
        let mut all = BTreeMap::new();
        for source in self.sidecars.iter().rev() {
            for ((namespace, name), version) in source {
                let selected = self.selector.is_none_or(|wanted| self.namespaces.get(namespace) == Some(&wanted));
                if selected {
                    all.insert((namespace.to_string(), name.to_string()), format!("v{version}"));
                }
            }
        }
        all
    }
}

fn in_effect(world: &World) -> BTreeMap<(String, String), String> {
    let all = world.engine().iter::<Sidecars>();
    all.map(|(id, object)| {
        let version = object.meta.labels.get("version").unwrap().to_string();
        ((id.namespace.to_string(), id.name.to_string()), version)
    })
    .collect()
}

/// A change of one source, and the same change of the model. Returns whether it replaces everything of the source.
fn edit(r: &mut Random, model: &mut Model) -> (Rank, ChangeSet, bool) {
    let mut change = ChangeSet::default();
    let rank = r.below(usize::from(RANKS));
    let (namespace_name, name) = (r.one(&NAMESPACES), r.one(&NAMES));
    let version = u8::try_from(r.below(3)).unwrap();
    match r.below(12) {
        0 => {
            model.selector = r.chance().then_some(version);
            change.upsert(mesh(model.selector));
            return (Rank(0), change, false);
        }
        1 | 2 => {
            model.namespaces.insert(namespace_name, version);
            change.upsert(namespace(namespace_name, version));
            return (Rank(0), change, false);
        }
        3 => {
            model.namespaces.remove(namespace_name);
            change.delete(ObjectKey::new(Kind::Namespace, "", namespace_name));
            return (Rank(0), change, false);
        }
        4 if rank > 0 => {
            model.sidecars[rank] = BTreeMap::from([((namespace_name, name), version)]);
            change.upsert(sidecar(namespace_name, name, version));
            return (Rank(u16::try_from(rank).unwrap()), change, true);
        }
        5..=7 => {
            model.sidecars[rank].remove(&(namespace_name, name));
            change.delete(ObjectKey::new(Kind::Sidecar, namespace_name, name));
        }
        _ => {
            model.sidecars[rank].insert((namespace_name, name), version);
            change.upsert(sidecar(namespace_name, name, version));
        }
    }
    (Rank(u16::try_from(rank).unwrap()), change, false)
}

#[test]
fn objects_in_effect_are_those_of_the_lowest_rank_in_selected_namespaces() {
    for seed in 0..40 {
        let mut r = Random::new(seed);
        let mut world = World::new(support::settings(Sharing::All), 1);
        let mut model = Model::default();
        let mut reported: BTreeMap<ObjectKey, AnyObject> = BTreeMap::new();
        for _ in 0..40 {
            let mut batch = Batch::new();
            // Several changes in one commit, some in batches that are merged.
            for _ in 0..=r.below(3) {
                let (rank, change, replaces) = edit(&mut r, &mut model);
                let mut later = Batch::new();
                match replaces {
                    true => later.replace(rank, "".into(), change),
                    false => later.apply(rank, change),
                }
                batch.merge(later);
            }
            let changes = world.commit(batch);
            assert_eq!(changes.panics, [""; 0]);
            assert_eq!(in_effect(&world), model.in_effect(), "seed {seed}");
            for key in &changes.objects.deletes {
                assert!(reported.remove(key).is_some(), "seed {seed}: {key} was not in effect");
            }
            for (key, object) in changes.objects.upserts {
                assert_ne!(
                    reported.insert(key, object.clone()),
                    Some(object),
                    "seed {seed}: an upsert without a change"
                );
            }
            let sidecars = reported.keys().filter(|key| key.kind == Kind::Sidecar).count();
            assert_eq!(sidecars, model.in_effect().len(), "seed {seed}");
        }
        world.check().unwrap();
    }
}

#[test]
fn a_source_with_a_lower_rank_overrides_others_and_the_next_one_takes_over() {
    let mut world = World::new(support::settings(Sharing::All), 1);
    let mut batch = Batch::new();
    batch.set_source(Rank(0), "first".into());
    batch.set_source(Rank(1), "second".into());
    let upsert = |version| ChangeSet::from_iter([sidecar("shop", "a", version)]);
    batch.apply(Rank(1), upsert(2));
    assert!(world.commit(batch).overridden.is_empty());
    let mut batch = Batch::new();
    batch.apply(Rank(0), upsert(1));
    let reported = world.commit(batch).overridden;
    assert_eq!(
        reported.iter().map(|d| &*d.message).collect::<BTreeSet<_>>(),
        BTreeSet::from(["first and second define this object; first takes precedence"])
    );
    let key = ("shop".to_owned(), "a".to_owned());
    assert_eq!(in_effect(&world)[&key], "v1");
    // An overridden object has no effect.
    let mut batch = Batch::new();
    batch.apply(Rank(1), upsert(0));
    assert!(world.commit(batch).objects.is_empty());
    let mut batch = Batch::new();
    batch.remove(&ObjectKey::new(Kind::Sidecar, "shop", "a"));
    world.commit(batch);
    assert_eq!(in_effect(&world)[&key], "v0");
}
