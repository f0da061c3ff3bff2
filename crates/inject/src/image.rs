//! The images of the sidecar and its init container.

use config::mesh::ProxyConfig;
use serde_json::Value;

use crate::pod::annotation;
use crate::settings::Injector;

/// The name of the image, unless values name another.
const DEFAULT: &str = "proxyv2";
/// The annotation with the type of the image.
const IMAGE_TYPE: &str = "sidecar.istio.io/proxyImageType";
/// Types that the tag of an image ends with.
const TYPES: [&str; 2] = ["distroless", "debug"];

impl Injector {
    /// `HUB/IMAGE:TAG-TYPE` of the sidecar.
    pub(crate) fn proxy_image(&self, settings: &ProxyConfig, pod: &Value) -> String {
        let image_type = settings.image.as_ref().map(|image| &*image.image_type).unwrap_or_default();
        self.image("/global/proxy/image", image_type, pod)
    }

    /// The same for the init container. ProxyConfig does not select its type.
    pub(crate) fn init_image(&self, pod: &Value) -> String {
        self.image("/global/proxy_init/image", "", pod)
    }

    fn image(&self, name: &str, image_type: &str, pod: &Value) -> String {
        let name = match self.value(name) {
            "" => DEFAULT,
            name => name,
        };
        let tag = match self.values.pointer("/global/tag") {
            Some(Value::String(tag)) => tag.clone(),
            Some(Value::Null) | None => String::new(),
            Some(other) => other.to_string(),
        };
        let image_type = match image_type {
            "" => self.value("/global/variant"),
            image_type => image_type,
        };
        let image_type = annotation(pod, IMAGE_TYPE).unwrap_or(image_type);
        format!("{}/{name}:{}", self.value("/global/hub"), typed(&tag, image_type))
    }
}

/// The tag with this type instead of the one that it ends with.
fn typed(tag: &str, image_type: &str) -> String {
    if image_type.is_empty() {
        return tag.to_owned();
    }
    let ending = TYPES.iter().find_map(|known| tag.strip_suffix(known)?.strip_suffix('-'));
    let tag = ending.unwrap_or(tag);
    match image_type {
        "default" => tag.to_owned(),
        image_type => format!("{tag}-{image_type}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_type_replaces_that_of_the_tag() {
        assert_eq!(typed("1.30.0", ""), "1.30.0");
        assert_eq!(typed("1.30.0-distroless", ""), "1.30.0-distroless");
        assert_eq!(typed("1.30.0-distroless", "debug"), "1.30.0-debug");
        assert_eq!(typed("1.30.0-debug", "default"), "1.30.0");
        assert_eq!(typed("1.30.0-fips", "distroless"), "1.30.0-fips-distroless");
    }
}
