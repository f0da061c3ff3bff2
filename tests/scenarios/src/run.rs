//! Plays a scenario.

use envoy::types;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::path::Path;
use std::sync::Arc;

use anyhow::{Context, Result, anyhow, bail, ensure};
use config::{AnyObject, Kind, MeshConfig, ObjectKey, ParseOptions};
use model::audience::Account;
use model::xds::{Resource, ResourceType};
use registry::inputs::{Features, JwksMode, MeshSettings};
use serde_json::Value;
use world::{Batch, Conflicts, Facts, World};

use crate::format::{Section, Show, Step};
use crate::homes::{Document, Home};
use crate::judge::Evidence;
use crate::keys;
use crate::project::project;
use crate::state::{Client, Holdings, json};

/// Plays the scenario in a file and compares its answers, or rewrites them. Adds the relations that read each other.
///
/// # Errors
/// The differences, with the line of the heading; or the reason why a step cannot be played.
pub fn file(path: &Path, bless: bool, reads: &mut BTreeSet<(&'static str, &'static str)>) -> Result<()> {
    let text = std::fs::read_to_string(path)?;
    let mut sections = crate::format::parse(&text)?;
    let mut player = Player::new(None);
    let wrong = play(&mut player, &mut sections, bless)?;
    reads.append(&mut player.reads);
    if bless {
        let printed = crate::format::print(&sections);
        if printed != text {
            std::fs::write(path, printed)?;
        }
    }
    if wrong.is_empty() { Ok(()) } else { Err(anyhow!(wrong)) }
}

/// Plays the scenario with its objects in a home, which is empty again afterwards. If the scenario is left out, returns
/// the reason.
///
/// # Errors
/// As for [`file`].
pub fn file_in(home: &mut dyn Home, path: &Path) -> Result<Option<String>> {
    let mut sections = crate::format::parse(&std::fs::read_to_string(path)?)?;
    let left_out = sections.iter().find_map(|section| match &section.step {
        Step::NotIn(homes) if homes.iter().any(|name| name == home.name()) => Some(section.body.trim().to_owned()),
        _ => None,
    });
    if left_out.is_some() {
        return Ok(left_out);
    }
    let wrong = play(&mut Player::new(Some(home)), &mut sections, false);
    let cleared = home.clear().context("at its end");
    let wrong = wrong?;
    cleared?;
    if wrong.is_empty() { Ok(None) } else { Err(anyhow!(wrong)) }
}

/// Plays the scenario in a file without comparing its answers. Returns all resources that any of its Envoys had after
/// any step.
///
/// # Errors
/// The reason why a step cannot be played.
pub fn collect(path: &Path) -> Result<Evidence> {
    let sections = crate::format::parse(&std::fs::read_to_string(path)?)?;
    let mut player = Player::new(None);
    let mut evidence = Evidence::default();
    let mut others = BTreeSet::new();
    for section in &sections {
        // gRPC clients are not Envoys.
        if let Step::Proxy(name) = &section.step
            && section.body.contains("GENERATOR: grpc")
        {
            others.insert(name.clone());
        }
        let at = || format!("{}: line {}: === {}", path.display(), section.line, section.heading);
        player.step(section).with_context(at)?;
        if section.step.is_answer() {
            continue;
        }
        let file = path.file_stem().unwrap_or_default().to_string_lossy();
        for (name, client) in player.clients.iter().filter(|(name, _)| !others.contains(*name)) {
            let origin = format!("{file}:{}: proxy {name}", section.line);
            evidence.add(&origin, client.istio, client.holdings());
        }
    }
    Ok(evidence)
}

/// Plays all steps. Returns the differences, or writes the answers into the sections.
fn play(player: &mut Player<'_>, sections: &mut [Section], bless: bool) -> Result<String> {
    let mut wrong = String::new();
    for section in sections {
        let at = format!("line {}: === {}", section.line, section.heading);
        let answer = player.step(section).with_context(|| at.clone())?;
        let Some(answer) = answer else { continue };
        if bless {
            section.body = answer;
        } else if section.body.trim_end() != answer.trim_end() {
            let _ = write!(wrong, "{at}\nexpected:\n{}\nfound:\n{answer}\n", section.body);
        }
    }
    Ok(wrong)
}

