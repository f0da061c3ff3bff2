//! The data of debug pages. The world's thread collects it a part at a time, because thousands of proxies or objects would hold up
//! everything else. What changes between two parts may be shown in one of them only.

use config::ObjectKey;
use model::xds::{Resource, ResourceType};
use serde_json::{Value, json};
use status::Status;
use xds::{StreamId, StreamStatus};

use crate::clock::Clock;
use crate::config_dump::{Wanted, proxy_of};
use crate::core::Core;
use crate::world_handle::{Closed, WorldHandle};

/// The number of streams in a part.
const STREAMS: usize = 256;
/// The number of objects in a part.
const OBJECTS: usize = 1024;

/// The states of all streams, by id.
pub(crate) struct Streams {
    pub(crate) statuses: Vec<StreamStatus>,
    pub(crate) clock: Clock,
}

impl Streams {
    pub(crate) async fn gather(world: &WorldHandle) -> Result<Streams, Closed> {
        let all = |core: &mut Core| (core.hub.proxies().map(|(id, _)| id).collect(), core.started);
        let (mut ids, started): (Vec<StreamId>, _) = world.inspect(all).await?;
        ids.sort_unstable();
        let mut statuses = Vec::with_capacity(ids.len());
        for part in ids.chunks(STREAMS) {
            let part = part.to_vec();
            let of = |core: &mut Core| part.into_iter().filter_map(|id| core.hub.status(id)).collect::<Vec<_>>();
            statuses.extend(world.look(of).await?);
        }
        Ok(Streams { statuses, clock: Clock::new(started) })
    }
}

/// All objects with their statuses, as of the last count.
pub(crate) struct Objects(Vec<(ObjectKey, Option<Status>)>);

impl Objects {
    pub(crate) async fn gather(world: &WorldHandle) -> Result<Objects, Closed> {
        let mut all: Vec<(ObjectKey, Option<Status>)> = Vec::new();
        world.inspect(|_| ()).await?;
        while world.look(|core| core.tracker.has_observed()).await? {}
        loop {
            let last = all.last().map(|(key, _)| key.clone());
            let part = move |core: &mut Core| {
                let reports = core.tracker.planner.reports(last.as_ref()).take(OBJECTS);
                reports.map(|report| (report.key.clone(), report.status.cloned())).collect::<Vec<_>>()
            };
            let part = world.look(part).await?;
            if part.is_empty() {
                return Ok(Objects(all));
            }
            all.extend(part);
        }
    }

    /// `/debug/objectz`.
    pub(crate) fn into_json(self) -> Value {
        let object = |(key, status): (ObjectKey, Option<Status>)| {
            let status = status.as_ref().map_or(Value::Null, Status::to_json);
            json!({"kind": key.kind.name(), "namespace": &*key.namespace, "name": &*key.name, "status": status})
        };
        self.0.into_iter().map(object).collect()
    }
}

/// The resources of one proxy by type, still encoded.
pub(crate) struct ProxyResources(pub(crate) Vec<(ResourceType, Vec<Resource>)>);

impl ProxyResources {
    /// Collects the resources of a type, or of all. `None` if no such proxy is connected.
    pub(crate) async fn gather(
        world: &WorldHandle,
        wanted: Wanted,
        only: Option<ResourceType>,
    ) -> Result<Option<ProxyResources>, Closed> {
        let found = world.inspect(move |core| Some((proxy_of(core, &wanted)?.0, core.hub.types().clone()))).await?;
        let Some((stream, types)) = found else { return Ok(None) };
        let mut resources = Vec::new();
        for kind in types.iter().filter(|kind| only.is_none_or(|only| only == *kind)) {
            resources.push((kind, world.look(move |core| core.hub.resources(stream, kind)).await?));
        }
        Ok(Some(ProxyResources(resources)))
    }

    /// The resources of a type.
    pub(crate) fn of(&self, kind: ResourceType) -> &[Resource] {
        self.0.iter().find(|(one, _)| *one == kind).map_or(&[], |(_, resources)| resources)
    }
}

#[cfg(test)]
mod tests {
    use config::{Kind, Observed};
    use registry::inputs::MeshSettings;
    use world::{Batch, World};

    use super::*;
    use crate::core::tests::connecting;
    use crate::pace::Pace;

    fn observed(number: usize) -> (ObjectKey, Option<Observed>) {
        let key = ObjectKey::new(Kind::VirtualService, "shop", format!("v{number:05}"));
        let object = Observed {
            key: key.clone(),
            uid: "".into(),
            generation: 1,
            diagnostics: Vec::new(),
            assigned: false,
            parents: Vec::new(),
            status: None,
            original: None,
        };
        (key, Some(object))
    }

    #[tokio::test]
    async fn all_parts_are_gathered() {
        let mesh = MeshSettings::default();
        let world = WorldHandle::start(World::new(mesh, 1), xds::Limits::default(), Pace::UNLIMITED).unwrap();
        let mut connected = Vec::new();
        for number in 0..2 * STREAMS + 1 {
            let (message, proxy) = connecting(number);
            world.send(message).await.unwrap();
            connected.push(proxy);
        }
        let streams = Streams::gather(&world).await.unwrap();
        assert_eq!(streams.statuses.len(), connected.len());
        assert!(streams.statuses.is_sorted_by_key(|status| status.id));

        let all = 0..2 * OBJECTS;
        world.commit_observed(Batch::new(), all.clone().map(observed).collect()).await.unwrap();
        let names: Vec<Value> = all.map(|number| format!("v{number:05}").into()).collect();
        let Value::Array(objects) = Objects::gather(&world).await.unwrap().into_json() else { panic!("no list") };
        assert_eq!(objects.iter().map(|object| object["name"].clone()).collect::<Vec<_>>(), names);
    }
}
