//! Generates messages and descriptors from `.proto` files.
//!
//! The files of Envoy and its imports come with the crate `envoy-types`, a dependency that is never compiled: Cargo
//! pins and verifies it, and `cargo metadata` returns its path. Istio's own messages are in `proto/`.

use std::collections::BTreeSet;
use std::error::Error;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use prost_types::{DescriptorProto, FieldDescriptorProto, FileDescriptorProto};
use protox::file::{ChainFileResolver, File, FileResolver, GoogleFileResolver};

type Result<T, E = Box<dyn Error>> = std::result::Result<T, E>;

fn main() -> Result<()> {
    for input in ["build.rs", "roots.txt", "described.txt", "proto", "Cargo.toml"] {
        println!("cargo::rerun-if-changed={input}");
    }
    let here = PathBuf::from(env("CARGO_MANIFEST_DIR")?);
    let out = PathBuf::from(env("OUT_DIR")?);

    let mut includes = vec![here.join("proto")];
    let published = envoy_types(&here)?.join("proto");
    includes.extend(folders(&published)?);
    // Unlike the others, this directory has its files one level deeper.
    includes.push(published.join("cel-spec/proto"));
    let described = listed(&here.join("described.txt"), &includes)?;
    let mut resolver = ChainFileResolver::new();
    resolver.add(Sources::new(includes)?);
    resolver.add(GoogleFileResolver::new());

    let roots = lines(&here.join("roots.txt"))?;
    let mut compiler = protox::Compiler::with_file_resolver(resolver);
    compiler.include_imports(true).include_source_info(false);
    compiler.open_files(&roots)?;
    let compiled = compiler.file_descriptor_set();
    compiler.open_files(described)?;
    fs::write(out.join("descriptors.bin"), compiler.encode_file_descriptor_set())?;

    prost_build::Config::new()
        // Ordered maps, so that equal messages have equal bytes; shared bytes, so that passing them on does not copy.
        .btree_map(["."])
        .bytes(["."])
        .enable_type_names()
        .type_name_domain(["."], "type.googleapis.com")
        .extern_path(".google.protobuf.Any", "crate::Any")
        .include_file("mod.rs")
        .compile_fds(compiled)?;
    Ok(())
}

/// The files named by a list, by include path. A name with a trailing slash stands for all files in a directory.
fn listed(list: &Path, includes: &[PathBuf]) -> Result<Vec<String>> {
    let mut files = Vec::new();
    for name in lines(list)? {
        if !name.ends_with('/') {
            files.push(name);
            continue;
        }
        for include in includes {
            let folder = include.join(&name);
            if folder.is_dir() {
                below(&folder, include, &mut files)?;
            }
        }
    }
    files.sort();
    files.dedup();
    Ok(files)
}

/// Adds the `.proto` files below a directory, relative to `include`.
fn below(folder: &Path, include: &Path, files: &mut Vec<String>) -> Result<()> {
    for entry in fs::read_dir(folder)? {
        let path = entry?.path();
        if path.is_dir() {
            below(&path, include, files)?;
        } else if path.extension().is_some_and(|extension| extension == "proto") {
            files.push(path.strip_prefix(include)?.to_string_lossy().into_owned());
        }
    }
    Ok(())
}

/// The lines of a list, without empty lines and comments.
fn lines(list: &Path) -> Result<Vec<String>> {
    let text = fs::read_to_string(list).map_err(|e| format!("{}: {e}", list.display()))?;
    let named = text.lines().filter(|line| !line.is_empty() && !line.starts_with('#'));
    Ok(named.map(str::to_owned).collect())
}

/// The path of the source of `envoy-types`. Prefers the local copy to the network.
fn envoy_types(here: &Path) -> Result<PathBuf> {
    let metadata = cargo_metadata(here, "--offline").or_else(|offline| {
        cargo_metadata(here, "--locked").map_err(|locked| format!("offline: {offline}\nlocked: {locked}"))
    })?;
    let metadata: serde_json::Value = serde_json::from_slice(&metadata)?;
    let packages = metadata["packages"].as_array().ok_or("cargo metadata lists no packages")?;
    let manifest = packages
        .iter()
        .find(|package| package["name"] == "envoy-types")
        .and_then(|package| package["manifest_path"].as_str())
        .ok_or("cargo metadata does not know envoy-types")?;
    Ok(Path::new(manifest).parent().ok_or("envoy-types has no folder")?.to_owned())
}

