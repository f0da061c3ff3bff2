//! Lists a directory and reads the files that changed.

use std::collections::{BTreeMap, BTreeSet};
use std::io::{self, Read};
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use config::{ChangeSet, ParseOptions};

use crate::directory::Directory;
use crate::file_events::ScanScope;
use crate::reads::Reads;

/// Opening a pipe with this flag does not wait for a writer.
const O_NONBLOCK: i32 = rustix::fs::OFlags::NONBLOCK.bits() as i32;
/// The error of a link that refers to itself.
const ELOOP: i32 = rustix::io::Errno::LOOP.raw_os_error();
/// The maximum file size, in bytes.
const MAX_FILE_BYTES: u64 = 64 << 20;
/// The maximum number of files below a directory.
const MAX_FILES: usize = 100_000;
/// The maximum depth of nested directories.
const MAX_DEPTH: usize = 16;
/// The time in which a file must be read. Reads of network mounts can hang.
const READ_WITHIN: Duration = Duration::from_secs(5);

/// Size, times and inode of a file. The file is not read again while they are unchanged. The time of the last status change
/// is one of them, because programs can set the modification time.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) struct Stamp {
    bytes: u64,
    modified: (i64, i64),
    changed: (i64, i64),
    inode: Inode,
}

/// Device and inode of a file or directory.
pub(crate) type Inode = (u64, u64);

/// The content of a file, or the error of reading it.
pub(crate) struct Content {
    /// The path of the file.
    pub(crate) path: PathBuf,
    name: Arc<str>,
    stamp: Stamp,
    bytes: io::Result<Vec<u8>>,
}

/// A directory and the state of its files.
pub(crate) struct Reader {
    dir: PathBuf,
    options: ParseOptions,
    stamps: BTreeMap<Arc<str>, Stamp>,
    directory: Directory,
    /// Whether a file may have several names: then an event of one name may be of another one, too.
    linked: bool,
    reads: Reads,
}

/// Files of a directory.
#[derive(Default)]
pub(crate) struct Listed {
    /// The directory itself; `None` if it was not listed.
    pub(crate) root: Option<Inode>,
    /// Folders that cannot be listed, as name prefixes, with the reasons. The files below them are not known.
    pub(crate) unreadable: BTreeMap<Arc<str>, String>,
    /// Relative name, path and stamp.
    files: BTreeMap<Arc<str>, (PathBuf, Stamp)>,
    /// Known files that were found to be gone, if these are not all files.
    gone: Vec<Arc<str>>,
    /// Whether these are all files.
    complete: bool,
    linked: bool,
}

impl Reader {
    /// A reader that has read nothing yet.
    pub(crate) fn new(dir: &Path, options: ParseOptions) -> Reader {
        Reader {
            dir: dir.to_owned(),
            options,
            stamps: BTreeMap::new(),
            directory: Directory::default(),
            linked: true,
            reads: Reads::new(read_file, READ_WITHIN),
        }
    }

    /// The path of the directory.
    pub(crate) fn dir(&self) -> &Path {
        &self.dir
    }

    /// Lists the current files, or only the touched ones if nothing else can have changed.
    ///
    /// # Errors
    /// The directory itself cannot be read. Unreadable subdirectories are skipped.
    pub(crate) fn list(&mut self, scope: &ScanScope) -> io::Result<Listed> {
        if let ScanScope::Files(paths) = scope
            && let Some(touched) = self.list_touched(paths)
        {
            return Ok(touched);
        }
        let mut listed = Listed { complete: true, ..Listed::default() };
        let root = inode_of(&std::fs::metadata(&self.dir)?);
        listed.root = Some(root);
        list_into(&self.dir, "", &mut vec![root], &mut listed)?;
        self.linked = listed.linked;
        Ok(listed)
    }

    /// The files that were written, created or removed. `None` if files may have several names, or if there may be too many.
    fn list_touched(&self, paths: &BTreeSet<PathBuf>) -> Option<Listed> {
        if self.linked || self.stamps.len() + paths.len() > MAX_FILES {
            return None;
        }
        let mut listed = Listed::default();
        for path in paths {
            let name = path.strip_prefix(&self.dir).ok()?.to_str().filter(|name| !name.is_empty())?;
            let known = self.stamps.get_key_value(name).map(|(name, _)| name.clone());
            let is_plain = |file: &std::fs::Metadata| file.is_file() && file.nlink() == 1;
            match std::fs::symlink_metadata(path) {
                // Without its folder, more files are gone.
                Err(error) if error.kind() == io::ErrorKind::NotFound && path.parent()?.is_dir() => {
                    listed.gone.extend(known);
                }
                Ok(metadata) if is_plain(&metadata) => {
                    if is_listed(name) {
                        let name = known.unwrap_or_else(|| name.into());
                        listed.files.insert(name, (path.clone(), stamp_of(&metadata)));
                    }
                }
                _ => return None,
            }
        }
        Some(listed)
    }

