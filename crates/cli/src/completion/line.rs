//! Parses a partial command line and suggests completions.

use clap::{Arg, ArgMatches, Command};

use crate::flag_order;
use crate::io::Io;
use crate::server::{self, Request, Server};

/// Maximum number of names to suggest.
const MAX_NAMES: usize = 2000;
/// Tells the shell script to complete file names.
pub(super) const FILES: &str = ":files";

/// A command line whose last word is incomplete.
pub(super) struct Line<'c> {
    command: &'c Command,
    /// Positional arguments before the last word.
    plain: Vec<String>,
    /// Connection flags, as given.
    connection: Vec<String>,
    /// The flag whose value the last word is, if any.
    flag: Option<&'c Arg>,
    /// `--flag=`, if the last word has this form.
    prefix: String,
    current: String,
}

impl<'c> Line<'c> {
    pub(super) fn read(root: &'c Command, words: &[String]) -> Line<'c> {
        let mut line = Line {
            command: root,
            plain: Vec::new(),
            connection: Vec::new(),
            flag: None,
            prefix: String::new(),
            current: String::new(),
        };
        let (words, split) = rejoined(words);
        let Some((current, before)) = words.split_last() else {
            return line;
        };
        let before = flag_order::words_command_first(before);
        line.current.clone_from(current);
        let mut before = before.iter();
        while let Some(word) = before.next() {
            let (name, value) = match word.split_once('=') {
                Some((name, value)) if word.starts_with('-') => (name, Some(value)),
                _ => (word.as_str(), None),
            };
            if let Some(flag) = line.find_flag(name) {
                let needs = takes_value(flag) && value.is_none();
                match (needs, if needs { before.next() } else { None }) {
                    (true, None) => line.flag = Some(flag),
                    (_, next) => line.note(flag, word, next),
                }
            } else if let Some(sub) = line.command.find_subcommand(word).filter(|_| line.plain.is_empty()) {
                line.command = sub;
            } else if !word.starts_with('-') {
                line.plain.push(word.clone());
            }
        }
        if line.flag.is_none()
            && let Some((name, value)) = line.current.clone().split_once('=')
            && let Some(flag) = line.find_flag(name)
        {
            line.flag = Some(flag);
            line.prefix = if split { String::new() } else { format!("{name}=") };
            line.current = value.to_owned();
        }
        line
    }

    fn find_flag(&self, word: &str) -> Option<&'c Arg> {
        let long = word.strip_prefix("--");
        let short = word.strip_prefix('-').and_then(|rest| rest.chars().next()).filter(|c| *c != '-');
        let mut flags = self.command.get_arguments().filter(|flag| !flag.is_positional());
        flags.find(|flag| match (long, short) {
            (Some(long), _) => flag.get_long() == Some(long),
            (None, Some(short)) => flag.get_short() == Some(short),
            (None, None) => false,
        })
    }

    fn note(&mut self, flag: &Arg, word: &str, next: Option<&String>) {
        if flag.get_help_heading() == Some(server::CONNECTION) {
            self.connection.push(word.to_owned());
            self.connection.extend(next.cloned());
        }
    }

    /// Suggestions for the last word; a description follows after a tab.
    pub(super) async fn words(&self, io: &Io) -> Vec<String> {
        let found = match self.flag {
            Some(flag) => self.values(flag, io).await,
            None if self.current.starts_with('-') => self.flags(),
            None if self.command.has_subcommands() => self.subcommands(),
            None => self.objects(io).await,
        };
        let fits = |word: &String| word == FILES || word.starts_with(&self.current);
        let found = found.into_iter().filter(fits);
        found.map(|word| if word == FILES { word } else { format!("{}{word}", self.prefix) }).collect()
    }

    fn subcommands(&self) -> Vec<String> {
        let visible = self.command.get_subcommands().filter(|command| !command.is_hide_set());
        let word = |command: &Command| described(command.get_name(), command.get_about().map(ToString::to_string));
        visible.map(word).collect()
    }

    fn flags(&self) -> Vec<String> {
        let visible = self.command.get_arguments().filter(|flag| !flag.is_hide_set());
        let word = |flag: &Arg| {
            let name = format!("--{}", flag.get_long()?);
            Some(described(&name, flag.get_help().map(ToString::to_string)))
        };
        visible.filter_map(word).collect()
    }

    async fn values(&self, flag: &Arg, io: &Io) -> Vec<String> {
        let possible = flag.get_possible_values();
        if !possible.is_empty() {
            return possible.iter().map(|value| value.get_name().to_owned()).collect();
        }
        let own = |words: &[&str]| words.iter().map(|word| (*word).to_owned()).collect();
        match flag.get_id().as_str() {
            "namespace" => self.names("namespaces", io).await.unwrap_or_default(),
            "context" => contexts(&self.connected(), io),
            "output" => own(&["wide", "yaml", "json", "name", "jsonpath="]),
            "for" => own(&["proxies=100%", "condition=", "delete", "create", "jsonpath="]),
            _ => {
                let mut forms = flag.get_value_names().into_iter().flatten();
                let is_file = forms.any(|form| matches!(form.as_str(), "FILE" | "DIR" | "PATH" | "DIRECTORY"));
                if is_file { vec![FILES.to_owned()] } else { Vec::new() }
            }
        }
    }

