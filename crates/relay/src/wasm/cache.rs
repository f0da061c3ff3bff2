//! The index of fetched modules.

use std::collections::HashMap;
use std::path::PathBuf;
use std::time::{Duration, Instant};

/// A module as a filter names it.
#[derive(Clone, Debug)]
pub(super) struct Key {
    /// The URL without tag and digest.
    pub(super) name: String,
    /// The URL.
    pub(super) url: String,
    /// The name of the extension configuration.
    pub(super) resource: String,
    /// The version of the WasmPlugin.
    pub(super) version: String,
    /// The URL has a digest, so its content never changes.
    pub(super) is_fixed: bool,
}

/// The modules that were fetched since the start.
#[derive(Default, Debug)]
pub(super) struct Cache {
    /// By name and checksum.
    modules: HashMap<(String, String), Entry>,
    /// The content that was fetched last, by URL.
    latest: HashMap<String, Latest>,
}

#[derive(Debug)]
struct Entry {
    path: PathBuf,
    used: Instant,
}

#[derive(Default, Debug)]
struct Latest {
    checksum: String,
    /// The versions of the WasmPlugins for which the content was fetched, by extension configuration.
    versions: HashMap<String, String>,
}

impl Cache {
    /// The file of a module. Without a checksum, finds what was fetched last for this URL and, unless it is ignored, for this version.
    pub(super) fn find(&mut self, key: &Key, checksum: &str, ignore_version: bool, now: Instant) -> Option<PathBuf> {
        let mut checksum = checksum.to_owned();
        if checksum.is_empty() {
            let latest = self.latest.get_mut(&key.url)?;
            let known = latest.versions.insert(key.resource.clone(), key.version.clone());
            if !ignore_version && known.as_ref() != Some(&key.version) {
                return None;
            }
            checksum.clone_from(&latest.checksum);
        }
        let entry = self.modules.get_mut(&(key.name.clone(), checksum.clone()))?;
        entry.used = now;
        let path = entry.path.clone();
        self.remember(key, &checksum);
        Some(path)
    }

    /// Adds a fetched module.
    pub(super) fn add(&mut self, key: &Key, checksum: String, path: PathBuf, now: Instant) {
        self.remember(key, &checksum);
        self.modules.insert((key.name.clone(), checksum), Entry { path, used: now });
    }

    fn remember(&mut self, key: &Key, checksum: &str) {
        if !key.is_fixed {
            let latest = self.latest.entry(key.url.clone()).or_default();
            checksum.clone_into(&mut latest.checksum);
            latest.versions.insert(key.resource.clone(), key.version.clone());
        }
    }

    /// Removes modules that were not used for some time. Returns their files.
    pub(super) fn expire(&mut self, expiry: Duration, now: Instant) -> Vec<PathBuf> {
        let is_old = |entry: &Entry| now.saturating_duration_since(entry.used) > expiry;
        let files: Vec<PathBuf> =
            self.modules.extract_if(|_, entry| is_old(entry)).map(|(_, entry)| entry.path).collect();
        let left: std::collections::HashSet<&String> = self.modules.keys().map(|(_, checksum)| checksum).collect();
        self.latest.retain(|_, latest| left.contains(&latest.checksum));
        files
    }

    /// The number of modules.
    pub(super) fn len(&self) -> usize {
        self.modules.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(url: &str, resource: &str, version: &str) -> Key {
        let [name, url, resource, version] =
            [url.split(':').next().unwrap_or(url), url, resource, version].map(str::to_owned);
        Key { name, url, resource, version, is_fixed: false }
    }

    #[test]
    fn a_module_is_found_by_checksum_and_by_what_was_fetched_last() {
        let (mut cache, start) = (Cache::default(), Instant::now());
        let find = |cache: &mut Cache, key: &Key, checksum, ignore| cache.find(key, checksum, ignore, start);
        let first = key("a:1", "r", "1");
        assert_eq!(find(&mut cache, &first, "", true), None);
        cache.add(&first, "s".to_owned(), "/s".into(), start);
        let found = Some(PathBuf::from("/s"));
        // With the checksum, another tag is found, too.
        for (asked, checksum, ignore) in [(&first, "", true), (&first, "", false), (&key("a:2", "r", "1"), "s", true)] {
            assert_eq!(find(&mut cache, asked, checksum, ignore), found, "{asked:?}");
        }
        // A new version of the plugin fetches again, unless versions are ignored.
        assert_eq!(find(&mut cache, &key("a:1", "r", "2"), "", false), None);
        assert_eq!(find(&mut cache, &key("a:1", "other", "2"), "", false), None);
        assert_eq!(find(&mut cache, &key("a:1", "r", "3"), "", true), found);
        assert_eq!(find(&mut cache, &key("a:1", "r", "3"), "wrong", true), None);
    }

    #[test]
    fn unused_modules_expire() {
        let (mut cache, start) = (Cache::default(), Instant::now());
        let (hour, old, used) = (Duration::from_secs(3600), key("a:1", "r", "1"), key("b:1", "r", "1"));
        cache.add(&old, "s".to_owned(), "/s".into(), start);
        cache.add(&used, "t".to_owned(), "/t".into(), start);
        assert!(cache.find(&used, "", true, start + hour).is_some());
        assert!(cache.expire(hour, start + hour).is_empty());
        assert_eq!(cache.expire(hour, start + 2 * hour), [PathBuf::from("/s")]);
        assert_eq!((cache.len(), cache.latest.len()), (1, 1));
        assert_eq!(cache.find(&old, "", true, start), None);
    }
}