struct Player<'h> {
    /// The home of the objects; `None` to put them into the world directly.
    home: Option<&'h mut dyn Home>,
    world: World,
    clients: BTreeMap<String, Client>,
    settings: MeshSettings,
    changed: String,
    runs: Vec<(&'static str, usize)>,
    diagnostics: String,
    /// The conflicts of watched objects, as reported by commits.
    watched: BTreeMap<ObjectKey, Conflicts>,
    /// The facts about watched objects of the Gateway API, as reported by commits.
    standings: BTreeMap<ObjectKey, Facts>,
    /// The relations that read each other, as (reader, read).
    reads: BTreeSet<(&'static str, &'static str)>,
}

impl<'h> Player<'h> {
    fn new(home: Option<&'h mut dyn Home>) -> Player<'h> {
        let world = World::new(mesh(MeshConfig::default()), 1);
        Player {
            home,
            world,
            clients: BTreeMap::new(),
            settings: mesh(MeshConfig::default()),
            changed: String::new(),
            runs: Vec::new(),
            reads: BTreeSet::new(),
            diagnostics: String::new(),
            watched: BTreeMap::new(),
            standings: BTreeMap::new(),
        }
    }

    /// Plays one step. Returns the answer if the step has one.
    fn step(&mut self, section: &Section) -> Result<Option<String>> {
        match &section.step {
            Step::About | Step::NotIn(_) => return Ok(None),
            Step::Objects(cluster) => self.objects(cluster, &section.body)?,
            Step::Addresses => self.addresses(&section.body)?,
            Step::Readers => self.readers(&section.body)?,
            Step::Features => self.switch(&section.body)?,
            Step::Keys => self.commit(keys::batch(&section.body)?)?,
            Step::Proxy(name) => self.connect(name, &section.body)?,
            Step::Disconnect(name) => {
                let client = self.clients.remove(name).with_context(|| format!("no proxy {name}"))?;
                let token = client.token;
                client.close(&mut self.world);
                self.watched.extend(self.world.disconnect(token));
            }
            Step::Delete(one) => self.delete(one.as_deref().unwrap_or(&section.body))?,
            Step::Show(show) => return self.show(show).map(Some),
            Step::Watch => self.watch(&section.body)?,
            Step::Conflicts => return Ok(Some(self.conflicts())),
            Step::Standings => {
                let all = self.standings.iter().map(|(key, facts)| crate::standings::text(key, facts));
                return Ok(Some(all.collect()));
            }
            Step::Changed => return Ok(Some(self.changed.clone())),
            Step::Recomputed => return Ok(Some(self.recomputed())),
            // Diagnostics contain line numbers of the file, which homes do not have.
            Step::Diagnostics if self.home.is_some() => return Ok(None),
            Step::Diagnostics => return Ok(Some(self.diagnostics.clone())),
        }
        self.world.check().map_err(|m| anyhow!("incremental and recomputed differ: {m}"))?;
        self.reads.extend(self.world.engine().relation_reads());
        Ok(None)
    }

    fn objects(&mut self, cluster: &str, yaml: &str) -> Result<()> {
        if self.home.is_some() {
            return self.edit(Document::read(yaml, cluster)?, Vec::new());
        }
        let options = ParseOptions { originals: true, ..ParseOptions::default().degrading() };
        let parsed = config::parse_documents(yaml.as_bytes(), "scenario", &options);
        for diagnostic in &parsed.diagnostics {
            let _ = writeln!(self.diagnostics, "{diagnostic}");
        }
        let mut batch = Batch::new();
        for object in parsed.objects {
            match &object {
                AnyObject::MeshConfig(o) => batch.set_mesh(self.configured(&o.spec)),
                _ => batch.put(object.in_cluster(cluster)),
            }
        }
        for (key, original) in &parsed.originals {
            let refused = parsed.refused.contains(key).then(|| serde_json::from_str(original)).transpose()?;
            let parents = refused.map(|object| config::parents_of(key.kind, &object));
            batch.set_refused(&key.clone().in_cluster(cluster), parents.as_deref());
        }
        self.commit(batch)
    }

    fn delete(&mut self, lines: &str) -> Result<()> {
        let lines = lines.lines().map(str::trim).filter(|line| !line.is_empty());
        let keys = lines.map(key).collect::<Result<Vec<ObjectKey>>>()?;
        if self.home.is_some() {
            return self.edit(Vec::new(), keys);
        }
        let mut batch = Batch::new();
        for key in &keys {
            batch.remove(key);
            batch.set_refused(key, None);
        }
        self.commit(batch)
    }

    /// Edits objects in the home, and commits the changes that its source reports.
    fn edit(&mut self, puts: Vec<Document>, gone: Vec<ObjectKey>) -> Result<()> {
        let home = self.home.as_mut().context("the objects live nowhere")?;
        let change = home.edit(puts, gone)?;
        let mut batch = Batch::new();
        for object in change.upserts.into_values() {
            match &object {
                AnyObject::MeshConfig(o) => batch.set_mesh(self.configured(&o.spec)),
                _ => batch.put(object),
            }
        }
        change.deletes.iter().for_each(|key| batch.remove(key));
        self.commit(batch)
    }

    /// The settings of the mesh with another configuration.
    fn configured(&mut self, config: &MeshConfig) -> MeshSettings {
        self.settings.config = config.clone();
        self.settings.clone()
    }

    fn switch(&mut self, lines: &str) -> Result<()> {
        self.settings.features = Features::default();
        for line in lines.lines().map(str::trim).filter(|line| !line.is_empty()) {
            let features = &mut self.settings.features;
            match line {
                "http3" => features.http3 = true,
                "http10" => features.http10 = true,
                "jwks-proxies" => features.jwks = JwksMode::Proxies,
                "jwks-hybrid" => features.jwks = JwksMode::Hybrid,
                other => bail!("unknown feature {other:?}"),
            }
        }
        let mut batch = Batch::new();
        batch.set_mesh(self.settings.clone());
        self.commit(batch)
    }

    fn addresses(&mut self, lines: &str) -> Result<()> {
        let mut batch = Batch::new();
        for line in lines.lines().filter(|line| !line.trim().is_empty()) {
            let (name, addresses) = line.split_once(':').context("want `NAME: ADDRESSES`")?;
            let addresses = addresses.split_whitespace().map(str::parse);
            batch.set_addresses(name.trim().into(), addresses.collect::<Result<_, _>>()?);
        }
        self.commit(batch)
    }

    fn readers(&mut self, lines: &str) -> Result<()> {
        let mut batch = Batch::new();
        for line in lines.lines().filter(|line| !line.trim().is_empty()) {
            let (account, allowed) = line.split_once(": ").context("want `NAMESPACE/NAME: yes`")?;
            let (id, cluster) = account.split_once(" in ").unwrap_or((account, ""));
            let (namespace, name) = id.split_once('/').context("want `NAMESPACE/NAME: yes`")?;
            let account = Account { cluster: cluster.into(), namespace: namespace.into(), name: name.into() };
            batch.set_secret_reader(account, allowed.trim() == "yes");
        }
        self.commit(batch)
    }

    fn commit(&mut self, batch: Batch) -> Result<()> {
        let before = self.runs_so_far();
        let changes = self.world.commit(batch);
        if !changes.panics.is_empty() {
            bail!("rules panicked: {:?}", changes.panics);
        }
        let after = self.runs_so_far();
        self.runs = after
            .into_iter()
            .filter_map(|(name, runs)| {
                let ran = runs - before.iter().find(|(n, _)| *n == name).map_or(0, |(_, r)| *r);
                (ran > 0).then_some((name, ran))
            })
            .collect();
        self.changed.clear();
        self.watched.extend(changes.conflicts);
        self.standings.extend(changes.standings);
        for (name, client) in &mut self.clients {
            let held = client.refresh(&mut self.world).with_context(|| format!("proxy {name}"))?;
            describe(name, &held, client.holdings(), &mut self.changed);
        }
        Ok(())
    }

    fn connect(&mut self, name: &str, yaml: &str) -> Result<()> {
        let proxy = crate::proxy::parse(name, yaml)?;
        let (has, resolves) = (proxy.capabilities, proxy.resolver.is_some());
        let (token, conflicts) = self.world.connect(Arc::new(proxy));
        self.watched.extend(conflicts);
        let mut client = Client::new(token);
        client.targets = crate::proxy::targets(yaml)?;
        client.istio = has != Default::default();
        client.resolves = resolves;
        client.refresh(&mut self.world)?;
        self.clients.insert(name.to_owned(), client);
        Ok(())
    }

    fn show(&self, show: &Show) -> Result<String> {
        let client = self.clients.get(&show.proxy).with_context(|| format!("no proxy {}", show.proxy))?;
        let kind = self
            .world
            .types()
            .iter()
            .find(|t| t.short_name == show.kind)
            .context("want the short name of a type, such as CDS")?;
        let value = match &show.name {
            // A name table has no name.
            None if kind == types::NAME_TABLE => match client.holdings().get(&(kind, Arc::default())) {
                Some(resource) => project(&json(kind, resource)?, &show.paths),
                None => Value::from("absent"),
            },
            None => {
                let names = client.holdings().keys().filter(|(k, _)| *k == kind);
                Value::Array(names.map(|(_, name)| Value::from(&**name)).collect())
            }
            Some(name) => match client.holdings().get(&(kind, Arc::from(name.as_str()))) {
                Some(resource) => project(&json(kind, resource)?, &show.paths),
                None => Value::from("absent"),
            },
        };
        Ok(serde_saphyr::to_string(&value)?)
    }

    fn watch(&mut self, lines: &str) -> Result<()> {
        for line in lines.lines().map(str::trim).filter(|line| !line.is_empty()) {
            let key = key(line)?;
            let (facts, conflicts) = (self.world.watch_standing(&key), self.world.watch(&key));
            ensure!(facts.is_some() || conflicts.is_some(), "nothing is ever said of {key}");
            self.watched.extend(conflicts.map(|(_, conflicts)| (key.clone(), conflicts)));
            self.standings.extend(facts.map(|(_, facts)| (key, facts)));
        }
        Ok(())
    }

    fn conflicts(&self) -> String {
        let all = self.watched.values().flat_map(|conflicts| conflicts.iter());
        all.map(|conflict| format!("{conflict}\n")).collect()
    }

    fn runs_so_far(&self) -> Vec<(&'static str, usize)> {
        self.world
            .engine()
            .stats()
            .relations
            .iter()
            .filter(|relation| !registry::objects::is_table(relation.name))
            .map(|r| (r.name, r.runs))
            .collect()
    }

    fn recomputed(&self) -> String {
        self.runs.iter().map(|(name, runs)| format!("{name}: {runs}\n")).collect()
    }
}

/// Parses a line `KIND NAMESPACE/NAME`, followed by ` in CLUSTER` for another cluster.
fn key(line: &str) -> Result<ObjectKey> {
    let (kind, id) = line.split_once(' ').context("want `KIND NAMESPACE/NAME`")?;
    let kind = *Kind::ALL
        .iter()
        // `KubeGateway`, because `Gateway` is another kind.
        .find(|k| k.name() == kind || format!("{k:?}") == kind)
        .with_context(|| format!("unknown kind {kind}"))?;
    let (id, cluster) = id.split_once(" in ").unwrap_or((id, ""));
    let (namespace, name) = id.split_once('/').unwrap_or(("", id));
    Ok(ObjectKey::new(kind, namespace, name).in_cluster(cluster))
}

pub(crate) fn mesh(config: MeshConfig) -> MeshSettings {
    MeshSettings { config, ..MeshSettings::default() }
}

fn describe(client: &str, before: &Holdings, after: &Holdings, out: &mut String) {
    let mut line = |sign: char, kind: ResourceType, name: &str| {
        let _ = writeln!(out, "{client} {} {sign}{name}", kind.short_name);
    };
    let differs = |a: &Resource, b: &Resource| a != b;
    for ((kind, name), resource) in after {
        match before.get(&(*kind, name.clone())) {
            None => line('+', *kind, name),
            Some(old) if differs(old, resource) => line('~', *kind, name),
            Some(_) => {}
        }
    }
    for (kind, name) in before.keys().filter(|k| !after.contains_key(*k)) {
        line('-', *kind, name);
    }
}