fn cargo_metadata(here: &Path, mode: &str) -> Result<Vec<u8>> {
    let output = Command::new(env("CARGO")?)
        .args(["metadata", "--format-version=1", mode, "--manifest-path"])
        .arg(here.join("Cargo.toml"))
        .output()?;
    if output.status.success() { Ok(output.stdout) } else { Err(String::from_utf8_lossy(&output.stderr).into()) }
}

fn env(name: &str) -> Result<String> {
    std::env::var(name).map_err(|e| format!("{name}: {e}").into())
}

fn folders(parent: &Path) -> Result<Vec<PathBuf>> {
    let mut folders = Vec::new();
    for entry in fs::read_dir(parent).map_err(|e| format!("{}: {e}", parent.display()))? {
        let path = entry?.path();
        if path.is_dir() {
            folders.push(path);
        }
    }
    folders.sort();
    Ok(folders)
}

/// Reads `.proto` files and makes relative type names absolute.
///
/// protoc resolves `config.core.v3.Address` among the packages that a file imports; protox among all loaded packages,
/// where a nearer `…config` may exist that has no `core`. Both resolve absolute names alike.
struct Sources {
    includes: Vec<PathBuf>,
    packages: BTreeSet<String>,
}

impl Sources {
    fn new(includes: Vec<PathBuf>) -> Result<Sources> {
        let mut packages = BTreeSet::from(["google.protobuf".to_owned()]);
        for include in &includes {
            collect_packages(include, &mut packages)?;
        }
        Ok(Sources { includes, packages })
    }

    /// The absolute form of `name` in `package`; unchanged if it is absolute or has no package.
    fn absolute(&self, package: &str, name: &str) -> String {
        let lower = |part: &&str| part.starts_with(|c: char| c.is_ascii_lowercase());
        let prefix: Vec<&str> = name.split('.').take_while(lower).collect();
        if prefix.is_empty() {
            return name.to_owned();
        }
        let prefix = prefix.join(".");
        let mut scope = package;
        loop {
            let dot = if scope.is_empty() { "" } else { "." };
            if self.packages.contains(&format!("{scope}{dot}{prefix}")) {
                return format!(".{scope}{dot}{name}");
            }
            if scope.is_empty() {
                return name.to_owned();
            }
            scope = scope.rsplit_once('.').map_or("", |(outer, _)| outer);
        }
    }

    fn file(&self, file: &mut FileDescriptorProto) {
        let package = file.package().to_owned();
        file.extension.iter_mut().for_each(|field| self.field(&package, field));
        file.message_type.iter_mut().for_each(|message| self.message(&package, message));
        for method in file.service.iter_mut().flat_map(|service| &mut service.method) {
            for name in [&mut method.input_type, &mut method.output_type].into_iter().flatten() {
                *name = self.absolute(&package, name);
            }
        }
    }

    fn message(&self, package: &str, message: &mut DescriptorProto) {
        message.nested_type.iter_mut().for_each(|nested| self.message(package, nested));
        message.field.iter_mut().chain(&mut message.extension).for_each(|field| self.field(package, field));
    }

    fn field(&self, package: &str, field: &mut FieldDescriptorProto) {
        for name in [&mut field.type_name, &mut field.extendee].into_iter().flatten() {
            *name = self.absolute(package, name);
        }
    }
}

impl FileResolver for Sources {
    fn open_file(&self, name: &str) -> std::result::Result<File, protox::Error> {
        let found = self.includes.iter().map(|include| include.join(name)).find(|path| path.is_file());
        let path = found.ok_or_else(|| protox::Error::file_not_found(name))?;
        let mut file = File::open(name, &path)?.file_descriptor_proto().clone();
        self.file(&mut file);
        Ok(File::from_file_descriptor_proto(file))
    }
}

fn collect_packages(folder: &Path, packages: &mut BTreeSet<String>) -> Result<()> {
    for entry in fs::read_dir(folder)? {
        let path = entry?.path();
        if path.is_dir() {
            collect_packages(&path, packages)?;
        } else if path.extension().is_some_and(|extension| extension == "proto") {
            let text = fs::read_to_string(&path)?;
            let package =
                text.lines().find_map(|line| line.trim().strip_prefix("package ")?.trim_end().strip_suffix(';'));
            packages.extend(package.map(|package| package.trim().to_owned()));
        }
    }
    Ok(())
}
