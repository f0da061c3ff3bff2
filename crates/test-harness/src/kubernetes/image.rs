//! Container images, built from programs of this machine without a registry.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, BufWriter, Read, Seek, Write};
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::json;
use sha2::{Digest, Sha256};

use super::machine::program;
use super::tar::{Archive, Kind};
use crate::run::Result;

/// The contents of an image. Programs are added with the shared libraries that they need.
///
/// ```no_run
/// # fn made() -> test_harness::run::Result<test_harness::kubernetes::Image> {
/// let image = test_harness::kubernetes::Image::new("localhost/sleep:1")
///     .program("/bin/sleep".as_ref(), "/sleep")?
///     .command(&["/sleep", "infinity"]);
/// # Ok(image)
/// # }
/// ```
#[derive(Clone, Debug)]
pub struct Image {
    name: String,
    entries: BTreeMap<String, Entry>,
    entrypoint: Vec<String>,
    command: Vec<String>,
    environment: Vec<String>,
    user: String,
}

#[derive(Clone, Debug)]
enum Entry {
    Copy(PathBuf, u32),
    Text(Vec<u8>, u32),
    Directory(u32),
    Link(String),
}

/// The digests of a written image.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Written {
    /// The image ID, as the container runtime shows it: `sha256:…`.
    pub(super) id: String,
}

impl Image {
    /// Creates an empty image. The name has a host and a tag, as in pods: `localhost/NAME:TAG`.
    pub fn new(name: &str) -> Image {
        let mut entries = BTreeMap::new();
        entries.insert("tmp".to_owned(), Entry::Directory(0o1777));
        Image {
            name: name.to_owned(),
            entries,
            entrypoint: Vec::new(),
            command: Vec::new(),
            environment: vec!["PATH=/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin".to_owned()],
            user: String::new(),
        }
    }

    /// The name, as in pods.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Adds a program of this machine at this absolute path, and its shared libraries at their own paths.
    ///
    /// # Errors
    /// The program cannot be read, or a library is missing.
    pub fn program(self, source: &Path, at: &str) -> Result<Image> {
        let libraries = libraries(source)?;
        let image = self.copy(source, at)?;
        libraries.iter().try_fold(image, |image, (source, at)| image.copy(source, at))
    }

    /// Adds a program of the search path at `/usr/bin/NAME`, with its libraries.
    ///
    /// # Errors
    /// The program does not exist.
    pub fn tool(self, name: &str) -> Result<Image> {
        let source = program(name).ok_or_else(|| format!("`{name}` is not on the search path"))?;
        self.program(&source, &format!("/usr/bin/{name}"))
    }

    /// Adds a file of this machine at this absolute path, with its mode.
    ///
    /// # Errors
    /// The file cannot be read.
    pub fn copy(mut self, source: &Path, at: &str) -> Result<Image> {
        use std::os::unix::fs::PermissionsExt as _;
        let meta = std::fs::metadata(source).map_err(|error| format!("{}: {error}", source.display()))?;
        let mode = meta.permissions().mode() & 0o777;
        self.entries.insert(relative(at), Entry::Copy(source.to_owned(), mode));
        Ok(self)
    }

    /// Adds a file with this content at this absolute path.
    pub fn file(mut self, at: &str, bytes: &[u8], mode: u32) -> Image {
        self.entries.insert(relative(at), Entry::Text(bytes.to_owned(), mode));
        self
    }

    /// Adds a symbolic link at this absolute path.
    pub fn link(mut self, at: &str, to: &str) -> Image {
        self.entries.insert(relative(at), Entry::Link(to.to_owned()));
        self
    }

    /// Sets the entry point, which a pod overrides with `command`.
    pub fn entrypoint(mut self, words: &[&str]) -> Image {
        self.entrypoint = words.iter().map(|word| (*word).to_owned()).collect();
        self
    }

    /// Sets the default command or, with an entry point, the default arguments, which a pod overrides with `args`.
    pub fn command(mut self, words: &[&str]) -> Image {
        self.command = words.iter().map(|word| (*word).to_owned()).collect();
        self
    }

    /// Sets an environment variable.
    pub fn environment(mut self, name: &str, value: &str) -> Image {
        self.environment.push(format!("{name}={value}"));
        self
    }

    /// Sets the user ID of containers whose pod sets none; root by default.
    pub fn user(mut self, user: u32) -> Image {
        self.user = user.to_string();
        self
    }

