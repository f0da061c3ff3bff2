//! Addresses for hosts of ServiceEntries.

use config::{AnyObject, MeshConfig, ParseOptions, read_object};
use serde_json::Value;
use status::controllers::{Addresses, Controller as _, Entry, Ranges, Write};

use super::{Driver, Watched, id};

pub(super) struct AddressDriver(Addresses);

impl AddressDriver {
    pub(super) fn new(ranges: Ranges) -> AddressDriver {
        AddressDriver(Addresses::new(ranges))
    }
}

impl Driver for AddressDriver {
    fn watched(&self) -> Vec<Watched> {
        vec![Watched::all("networking.istio.io", "ServiceEntry", "serviceentries")]
    }

    fn see(&mut self, _: usize, object: &Value, there: bool) {
        let (namespace, name) = id(object);
        let read = || match read_object(object, &ParseOptions::default()).object {
            Some(AnyObject::ServiceEntry(entry)) => Some(Entry::of(&entry.meta, &entry.spec, object.get("status"))),
            // One that is not valid has no effect, and needs no address.
            _ => None,
        };
        self.0.entry(namespace, name, there.then(read).flatten());
    }

    fn mesh(&mut self, _: &MeshConfig) {}

    fn restart(&mut self) {
        self.0.restart();
    }

    fn plan(&mut self) -> Vec<Write> {
        self.0.plan()
    }
}
