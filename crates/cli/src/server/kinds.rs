//! Kinds: lookup by name and URL paths of objects.

use anyhow::{Result, anyhow};

use super::request::encode;
use crate::failure::usage;

/// A kind in one API version.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(crate) struct Kind {
    pub(crate) group: String,
    pub(crate) version: String,
    /// The name in the `kind` field.
    pub(crate) kind: String,
    /// The name in URL paths.
    pub(crate) plural: String,
    pub(crate) singular: String,
    pub(crate) short_names: Vec<String>,
    pub(crate) categories: Vec<String>,
    pub(crate) namespaced: bool,
    pub(crate) verbs: Vec<String>,
}

impl Kind {
    /// `GROUP/VERSION`, or `VERSION` for the core group.
    pub(crate) fn api_version(&self) -> String {
        match self.group.as_str() {
            "" => self.version.clone(),
            group => format!("{group}/{}", self.version),
        }
    }

    /// The plural with the group: `virtualservices.networking.istio.io`.
    pub(crate) fn qualified(&self) -> String {
        join(&self.plural, &self.group)
    }

    /// An object as `-o name` prints it: `virtualservice.networking.istio.io/reviews`.
    pub(crate) fn named(&self, name: &str) -> String {
        let singular = match self.singular.as_str() {
            "" => self.kind.to_lowercase(),
            singular => singular.to_owned(),
        };
        format!("{}/{name}", join(&singular, &self.group))
    }

    /// Whether the server supports a verb.
    pub(crate) fn can(&self, verb: &str) -> bool {
        self.verbs.iter().any(|known| known == verb)
    }

    /// The path of all objects, or of those in a namespace.
    pub(crate) fn collection(&self, namespace: Option<&str>) -> String {
        let root = match self.group.as_str() {
            "" => format!("/api/{}", encode(&self.version)),
            group => format!("/apis/{}/{}", encode(group), encode(&self.version)),
        };
        match namespace {
            Some(namespace) if self.namespaced => {
                format!("{root}/namespaces/{}/{}", encode(namespace), encode(&self.plural))
            }
            _ => format!("{root}/{}", encode(&self.plural)),
        }
    }

    /// The path of an object.
    pub(crate) fn object(&self, namespace: &str, name: &str) -> String {
        format!("{}/{}", self.collection(Some(namespace)), encode(name))
    }

    /// Whether a lowercase word without group names this kind.
    fn is_named(&self, word: &str) -> bool {
        self.plural == word || self.has_other_name(word)
    }

    fn has_other_name(&self, word: &str) -> bool {
        self.singular == word || self.kind.to_lowercase() == word || self.short_names.iter().any(|name| name == word)
    }

    fn has_category(&self, word: &str) -> bool {
        self.categories.iter().any(|category| category == word)
    }
}

fn join(name: &str, group: &str) -> String {
    match group {
        "" => name.to_owned(),
        group => format!("{name}.{group}"),
    }
}

/// The kinds of a server, in its order of preference.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(crate) struct Catalog {
    /// Each kind in each version; the preferred version of a group comes first.
    pub(crate) kinds: Vec<Kind>,
}

impl Catalog {
    /// Each kind in its preferred version.
    pub(crate) fn preferred(&self) -> impl Iterator<Item = &Kind> {
        let is_first = move |(index, kind): &(usize, &Kind)| {
            let same = |other: &Kind| other.group == kind.group && other.plural == kind.plural;
            self.kinds.iter().position(same) == Some(*index)
        };
        self.kinds.iter().enumerate().filter(is_first).map(|(_, kind)| kind)
    }

    /// The kind of an object with this `apiVersion` and `kind`.
    pub(crate) fn of_object(&self, api_version: &str, kind: &str) -> Option<&Kind> {
        let (group, version) = api_version.split_once('/').unwrap_or(("", api_version));
        self.kinds.iter().find(|known| known.kind == kind && known.group == group && known.version == version)
    }

    /// The kind that a word names: `vs`, `VirtualService`, `virtualservices.networking.istio.io`,
    /// `virtualservices.v1.networking.istio.io`.
    pub(crate) fn one(&self, word: &str) -> Result<&Kind> {
        self.find(word).first().copied().ok_or_else(|| self.unknown(word))
    }

    /// The kinds that a comma-separated list of kinds and categories names.
    pub(crate) fn many(&self, words: &str) -> Result<Vec<&Kind>> {
        let mut found: Vec<&Kind> = Vec::new();
        for word in words.split(',').map(str::trim).filter(|word| !word.is_empty()) {
            let lower = word.to_lowercase();
            let mut kinds: Vec<&Kind> = self.find(word).into_iter().take(1).collect();
            if kinds.is_empty() {
                kinds = self.preferred().filter(|kind| kind.has_category(&lower)).collect();
            }
            if kinds.is_empty() {
                return Err(self.unknown(word));
            }
            for kind in kinds {
                if !found.contains(&kind) {
                    found.push(kind);
                }
            }
        }
        match found.is_empty() {
            true => Err(usage("the kind is missing; `kubectl api-resources` lists the kinds")),
            false => Ok(found),
        }
    }