    /// Writes the image as an archive that container runtimes can import.
    pub(super) fn write(&self, to: &Path) -> Result<Written> {
        let (mut layer, layer_digest) = self.layer()?;
        let config = self.config(&layer_digest).to_string();
        let manifest = json!([{"Config": "config.json", "RepoTags": [self.name], "Layers": ["layer.tar"]}]).to_string();
        let mut archive = Archive::new(BufWriter::new(File::create(to)?));
        for (name, text) in [("config.json", &config), ("manifest.json", &manifest)] {
            archive.add(name, 0o644, Kind::File(text.len() as u64), &mut text.as_bytes())?;
        }
        let size = layer.seek(io::SeekFrom::End(0))?;
        layer.rewind()?;
        archive.add("layer.tar", 0o644, Kind::File(size), &mut layer)?;
        archive.end()?;
        Ok(Written { id: digest(Sha256::digest(&config).as_slice()) })
    }

    /// Writes the files into an archive, and returns it with its digest.
    fn layer(&self) -> Result<(File, String)> {
        let out = Hashed { out: BufWriter::new(tempfile::tempfile()?), hash: Sha256::new() };
        let mut archive = Archive::new(out);
        for (name, entry) in &self.entries {
            match entry {
                Entry::Copy(source, mode) => {
                    let mut file = File::open(source).map_err(|error| format!("{}: {error}", source.display()))?;
                    let size = file.metadata()?.len();
                    archive.add(name, *mode, Kind::File(size), &mut file)?;
                }
                Entry::Text(bytes, mode) => {
                    archive.add(name, *mode, Kind::File(bytes.len() as u64), &mut &bytes[..])?;
                }
                Entry::Directory(mode) => archive.add(name, *mode, Kind::Directory, &mut io::empty())?,
                Entry::Link(to) => archive.add(name, 0o777, Kind::Link(to), &mut io::empty())?,
            }
        }
        let Hashed { out, hash } = archive.end()?;
        let file = out.into_inner().map_err(io::IntoInnerError::into_error)?;
        Ok((file, digest(hash.finalize().as_slice())))
    }

    fn config(&self, layer: &str) -> serde_json::Value {
        let architecture = match std::env::consts::ARCH {
            "x86_64" => "amd64",
            "aarch64" => "arm64",
            other => other,
        };
        json!({
            "architecture": architecture,
            "os": "linux",
            "config": {"Entrypoint": self.entrypoint, "Cmd": self.command, "Env": self.environment, "User": self.user, "WorkingDir": "/"},
            "rootfs": {"type": "layers", "diff_ids": [layer]},
        })
    }
}

/// A writer that computes the digest of what is written.
struct Hashed<W> {
    out: W,
    hash: Sha256,
}

impl<W: Write> Write for Hashed<W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let written = self.out.write(bytes)?;
        self.hash.update(&bytes[..written]);
        Ok(written)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.out.flush()
    }
}

fn digest(bytes: &[u8]) -> String {
    let hex: String = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
    format!("sha256:{hex}")
}

fn relative(path: &str) -> String {
    path.trim_start_matches('/').to_owned()
}

/// The shared libraries of a program: their actual paths, and the paths at which the loader searches for them.
fn libraries(program: &Path) -> Result<Vec<(PathBuf, String)>> {
    let mut magic = [0; 4];
    let read = File::open(program).and_then(|mut file| file.read_exact(&mut magic));
    read.map_err(|error| format!("{}: {error}", program.display()))?;
    if magic != *b"\x7fELF" {
        return Ok(Vec::new());
    }
    let output = Command::new("ldd").arg(program).output().map_err(|error| format!("ldd: {error}"))?;
    // `ldd` fails for a static program.
    let listed = if output.status.success() { output.stdout } else { Vec::new() };
    let listed = String::from_utf8_lossy(&listed).into_owned();
    if let Some(line) = listed.lines().find(|line| line.contains("not found")) {
        return Err(format!("{} needs a library that is not there: {}", program.display(), line.trim()).into());
    }
    // Lines are `NAME => PATH (ADDRESS)`, or `PATH (ADDRESS)` for the loader.
    let paths = listed.lines().filter_map(|line| line.split_whitespace().find(|word| word.starts_with('/')));
    Ok(paths.map(|path| (PathBuf::from(path), path.to_owned())).collect())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn equal_images_have_equal_digests() {
        let dir = tempfile::tempdir().unwrap();
        let image = |text: &str| Image::new("localhost/a:1").file("/a", text.as_bytes(), 0o644).command(&["/a"]);
        let write = |name: &str, text: &str| image(text).write(&dir.path().join(name)).unwrap();
        assert_eq!(write("one", "a"), write("two", "a"));
        assert_ne!(write("one", "a"), write("three", "b"));
    }

    #[test]
    fn a_program_is_added_with_its_libraries() {
        let image = Image::new("localhost/sh:1").tool("sh").unwrap();
        assert!(image.entries.contains_key("usr/bin/sh"));
        assert!(image.entries.keys().any(|name| name.contains("libc")), "{image:?}");
        Image::new("localhost/none:1").tool("no-such-program").unwrap_err();
    }
}
