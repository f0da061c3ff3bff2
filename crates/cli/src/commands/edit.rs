//! `rutter edit`: an object in the user's editor.

use std::fs;
use std::path::{Path, PathBuf};
use std::process;

use anyhow::{Context, Result, anyhow, bail, ensure};
use clap::{Arg, ArgMatches, Command};
use serde_json::{Map, Value as Json};

use crate::failure::{self, FAILURE, SUCCESS};
use crate::io::Io;
use crate::manifests;
use crate::output;
use crate::server::{self, Request, Server};
use crate::targets::{self, Target};
use crate::write::{self, DryRun, Options};
use crate::yaml;

/// How deep objects are compared.
const MAX_DEPTH: usize = 128;

pub(super) fn command() -> Command {
    let command = Command::new("edit")
        .about("Change objects in an editor")
        .after_help(
            "The editor is $RUTTER_EDITOR, $KUBE_EDITOR, $VISUAL, $EDITOR or vi. When the server refuses the text, the editor \
             opens again with the reason on top; to give up, leave it unchanged. Your text is kept in a file then.\n\n\
             Examples:\n  rutter edit vs/reviews\n  EDITOR='code --wait' rutter edit dr reviews -n shop",
        )
        .arg(Arg::new("subresource").long("subresource").value_name("NAME").help("Edit a subresource: status"));
    server::arguments(write::arguments(targets::arguments(command)))
}

pub(super) async fn run(matches: &ArgMatches, io: &mut Io) -> Result<u8> {
    let options = Options::of(matches);
    ensure!(
        options.dry != DryRun::Client,
        failure::usage("an edit is sent to the server: --dry-run=server")
    );
    let server = Server::connect(matches, io).await?;
    let catalogue = server.catalogue().await?;
    let mut code = SUCCESS;
    for target in targets::all(matches, &server, &catalogue, io).await? {
        let job = Job {
            server: &server,
            path: match matches.get_one::<String>("subresource") {
                Some(name) => format!("{}/{}", target.path(), server::encode(name)),
                None => target.path(),
            },
            target: &target,
            options: &options,
        };
        if let Err(error) = job.edit(io).await {
            failure::report(&error, io);
            code = FAILURE;
        }
    }
    Ok(code)
}

struct Job<'j> {
    server: &'j Server,
    target: &'j Target,
    path: String,
    options: &'j Options,
}

impl Job<'_> {
    async fn edit(&self, io: &mut Io) -> Result<()> {
        let mut original = self.target.get(self.server).await?;
        output::without_managed_fields(&mut original);
        let label = self.target.label();
        let mut text = format!(
            "# Edit {label} below. Lines that begin with `#` are passed over; an unchanged file ends the edit.\n#\n{}",
            yaml::document(&original)
        );
        let file = tempfile::Builder::new()
            .prefix("rutter-edit-")
            .suffix(".yaml")
            .tempfile()?;
        let file = file.into_temp_path();
        let mut refused: Option<String> = None;
        loop {
            fs::write(&file, &text)?;
            open_editor(&file, io)?;
            let edited = fs::read_to_string(&file).context("the edited text cannot be read")?;
            if edited == text || without_comments(&edited).trim().is_empty() {
                let Some(error) = refused else {
                    io.tell("Edit cancelled, no changes made.");
                    return Ok(());
                };
                // It was refused and nothing more was done about it.
                let kept = keep(&file, &edited)?;
                return Err(anyhow!(
                    "{}\nthe edit was not saved; your text is in {}",
                    error.trim_start_matches("error: "),
                    kept.display()
                ));
            }
            match self.send(&original, &edited, io).await {
                Ok(()) => return Ok(()),
                Err(error) => {
                    let said = failure::describe(&error);
                    text = with_comments(&said, &edited);
                    refused = Some(said);
                }
            }
        }
    }

    async fn send(&self, original: &Json, edited: &str, io: &mut Io) -> Result<()> {
        let mut documents = manifests::parse_text(edited.as_bytes())?;
        ensure!(documents.len() == 1, "there must be one object in the text");
        let (edited, _) = documents.remove(0);
        for field in ["/apiVersion", "/kind", "/metadata/name", "/metadata/namespace"] {
            ensure!(
                original.pointer(field) == edited.pointer(field),
                "`{field}` cannot be changed"
            );
        }
        let label = self.target.label();
        let Some(patch) = difference(original, &edited, 0)? else {
            io.tell(format!("{label}: no changes made"));
            return Ok(());
        };
        let request = Request::patch(&self.path, "application/merge-patch+json", patch.to_string());
        self.server.send::<Json>(self.options.on(request)).await?;
        io.say(format!("{label} edited{}", self.options.suffix()))?;
        Ok(())
    }
}