    /// Completes kinds and names.
    async fn objects(&self, io: &Io) -> Vec<String> {
        let Some(positional) = self.command.get_positionals().next() else {
            return Vec::new();
        };
        let possible = positional.get_possible_values();
        if !possible.is_empty() {
            return possible.iter().map(|value| value.get_name().to_owned()).collect();
        }
        match positional.get_id().as_str() {
            "paths" => vec![FILES.to_owned()],
            "words" | "kinds" => self.kinds_or_names(positional.get_id() == "words", io).await.unwrap_or_default(),
            _ => Vec::new(),
        }
    }

    async fn kinds_or_names(&self, names: bool, io: &Io) -> Option<Vec<String>> {
        if let (true, Some((kind, _))) = (names, self.current.split_once('/')) {
            let found = self.names(kind, io).await?;
            return Some(found.into_iter().map(|name| format!("{kind}/{name}")).collect());
        }
        match self.plain.first().filter(|_| names) {
            Some(kind) if !kind.contains('/') => {
                let found = self.names(kind, io).await?;
                Some(found.into_iter().filter(|name| !self.plain.contains(name)).collect())
            }
            _ => {
                let server = self.server(io).await?;
                let catalog = server.catalog().await.ok()?;
                let kinds = catalog.preferred().filter(|kind| kind.can("get"));
                let word = |kind: &server::Kind| {
                    let unique = catalog.also(&kind.plural).is_empty();
                    let name = if unique { kind.plural.clone() } else { kind.qualified() };
                    described(&name, Some(kind.api_version()))
                };
                Some(kinds.map(word).collect())
            }
        }
    }

    /// Names of the objects of a kind.
    async fn names(&self, kind: &str, io: &Io) -> Option<Vec<String>> {
        let server = self.server(io).await?;
        let catalog = server.catalog().await.ok()?;
        let kind = catalog.one(kind).ok()?;
        let request = Request::get(kind.collection(Some(&server.namespace))).with("limit", MAX_NAMES.to_string());
        let list: serde_json::Value = server.send(request.metadata_only()).await.ok()?;
        let names = list["items"].as_array()?.iter().filter_map(|item| item["metadata"]["name"].as_str());
        Some(names.map(str::to_owned).collect())
    }

    async fn server(&self, io: &Io) -> Option<Server> {
        Server::connect(&self.connected(), io).await.ok()
    }

    /// The connection flags, parsed.
    fn connected(&self) -> ArgMatches {
        let words = std::iter::once("rutter".to_owned()).chain(self.connection.iter().cloned());
        let command = || server::arguments(Command::new("rutter")).ignore_errors(true);
        // Ignores flags that cannot be parsed.
        command().try_get_matches_from(words).unwrap_or_else(|_| command().get_matches_from(["rutter"]))
    }
}

fn contexts(matches: &ArgMatches, io: &Io) -> Vec<String> {
    let files = server::kubeconfig_files(Some(matches), io).unwrap_or_default();
    let read = files.iter().filter_map(|file| kube::config::Kubeconfig::read_from(file).ok());
    read.flat_map(|config| config.contexts).map(|context| context.name).collect()
}

fn takes_value(flag: &Arg) -> bool {
    // A flag whose value needs `=` does not take the next word.
    flag.get_action().takes_values() && !flag.is_require_equals_set()
}

fn described(word: &str, text: Option<String>) -> String {
    match text.and_then(|text| text.lines().next().map(str::to_owned)) {
        Some(text) => format!("{word}\t{text}"),
        None => word.to_owned(),
    }
}

/// Joins words that bash splits at equals signs; returns whether the last word was split.
fn rejoined(words: &[String]) -> (Vec<String>, bool) {
    let mut out: Vec<String> = Vec::new();
    let mut split = false;
    let mut glue = false;
    for word in words {
        let is_flag = out.last().is_some_and(|last| last.starts_with("--"));
        if word == "=" && is_flag {
            if let Some(last) = out.last_mut() {
                last.push('=');
            }
            (glue, split) = (true, true);
        } else if std::mem::take(&mut glue) {
            if let Some(last) = out.last_mut() {
                last.push_str(word);
            }
        } else {
            out.push(word.clone());
            split = false;
        }
    }
    (out, split)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn root() -> Command {
        crate::with_commands(Command::new("rutter"))
    }

    fn offered(words: &[&str]) -> Vec<String> {
        let mut root = root();
        root.build();
        let words: Vec<String> = words.iter().map(|word| (*word).to_owned()).collect();
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let io = Io::to(std::io::sink(), std::io::sink());
        let found = runtime.block_on(Line::read(&root, &words).words(&io));
        found.iter().map(|word| word.split('\t').next().unwrap_or_default().to_owned()).collect()
    }

    #[test]
    fn commands_flags_and_values_are_suggested() {
        assert_eq!(offered(&["des"]), ["describe"]);
        assert!(!offered(&[""]).contains(&"__complete".to_owned()));
        assert_eq!(offered(&["-n", "shop", "des"]), ["describe"]);
        assert_eq!(offered(&["get", "--show-m"]), ["--show-managed-fields"]);
        assert_eq!(offered(&["get", "vs", "-o", "j"]), ["json", "jsonpath="]);
        assert_eq!(offered(&["get", "--output=y"]), ["--output=yaml"]);
        assert_eq!(offered(&["get", "--output", "=", "y"]), ["yaml"], "as bash splits it");
        assert_eq!(offered(&["apply", "--dry-run=s"]), ["--dry-run=server"]);
        assert_eq!(offered(&["apply", "-f", "x"]), [FILES]);
        assert_eq!(offered(&["validate", "x"]), [FILES]);
        assert_eq!(offered(&["completion", "z"]), ["zsh"]);
    }
}
