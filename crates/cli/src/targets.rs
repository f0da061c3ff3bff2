//! Selection of objects: `KIND NAME…`, `KIND/NAME…`, `KIND -l SELECTOR`, `-f FILE`.

use anyhow::{Result, anyhow, ensure};
use clap::{Arg, ArgAction, ArgMatches, Command};
use serde_json::Value as Json;

use crate::failure::{StatusError, usage};
use crate::flags::{flag, option};
use crate::io::Io;
use crate::manifests::{self, Manifest};
use crate::server::{Catalog, Kind, Request, Server};

/// A selected object.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Target {
    pub(crate) kind: Kind,
    /// Empty for cluster-scoped kinds.
    pub(crate) namespace: String,
    pub(crate) name: String,
}

impl Target {
    /// The URL path.
    pub(crate) fn path(&self) -> String {
        self.kind.object(&self.namespace, &self.name)
    }

    /// `KIND.GROUP/NAME`.
    pub(crate) fn label(&self) -> String {
        self.kind.named(&self.name)
    }

    /// Reads it from the server.
    pub(crate) async fn get(&self, server: &Server) -> Result<Json> {
        server.get(&self.path()).await
    }

    /// Reads it from the server; none if it does not exist.
    pub(crate) async fn get_if_exists(&self, server: &Server) -> Result<Option<Json>> {
        match self.get(server).await {
            Ok(object) => Ok(Some(object)),
            Err(error) if StatusError::is_not_found(&error) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// The object of this kind in an item of a list.
    pub(crate) fn of_item(kind: &Kind, item: &Json) -> Target {
        let text = |field: &str| item["metadata"][field].as_str().unwrap_or_default().to_owned();
        Target { kind: kind.clone(), namespace: text("namespace"), name: text("name") }
    }
}

/// Adds the words, `-f`, `-R`, `-l` and `--all`.
pub(crate) fn arguments(command: Command) -> Command {
    selectors(words(manifests::arguments(command, false)))
        .arg(flag("all", "Select all objects of the kind in the namespace"))
}

/// Adds `KIND NAME…`.
pub(crate) fn words(command: Command) -> Command {
    command.arg(
        Arg::new("words")
            .value_name("KIND [NAME…] | KIND/NAME…")
            .action(ArgAction::Append)
            .num_args(0..)
            .help("Kind and names of objects"),
    )
}

/// Adds `-l`, `--field-selector` and `-A`.
pub(crate) fn selectors(command: Command) -> Command {
    command
        .arg(option("selector", "LABELS", "Select by labels: `a=b,c!=d,e in (f,g),h,!i`").short('l'))
        .arg(option("field-selector", "FIELDS", "Select by fields: `metadata.name=a`"))
        .arg(flag("all-namespaces", "Select in all namespaces").short('A'))
}

/// The positional arguments.
pub(crate) fn words_of(matches: &ArgMatches) -> Vec<String> {
    matches.get_many::<String>("words").into_iter().flatten().cloned().collect()
}

/// Kinds with the given names; no names select all objects.
pub(crate) fn kinds(words: &[String], catalog: &Catalog, io: &mut Io) -> Result<Vec<(Kind, Vec<String>)>> {
    let Some(first) = words.first() else {
        return Err(usage("the kind is missing; `kubectl api-resources` lists the kinds"));
    };
    let mut found: Vec<(Kind, Vec<String>)> = Vec::new();
    if first.contains('/') {
        for word in words {
            let (kind, name) = word
                .split_once('/')
                .filter(|(kind, name)| !kind.is_empty() && !name.is_empty() && !name.contains('/'))
                .ok_or_else(|| usage(format!("`{word}`: expected KIND/NAME, as in the first argument")))?;
            let kind = one(kind, catalog, io)?;
            match found.iter_mut().find(|(known, _)| *known == kind) {
                Some((_, names)) => names.push(name.to_owned()),
                None => found.push((kind, vec![name.to_owned()])),
            }
        }
        return Ok(found);
    }
    let names = &words[1..];
    if let Some(word) = names.iter().find(|name| name.contains('/')) {
        return Err(usage(format!("`{word}`: expected a name after the kind")));
    }
    for kind in catalog.many(first)? {
        found.push((kind.clone(), names.to_vec()));
    }
    if found.len() == 1 {
        warn_if_ambiguous(first, catalog, io);
    }
    Ok(found)
}

/// The kind that a word names. Warns if it could name another one.
pub(crate) fn one(word: &str, catalog: &Catalog, io: &mut Io) -> Result<Kind> {
    let kind = catalog.one(word)?.clone();
    warn_if_ambiguous(word, catalog, io);
    Ok(kind)
}

fn warn_if_ambiguous(word: &str, catalog: &Catalog, io: &mut Io) {
    let Ok(kind) = catalog.one(word) else { return };
    // Core kinds always take precedence, as in kubectl.
    if let (false, Some(other)) = (kind.group.is_empty(), catalog.also(word).first()) {
        io.warn(format!("`{word}` is ambiguous: using {}, not {}", kind.qualified(), other.qualified()));
    }
}

/// Objects of one kind that the command line selects.
pub(crate) struct Selection {
    pub(crate) kind: Kind,
    /// None selects all namespaces.
    pub(crate) namespace: Option<String>,
    /// Empty selects all objects that match the selectors.
    pub(crate) names: Vec<String>,
}

impl Selection {
    /// A list request with the selectors of the command line.
    pub(crate) fn list(&self, matches: &ArgMatches) -> Request {
        let text = |name| matches.get_one::<String>(name).cloned();
        Request::get(self.kind.collection(self.namespace.as_deref()))
            .maybe("labelSelector", text("selector"))
            .maybe("fieldSelector", text("field-selector"))
    }

    /// The selected objects. Lists them on the server if there are no names.
    pub(crate) async fn targets(self, matches: &ArgMatches, server: &Server) -> Result<Vec<Target>> {
        if self.names.is_empty() {
            let list = server.list(self.list(matches).metadata_only()).await?;
            let items = list["items"].as_array().into_iter().flatten();
            return Ok(items.map(|item| Target::of_item(&self.kind, item)).collect());
        }
        let namespace = self.namespace.filter(|_| self.kind.namespaced).unwrap_or_default();
        let target = |name| Target { kind: self.kind.clone(), namespace: namespace.clone(), name };
        Ok(self.names.into_iter().map(target).collect())
    }
}

/// Reads the selection from the command line and files.
pub(crate) fn selections(
    matches: &ArgMatches,
    server: &Server,
    catalog: &Catalog,
    io: &mut Io,
) -> Result<Vec<Selection>> {
    let words = words_of(matches);
    if matches.contains_id("filename") {
        ensure!(words.is_empty(), usage("-f cannot be combined with names"));
        let of_file = |manifest: &Manifest| {
            let target = of_manifest(manifest, server, catalog)?;
            Ok(Selection { kind: target.kind, namespace: Some(target.namespace), names: vec![target.name] })
        };
        return manifests::read(matches, io)?.iter().map(of_file).collect();
    }
    let everywhere = matches.get_flag("all-namespaces");
    let mut selections = Vec::new();
    for (kind, names) in kinds(&words, catalog, io)? {
        ensure!(names.is_empty() || !is_selecting(matches), usage("names cannot be combined with a selector"));
        ensure!(names.is_empty() || !everywhere, usage("names cannot be combined with -A: use -n"));
        let namespace = (!everywhere).then(|| server.namespace.clone());
        selections.push(Selection { kind, namespace, names });
    }
    Ok(selections)
}

/// Whether labels, fields or `--all` select objects.
fn is_selecting(matches: &ArgMatches) -> bool {
    let all = matches.try_get_one::<bool>("all").ok().flatten();
    matches.contains_id("selector") || matches.contains_id("field-selector") || all == Some(&true)
}

/// All objects that the command line selects. A kind without names needs `-l`, `--field-selector` or `--all`.
pub(crate) async fn all(matches: &ArgMatches, server: &Server, catalog: &Catalog, io: &mut Io) -> Result<Vec<Target>> {
    let mut targets = Vec::new();
    for one in selections(matches, server, catalog, io)? {
        ensure!(
            !one.names.is_empty() || is_selecting(matches),
            usage(format!("no {} selected: give names, -l LABELS or --all", one.kind.plural))
        );
        targets.extend(one.targets(matches, server).await?);
    }
    Ok(targets)
}

/// The object of this kind and name in the namespace of the command line.
pub(crate) fn of_name(kind: &Kind, name: String, server: &Server) -> Target {
    Target {
        kind: kind.clone(),
        namespace: if kind.namespaced { server.namespace.clone() } else { String::new() },
        name,
    }
}

/// The object of a file.
pub(crate) fn of_manifest(manifest: &Manifest, server: &Server, catalog: &Catalog) -> Result<Target> {
    let kind = kind_of(manifest, catalog)?;
    Ok(Target { namespace: namespace_of(manifest, &kind, server)?, name: manifest.name().to_owned(), kind })
}

/// Discovers the kinds again if that of a file's object is unknown: an earlier object among the files may have defined it.
pub(crate) async fn discover(manifest: &Manifest, server: &Server, catalog: &mut Catalog) -> Result<()> {
    if kind_of(manifest, catalog).is_err() {
        *catalog = server.catalog().await?;
    }
    Ok(())
}

/// The kind of a file's object.
fn kind_of(manifest: &Manifest, catalog: &Catalog) -> Result<Kind> {
    let (api_version, kind) = (manifest.api_version(), manifest.kind());
    catalog.of_object(api_version, kind).cloned().ok_or_else(|| {
        let other = catalog.kinds.iter().find(|known| known.kind == kind);
        let hint = match other {
            Some(other) => format!("\nhint: it serves {kind} in {}", other.api_version()),
            None => String::new(),
        };
        anyhow!("{}: the server does not serve kind {kind} in {api_version}{hint}", manifest.place())
    })
}

/// The namespace of a file's object: its own, or that of the command line.
fn namespace_of(manifest: &Manifest, kind: &Kind, server: &Server) -> Result<String> {
    match manifest.namespace() {
        _ if !kind.namespaced => Ok(String::new()),
        Some(own) => {
            ensure!(
                !server.namespace_given || own == server.namespace,
                "{}: the object's namespace `{own}` differs from `{}` on the command line",
                manifest.place(),
                server.namespace
            );
            Ok(own.to_owned())
        }
        None => Ok(server.namespace.clone()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn catalog() -> Catalog {
        let kind = |group: &str, name: &str| Kind {
            group: group.into(),
            version: "v1".into(),
            kind: name.into(),
            plural: format!("{}s", name.to_lowercase()),
            singular: name.to_lowercase(),
            namespaced: true,
            ..Kind::default()
        };
        Catalog { kinds: vec![kind("", "Pod"), kind("a.example", "Gateway"), kind("b.example", "Gateway")] }
    }

    fn read(words: &str) -> Result<Vec<(String, Vec<String>)>> {
        let words: Vec<String> = words.split_whitespace().map(str::to_owned).collect();
        let found = kinds(&words, &catalog(), &mut Io::to(std::io::sink(), std::io::sink()))?;
        Ok(found.into_iter().map(|(kind, names)| (kind.qualified(), names)).collect())
    }

    #[test]
    fn words_select_kinds_and_names() {
        let own = |text: &str| text.to_owned();
        assert_eq!(read("pods a b").unwrap(), [(own("pods"), vec![own("a"), own("b")])]);
        assert_eq!(read("pod").unwrap(), [(own("pods"), vec![])]);
        assert_eq!(
            read("pod/a gateway.b.example/x pod/b").unwrap(),
            [(own("pods"), vec![own("a"), own("b")]), (own("gateways.b.example"), vec![own("x")])]
        );
        assert_eq!(read("pod,gateway a").unwrap().len(), 2);
        for wrong in ["", "pod/a b", "pod a/b", "pod/", "/a", "pod/a/b", "widget"] {
            assert!(read(wrong).is_err(), "{wrong}");
        }
    }
}