/// Runs the editor of the environment on a file.
fn open_editor(file: &Path, io: &mut Io) -> Result<()> {
    let names = ["RUTTER_EDITOR", "KUBE_EDITOR", "VISUAL", "EDITOR"];
    let editor = names
        .iter()
        .find_map(|name| io.var(name))
        .unwrap_or_else(|| "vi".into());
    io.out.flush()?;
    // Through a shell, for editors come with flags.
    let before = fs::read_to_string(file).unwrap_or_default();
    let status = process::Command::new("sh")
        .arg("-c")
        .arg(format!("{} \"$1\"", editor.to_string_lossy()))
        .arg("sh")
        .arg(file)
        .status()
        .context("no shell to run the editor with")?;
    if status.success() {
        return Ok(());
    }
    let editor = editor.to_string_lossy();
    let text = fs::read_to_string(file).unwrap_or_default();
    ensure!(
        text != before,
        "the editor {editor} ended with {status}; nothing was changed\nhint: $EDITOR names another"
    );
    let kept = keep(file, &text)?;
    bail!(
        "the editor {editor} ended with {status}; your text is in {}",
        kept.display()
    );
}

/// Saves a text beside the temporary file, where it stays.
fn keep(file: &Path, text: &str) -> Result<PathBuf> {
    let kept = file.with_extension("kept.yaml");
    fs::write(&kept, text).with_context(|| format!("{} cannot be written", kept.display()))?;
    Ok(kept)
}

/// The text with a message on top, in place of earlier messages.
fn with_comments(message: &str, text: &str) -> String {
    let mut out = "# The server refused this text, or it cannot be read:\n".to_owned();
    for line in message.lines() {
        out.push_str(&format!("#   {line}\n"));
    }
    out.push_str("# Change it, or leave it as it is to give up; your text will be kept.\n#\n");
    out + without_comments(text)
}

/// The text without the comments that it begins with.
fn without_comments(text: &str) -> &str {
    let mut rest = text;
    while rest.starts_with('#') {
        rest = rest.split_once('\n').map_or("", |(_, rest)| rest);
    }
    rest
}

/// The merge patch that makes one value of the other; none if they are equal.
pub(super) fn difference(from: &Json, to: &Json, depth: usize) -> Result<Option<Json>> {
    ensure!(depth < MAX_DEPTH, "the object is more than {MAX_DEPTH} levels deep");
    let (Json::Object(old), Json::Object(new)) = (from, to) else {
        return Ok((from != to).then(|| to.clone()));
    };
    let mut patch = Map::new();
    for key in old.keys().filter(|key| !new.contains_key(*key)) {
        patch.insert(key.clone(), Json::Null);
    }
    for (key, value) in new {
        match old.get(key) {
            None => {
                patch.insert(key.clone(), value.clone());
            }
            Some(before) => {
                if let Some(change) = difference(before, value, depth + 1)? {
                    patch.insert(key.clone(), change);
                }
            }
        }
    }
    Ok((!patch.is_empty()).then_some(Json::Object(patch)))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;

    #[test]
    fn only_what_differs_is_patched() {
        let from = json!({"a": 1, "b": {"c": [1], "d": 2}, "e": 3});
        let to = json!({"a": 1, "b": {"c": [2], "d": 2}, "f": 4});
        let patch = difference(&from, &to, 0).unwrap();
        assert_eq!(patch, Some(json!({"b": {"c": [2]}, "e": null, "f": 4})));
        assert_eq!(difference(&from, &from, 0).unwrap(), None);
    }

    #[test]
    fn messages_do_not_pile_up() {
        let first = with_comments("bad\nworse", "# hello\nkind: A\n# mine\n");
        assert!(first.contains("#   bad\n#   worse\n") && first.ends_with("#\nkind: A\n# mine\n"));
        let second = with_comments("other", &first);
        assert!(!second.contains("worse") && second.ends_with("#\nkind: A\n# mine\n"));
    }

    /// RFC 7396, as the server does it.
    fn merge(target: &mut Json, patch: &Json) {
        let Json::Object(patch) = patch else {
            *target = patch.clone();
            return;
        };
        if !target.is_object() {
            *target = json!({});
        }
        for (key, value) in patch {
            match value {
                Json::Null => {
                    target.as_object_mut().unwrap().remove(key);
                }
                value => merge(&mut target[key], value),
            }
        }
    }

    fn objects() -> impl Strategy<Value = Json> {
        let leaf = prop_oneof![any::<bool>().prop_map(Json::from), (0..3).prop_map(Json::from)];
        leaf.prop_recursive(3, 20, 4, |inner| {
            prop::collection::btree_map("[a-d]", inner, 0..4).prop_map(|map| Json::Object(map.into_iter().collect()))
        })
    }

    proptest! {
        #[test]
        fn a_difference_leads_from_one_to_the_other(from in objects(), to in objects()) {
            let mut made = from.clone();
            if let Some(patch) = difference(&from, &to, 0).unwrap() {
                merge(&mut made, &patch);
            }
            prop_assert_eq!(made, to);
        }
    }
}
