//! Extension configurations (ECDS) that patches add.

use std::sync::Arc;

use config::istio::envoy_filter::{ApplyTo, PatchOperation};
use flow::Reads;
use model::audience::ExtensionAudience;
use model::xds::Resource;
use protos::dynamic::encode_dynamic;

use crate::compile::chosen;
use crate::resources_of::name_of;

flow::rule! {
    /// The extension configurations of an audience, by name.
    pub Extensions: (Arc<ExtensionAudience>, Arc<str>) => Resource = "extension configurations", derive_extensions;
}

fn derive_extensions(cx: &Reads<'_>, (audience, name): &(Arc<ExtensionAudience>, Arc<str>)) -> Option<Resource> {
    let patches = chosen(cx, &audience.filters);
    let named = patches.iter().rev().find(|patch| {
        patch.apply_to == ApplyTo::ExtensionConfig
            && patch.operation == PatchOperation::Add
            && name_of(patch).as_deref() == Some(&**name)
    });
    let value = named?.value.as_ref()?;
    Some(Resource::new(name.clone(), encode_dynamic(value)))
}