    /// Other kinds that the word could name.
    pub(crate) fn also(&self, word: &str) -> Vec<&Kind> {
        self.find(word).into_iter().skip(1).collect()
    }

    /// All kinds that a word could name, in order of preference.
    fn find(&self, word: &str) -> Vec<&Kind> {
        let word = word.to_lowercase();
        let (name, rest) = word.split_once('.').unwrap_or((&word, ""));
        let named = |kind: &&Kind| rest.is_empty() || kind.group == rest;
        let by = |test: &dyn Fn(&Kind) -> bool| -> Vec<&Kind> {
            self.preferred().filter(|kind| test(kind)).filter(named).collect()
        };
        let mut found = by(&|kind| kind.plural == name);
        if found.is_empty() {
            found = by(&|kind| kind.has_other_name(name));
        }
        if found.is_empty() && !rest.is_empty() {
            let (version, group) = rest.split_once('.').unwrap_or((rest, ""));
            let exact = |kind: &&Kind| kind.is_named(name) && kind.group == group && kind.version == version;
            found = self.kinds.iter().filter(exact).collect();
        }
        found
    }

    fn unknown(&self, word: &str) -> anyhow::Error {
        let word = word.to_lowercase();
        let names =
            self.preferred().flat_map(|kind| [&kind.plural, &kind.singular].into_iter().chain(&kind.short_names));
        let hint = match config::nearest(&word, names) {
            Some(name) => format!("did you mean `{name}`?"),
            None => "`kubectl api-resources` lists the kinds".to_owned(),
        };
        anyhow!("the server doesn't have a resource type \"{word}\"\nhint: {hint}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn kind(group: &str, version: &str, kind: &str, plural: &str, short: &[&str], categories: &[&str]) -> Kind {
        Kind {
            group: group.into(),
            version: version.into(),
            kind: kind.into(),
            plural: plural.into(),
            singular: kind.to_lowercase(),
            short_names: short.iter().map(|s| (*s).to_owned()).collect(),
            categories: categories.iter().map(|s| (*s).to_owned()).collect(),
            namespaced: true,
            ..Kind::default()
        }
    }

    fn catalog() -> Catalog {
        Catalog {
            kinds: vec![
                kind("", "v1", "Service", "services", &["svc"], &["all"]),
                kind("networking.istio.io", "v1", "VirtualService", "virtualservices", &["vs"], &["istio-io", "all"]),
                kind("networking.istio.io", "v1", "Gateway", "gateways", &["gw"], &["istio-io"]),
                kind(
                    "networking.istio.io",
                    "v1beta1",
                    "VirtualService",
                    "virtualservices",
                    &["vs"],
                    &["istio-io", "all"],
                ),
                kind("gateway.networking.k8s.io", "v1", "Gateway", "gateways", &["gtw"], &["gateway-api"]),
            ],
        }
    }

    #[test]
    fn kinds_have_several_names() {
        let all = catalog();
        for word in [
            "vs",
            "virtualservice",
            "VirtualServices",
            "VirtualService",
            "vs.networking.istio.io",
            "virtualservices.v1.networking.istio.io",
        ] {
            let kind = all.one(word).unwrap();
            assert_eq!((kind.kind.as_str(), kind.version.as_str()), ("VirtualService", "v1"), "{word}");
        }
        assert_eq!(all.one("vs.v1beta1.networking.istio.io").unwrap().version, "v1beta1");
        assert_eq!(all.one("gateways").unwrap().group, "networking.istio.io");
        assert_eq!(all.also("gateway").len(), 1);
        assert_eq!(all.one("gateway.gateway.networking.k8s.io").unwrap().group, "gateway.networking.k8s.io");
        assert_eq!(all.of_object("networking.istio.io/v1beta1", "VirtualService").unwrap().version, "v1beta1");
        assert!(all.of_object("v1", "VirtualService").is_none());
    }

    #[test]
    fn lists_and_categories_are_expanded() {
        let all = catalog();
        let names = |words: &str| -> Vec<String> { all.many(words).unwrap().iter().map(|k| k.qualified()).collect() };
        assert_eq!(names("istio-io"), ["virtualservices.networking.istio.io", "gateways.networking.istio.io"]);
        assert_eq!(names("svc,all"), ["services", "virtualservices.networking.istio.io"]);
        assert!(all.many(",").is_err());
    }

    #[test]
    fn unknown_kinds_get_a_suggestion() {
        let error = catalog().one("virtualservise").unwrap_err().to_string();
        assert!(error.contains("did you mean `virtualservice`"), "{error}");
        let error = catalog().one("widgets").unwrap_err().to_string();
        assert!(error.contains("api-resources"), "{error}");
    }

    #[test]
    fn names_are_encoded_in_paths() {
        let kind = &catalog().kinds[1];
        assert_eq!(kind.object("a", "../x"), "/apis/networking.istio.io/v1/namespaces/a/virtualservices/..%2Fx");
        assert_eq!(kind.named("a"), "virtualservice.networking.istio.io/a");
    }
}
