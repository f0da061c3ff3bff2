//! The objects of a server to which objects of files may refer.

use std::collections::BTreeSet;

use anyhow::Result;
use config::schema::definitions;
use config::{AnyObject, Kind, ParseOptions, read_object};
use serde_json::Value as Json;

use crate::failure;
use crate::io::Io;
use crate::server::{self, Catalog, Request, Server};

/// Kinds of which the names suffice. Secrets are not read.
const BY_NAME: [Kind; 4] = [Kind::Gateway, Kind::VirtualService, Kind::Service, Kind::Secret];
/// Kinds that are read.
const WHOLE: [Kind; 2] = [Kind::ServiceEntry, Kind::DestinationRule];

/// The objects of a server.
#[derive(Default)]
pub(super) struct Live {
    /// The kinds of which all objects are known.
    pub(super) listed: BTreeSet<Kind>,
    /// Kind, namespace and name.
    pub(super) names: BTreeSet<(Kind, String, String)>,
    pub(super) objects: Vec<AnyObject>,
}

impl Live {
    /// Lists the objects of a server. A kind that cannot be listed gives a warning.
    pub(super) async fn read(server: &Server, io: &mut Io) -> Result<Live> {
        let catalog = server.catalog().await?;
        let mut live = Live::default();
        for kind in BY_NAME.into_iter().chain(WHOLE) {
            match list(server, &catalog, kind).await {
                Ok(objects) => live.add(kind, &objects),
                Err(error) => io.warn(format!(
                    "references to objects of the kind {kind} are checked among the files only: {}",
                    failure::describe(&error)
                )),
            }
        }
        Ok(live)
    }

    fn add(&mut self, kind: Kind, objects: &[Json]) {
        self.listed.insert(kind);
        let text = |object: &Json, field: &str| object["metadata"][field].as_str().unwrap_or_default().to_owned();
        self.names.extend(objects.iter().map(|object| (kind, text(object, "namespace"), text(object, "name"))));
        if WHOLE.contains(&kind) {
            let options = ParseOptions { admitted: true, ..ParseOptions::default() }.degrading();
            self.objects.extend(objects.iter().filter_map(|object| read_object(object, &options).object));
        }
    }
}

/// The objects of a kind. A server that does not know the kind has none.
async fn list(server: &Server, catalog: &Catalog, kind: Kind) -> Result<Vec<Json>> {
    let known = definitions().iter().find(|definition| definition.mesh == Some(kind));
    let is_it = |found: &&server::Kind| known.is_some_and(|kind| kind.group == found.group && kind.kind == found.kind);
    let Some(found) = catalog.preferred().find(is_it) else { return Ok(Vec::new()) };
    let request = Request::get(found.collection(None));
    let request = if BY_NAME.contains(&kind) { request.metadata_only() } else { request };
    Ok(server::opened(server.list(request).await?, found))
}