    /// Reads the files that changed, except those that are being written.
    pub(crate) fn read(&mut self, listed: &Listed, writing: &BTreeSet<PathBuf>) -> Vec<Content> {
        let differ = listed
            .files
            .iter()
            .filter(|(name, (path, stamp))| self.stamps.get(*name) != Some(stamp) && !writing.contains(path));
        let differ: Vec<(Arc<str>, PathBuf, Stamp)> =
            differ.map(|(name, (path, stamp))| (name.clone(), path.clone(), *stamp)).collect();
        let read = self.reads.read(differ.iter().map(|(_, path, _)| path.clone()).collect());
        let contents = differ.into_iter().zip(read);
        contents.map(|((name, path, stamp), bytes)| Content { path, name, stamp, bytes }).collect()
    }

    /// Updates the directory with the read files, and removes files that no longer exist.
    pub(crate) fn apply(&mut self, listed: &Listed, contents: Vec<Content>) -> ChangeSet {
        let known = listed.complete.then(|| self.directory.names());
        // The files of a folder that cannot be listed may still exist.
        let missing =
            known.into_iter().flatten().filter(|name| !listed.files.contains_key(*name) && !listed.hides(name));
        let gone: Vec<Arc<str>> = missing.chain(&listed.gone).cloned().collect();
        for name in gone {
            self.stamps.remove(&name);
            self.directory.remove(&name);
        }
        for content in contents {
            match content.bytes {
                Ok(bytes) => {
                    self.stamps.insert(content.name.clone(), content.stamp);
                    self.directory.update(&content.name, &bytes, &self.options);
                }
                // Deleted between listing and reading: the next scan handles the deletion.
                Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                Err(error) => self.directory.unreadable(&content.name, &error.to_string()),
            }
        }
        if listed.complete {
            self.directory.set_unreadable_folders(&listed.unreadable);
        }
        self.directory.settle()
    }
}

impl Listed {
    /// Whether a file is in a folder that cannot be listed.
    fn hides(&self, name: &str) -> bool {
        self.unreadable.keys().any(|folder| name.starts_with(&**folder))
    }
}

/// Lists a folder. `above` are the inodes of the folder and those that contain it, by which loops of links are recognized.
fn list_into(dir: &Path, prefix: &str, above: &mut Vec<Inode>, listed: &mut Listed) -> io::Result<()> {
    for entry in std::fs::read_dir(dir)? {
        let entry = entry?;
        let file_name = entry.file_name();
        let Some(name) = file_name.to_str().filter(|n| !n.starts_with('.')) else {
            continue;
        };
        let path = entry.path();
        let name = format!("{prefix}{name}");
        let linked = entry.file_type().is_ok_and(|kind| kind.is_symlink());
        listed.linked |= linked;
        // Symbolic links are followed.
        let metadata = match std::fs::metadata(&path) {
            Ok(metadata) => metadata,
            Err(error) => {
                // Broken links, links to themselves, and files that were deleted meanwhile, are ignored. Others may contain objects.
                if error.kind() != io::ErrorKind::NotFound && error.raw_os_error() != Some(ELOOP) {
                    let folder = if is_config(&name) { name } else { format!("{name}/") };
                    listed.unreadable.insert(folder.into(), error.to_string());
                }
                continue;
            }
        };
        if metadata.is_dir() {
            let inode = inode_of(&metadata);
            if above.contains(&inode) {
                tracing::debug!(folder = %path.display(), "a link leads back to a folder that contains it");
                continue;
            }
            if above.len() > MAX_DEPTH {
                continue;
            }
            above.push(inode);
            let below = format!("{name}/");
            // An unreadable subdirectory must not remove the others.
            match list_into(&path, &below, above, listed) {
                Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                Err(error) => drop(listed.unreadable.insert(below.into(), error.to_string())),
                Ok(()) => {}
            }
            above.pop();
        } else if metadata.is_file() && is_config(&name) {
            if listed.files.len() >= MAX_FILES {
                return Err(io::Error::other(format!("more than {MAX_FILES} files")));
            }
            listed.linked |= metadata.nlink() > 1;
            listed.files.insert(name.into(), (path, stamp_of(&metadata)));
        }
    }
    Ok(())
}

/// Whether a listing has the file of this relative name.
fn is_listed(name: &str) -> bool {
    is_config(name) && name.split('/').count() <= MAX_DEPTH + 1 && !name.split('/').any(|part| part.starts_with('.'))
}

fn is_config(name: &str) -> bool {
    [".yaml", ".yml", ".json"].iter().any(|ending| name.ends_with(ending))
}

fn stamp_of(metadata: &std::fs::Metadata) -> Stamp {
    Stamp {
        bytes: metadata.len(),
        modified: (metadata.mtime(), metadata.mtime_nsec()),
        changed: (metadata.ctime(), metadata.ctime_nsec()),
        inode: inode_of(metadata),
    }
}

fn inode_of(metadata: &std::fs::Metadata) -> Inode {
    (metadata.dev(), metadata.ino())
}

fn read_file(path: &Path) -> io::Result<Vec<u8>> {
    // A pipe that replaced the file since it was listed must not block.
    let file = std::fs::OpenOptions::new().read(true).custom_flags(O_NONBLOCK).open(path)?;
    let metadata = file.metadata()?;
    if !metadata.is_file() {
        return Err(io::Error::other("it is not a regular file"));
    }
    // Without room, the first reads are of a few bytes each. One byte more, so that the end is found without growing.
    let mut bytes = Vec::with_capacity(usize::try_from(metadata.len().min(MAX_FILE_BYTES)).unwrap_or_default() + 1);
    file.take(MAX_FILE_BYTES + 1).read_to_end(&mut bytes)?;
    if bytes.len() as u64 > MAX_FILE_BYTES {
        return Err(io::Error::other(format!("larger than {} MiB; split it", MAX_FILE_BYTES >> 20)));
    }
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Lists after these files were written, and reads: the number of files, and whether they are all.
    fn scan(reader: &mut Reader, scope: &ScanScope) -> (usize, bool) {
        let listed = reader.list(scope).expect("the directory is listed");
        let contents = reader.read(&listed, &BTreeSet::new());
        reader.apply(&listed, contents);
        (listed.files.len(), listed.complete)
    }

    const ENTRY: &str = "apiVersion: networking.istio.io/v1\nkind: ServiceEntry\nmetadata: {name: NAME, namespace: default}\nspec:\n  hosts: [NAME.com]\n  ports: [{number: 80, name: http, protocol: HTTP}]\n  resolution: DNS\n";

    fn change_of(reader: &mut Reader) -> ChangeSet {
        let listed = reader.list(&ScanScope::All).expect("the directory is listed");
        let contents = reader.read(&listed, &BTreeSet::new());
        reader.apply(&listed, contents)
    }

    #[test]
    fn a_folder_that_cannot_be_listed_keeps_its_objects() {
        let dir = tempfile::tempdir().expect("a directory");
        let folder = dir.path().join("team");
        std::fs::create_dir(&folder).expect("a folder");
        std::fs::write(folder.join("a.yaml"), ENTRY.replace("NAME", "a")).expect("a file");
        std::fs::write(dir.path().join("b.yaml"), ENTRY.replace("NAME", "b")).expect("a file");
        let mut reader = Reader::new(dir.path(), ParseOptions::default());
        assert_eq!(change_of(&mut reader).upserts.len(), 2);
        let mut listed = reader.list(&ScanScope::All).expect("the directory is listed");
        // As if the folder could not be listed: root can list every folder.
        listed.files.retain(|name, _| !name.starts_with("team/"));
        listed.unreadable.insert("team/".into(), "permission denied".into());
        let change = reader.apply(&listed, Vec::new());
        assert!(change.deletes.is_empty());
        let reported = &change.diagnostics["team/"][0];
        assert_eq!(
            (reported.code, &*reported.message),
            ("unreadable-folder", "the folder cannot be read: permission denied")
        );
        let change = change_of(&mut reader);
        assert!(!change.has_objects() && change.diagnostics["team/"].is_empty(), "it is resolved");
        std::fs::remove_dir_all(&folder).expect("the folder is removed");
        assert_eq!(change_of(&mut reader).deletes.len(), 1);
    }

    #[test]
    fn only_regular_files_are_opened_and_loops_of_links_end() {
        let dir = tempfile::tempdir().expect("a directory");
        let at = |name: &str| dir.path().join(name);
        std::fs::create_dir(at("sub")).expect("a folder");
        std::fs::write(at("sub/a.yaml"), ENTRY.replace("NAME", "a")).expect("a file");
        for (target, link) in [("..", "sub/up"), (".", "same"), ("self.yaml", "self.yaml"), ("missing", "b.yaml")] {
            std::os::unix::fs::symlink(target, at(link)).expect("a link");
        }
        rustix::fs::mkfifoat(rustix::fs::CWD, at("pipe.yaml"), 0o600.into()).expect("a pipe");
        let socket = std::os::unix::net::UnixListener::bind(at("socket.yaml")).expect("a socket");
        let mut reader = Reader::new(dir.path(), ParseOptions::default());
        let change = change_of(&mut reader);
        assert_eq!((change.upserts.len(), change.diagnostics.len()), (1, 0), "{:?}", change.diagnostics);
        // A pipe that replaces a file after it was listed.
        assert_eq!(read_file(&at("pipe.yaml")).expect_err("no file").to_string(), "it is not a regular file");
        drop(socket);
    }

    #[test]
    fn another_content_of_the_same_size_and_time_is_noticed() {
        let dir = tempfile::tempdir().expect("a directory");
        let path = dir.path().join("a.yaml");
        std::fs::write(&path, ENTRY.replace("NAME", "a")).expect("a file");
        let time = std::fs::metadata(&path).expect("it exists").modified().expect("a time");
        let mut reader = Reader::new(dir.path(), ParseOptions::default());
        assert_eq!(change_of(&mut reader).upserts.len(), 1);
        std::fs::write(&path, ENTRY.replace("NAME", "b")).expect("a file");
        std::fs::File::options().write(true).open(&path).and_then(|file| file.set_modified(time)).expect("the time");
        let change = change_of(&mut reader);
        assert_eq!((change.upserts.len(), change.deletes.len()), (1, 1));
    }

    #[test]
    fn touched_files_with_one_name_are_read_without_listing_the_others() {
        let dir = tempfile::tempdir().expect("a directory");
        let at = |name: &str| dir.path().join(name);
        let touched = |names: &[&str]| ScanScope::Files(names.iter().map(|name| at(name)).collect());
        let write = |name: &str| std::fs::write(at(name), ENTRY.replace("NAME", &name[..1])).expect("a file");
        ["a.yaml", "b.yaml"].iter().for_each(|name| write(name));
        let mut reader = Reader::new(dir.path(), ParseOptions::default());
        assert_eq!(scan(&mut reader, &touched(&["a.yaml"])), (2, true), "nothing is known yet");
        assert_eq!(scan(&mut reader, &touched(&["a.yaml"])), (1, false));
        ["c.yaml", ".d.yaml", "e.txt"].iter().for_each(|name| write(name));
        let mut change = |scope: &ScanScope| {
            let listed = reader.list(scope).expect("the directory is listed");
            let contents = reader.read(&listed, &BTreeSet::new());
            let change = reader.apply(&listed, contents);
            (listed.complete, change.upserts.len(), change.deletes.len())
        };
        assert_eq!(
            change(&touched(&["c.yaml", ".d.yaml", "e.txt"])),
            (false, 1, 0),
            "only one has a name that is read"
        );
        std::fs::remove_file(at("b.yaml")).expect("the file is removed");
        assert_eq!(change(&touched(&["b.yaml", "f.yaml"])), (false, 0, 1), "the other was not known");
        assert_eq!(change(&ScanScope::All), (true, 0, 0));
        std::fs::create_dir(at("g")).expect("a folder");
        assert_eq!(change(&touched(&["g"])), (true, 0, 0), "a folder is listed");
        write("g/h.yaml");
        assert_eq!(change(&touched(&["g/h.yaml"])), (false, 1, 0));
        std::fs::remove_dir_all(at("g")).expect("the folder is removed");
        assert_eq!(change(&touched(&["g/h.yaml"])), (true, 0, 1), "there may have been more in the folder");
        std::fs::hard_link(at("a.yaml"), at("i.yaml")).expect("a link");
        assert_eq!(change(&touched(&["i.yaml"])), (true, 0, 0), "a.yaml defines the same object");
        assert!(change(&touched(&["i.yaml"])).0, "a.yaml changed, too");
        std::fs::remove_file(at("i.yaml")).expect("the link is removed");
        assert!(change(&ScanScope::All).0);
        assert!(!change(&touched(&["a.yaml"])).0);
        std::os::unix::fs::symlink("a.yaml", at("j.yaml")).expect("a link");
        assert!(change(&touched(&["j.yaml"])).0, "a link may lead to many files");
    }
}
