//! Private keys and tokens appear nowhere but where the documentation says: after a run with traffic, rotation and failures, the
//! logs, pages, dumps, files and memory of the control plane and the pages and logs of its proxies are searched for them.

use std::io::{Read as _, Seek as _, SeekFrom};
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;

use base64::Engine as _;
use base64::engine::general_purpose::{STANDARD, URL_SAFE_NO_PAD};
use e2e::issued::{ISTIOD, Issued, Member, connect, token};
use e2e::secure::{Key, Proof};
use e2e::secured::{WEB, peers};
use e2e::tls::Authority;
use e2e::{PATIENCE, done, rutter_binary};
use rcgen::KeyPair;
use test_harness::run::{Control, Protocol, Result, Traffic, wait_for};

/// The forms in which a secret could appear.
struct Needle {
    what: String,
    forms: Vec<Vec<u8>>,
}

impl Needle {
    /// A P-256 key in PEM: its lines, and its private number as it is, in hexadecimal digits and in Base64.
    fn key(what: &str, pem: &str) -> Result<Needle> {
        let der = KeyPair::from_pem(pem)?.serialize_der();
        let number = der.get(36..68).ok_or("not a P-256 key")?;
        // The version, and the private number as a string of 32 bytes.
        assert!(der.len() < 200 && der.get(34..36) == Some(&[4, 32]), "another encoding");
        let lines = pem.lines().filter(|line| line.len() > 20 && !line.starts_with("-----"));
        let mut forms: Vec<Vec<u8>> = lines.map(|line| line.as_bytes().to_vec()).collect();
        let hex: String = number.iter().map(|byte| format!("{byte:02x}")).collect();
        forms.extend([number.to_vec(), hex.to_uppercase().into_bytes(), hex.into_bytes()]);
        forms.extend([STANDARD.encode(number), URL_SAFE_NO_PAD.encode(number)].map(String::into_bytes));
        Ok(Needle { what: what.to_owned(), forms })
    }

    /// A token: its last part.
    fn token(what: &str, token: &str) -> Result<Needle> {
        let secret = token.rsplit('.').next().filter(|secret| secret.len() > 20).ok_or("not a token")?;
        let forms = vec![secret.as_bytes().to_vec(), STANDARD.encode(secret).into_bytes()];
        Ok(Needle { what: what.to_owned(), forms })
    }

    fn is_in(&self, bytes: &[u8]) -> bool {
        self.forms.iter().any(|form| contains(bytes, form))
    }
}

fn contains(bytes: &[u8], part: &[u8]) -> bool {
    let Some((first, rest)) = part.split_first() else { return false };
    let mut left = bytes;
    while let Some(at) = left.iter().position(|byte| byte == first) {
        left = left.get(at + 1..).unwrap_or_default();
        if left.starts_with(rest) {
            return true;
        }
    }
    false
}

/// Fails if a secret is in one of these places.
fn search(needles: &[Needle], places: &[(String, Vec<u8>)]) {
    for (place, bytes) in places {
        for needle in needles {
            assert!(!needle.is_in(bytes), "{} is in {place}", needle.what);
        }
    }
}

/// All files of a directory.
fn files(directory: &Path, out: &mut Vec<(String, Vec<u8>)>) -> Result<()> {
    for entry in std::fs::read_dir(directory)? {
        let path = entry?.path();
        match path.metadata() {
            Ok(metadata) if metadata.is_dir() => files(&path, out)?,
            Ok(metadata) if metadata.is_file() => out.push((path.display().to_string(), std::fs::read(&path)?)),
            _ => {}
        }
    }
    Ok(())
}

/// The pages of the control plane, with those about a proxy.
async fn pages(control: &Control) -> Result<Vec<(String, Vec<u8>)>> {
    let listed: Vec<String> = serde_json::from_str(&control.debug("/debug/list").await?.text())?;
    assert!(listed.len() > 10, "{listed:?}");
    let own = ["/metrics", "/version", "/debug"].map(str::to_owned);
    let mut out = Vec::new();
    for page in own.into_iter().chain(listed) {
        for query in ["", "?proxyID=web.test", "?proxyID=client.test&types=sds,cds,lds,rds,eds,nds,ecds,pcds"] {
            let path = format!("{page}{query}");
            out.push((path.clone(), control.debug(&path).await?.text().into_bytes()));
        }
    }
    out.push(("/ready".to_owned(), control.readiness().await?.text().into_bytes()));
    out.push(("the log".to_owned(), control.log()?.into_bytes()));
    Ok(out)
}

/// The memory of a process that can be written, as in a core file; `None` if this user may not read it.
fn memory(pid: u32) -> Option<Vec<u8>> {
    let maps = std::fs::read_to_string(format!("/proc/{pid}/maps")).ok()?;
    let mut memory = std::fs::File::open(format!("/proc/{pid}/mem")).ok()?;
    let mut out = Vec::new();
    for line in maps.lines() {
        let mut fields = line.split(' ');
        let (range, rights) = (fields.next()?, fields.next()?);
        let (start, end) = range.split_once('-')?;
        let [start, end] = [start, end].map(|text| u64::from_str_radix(text, 16).ok());
        if !rights.starts_with("rw") || memory.seek(SeekFrom::Start(start?)).is_err() {
            continue;
        }
        let mut part = vec![0; usize::try_from(end? - start?).ok()?];
        // Special mappings cannot be read.
        if memory.read_exact(&mut part).is_ok() {
            out.extend(part);
        }
    }
    Some(out)
}

async fn run() -> Result<()> {
    let (directory, authority) = (tempfile::tempdir()?, Authority::new("mesh")?);
    authority.plug_into(directory.path(), &[&authority])?;
    let path = directory.path().display().to_string();
    let flags = ["--root-ca-dir", &path, "--multiroot-mesh", "on", "--log-level", "trace,h2=info,hyper=info"];
    let strict = peers("default", "mtls: { mode: STRICT }");
    let pair = Issued::start(Protocol::Delta, "HTTP", &[("peers.yaml", &strict)], &flags).await?;
    let mut needles = vec![Needle::key("the authority's key", &authority.key)?];
    let traffic = Traffic::start(pair.address(), "/", &[("host", WEB)], 50, 5);
    for round in 0..3 {
        needles.push(Needle::key(&format!("the server's key {round}"), &pair.web.identity().1)?);
        needles.push(Needle::key(&format!("the client's key {round}"), &pair.caller.identity().1)?);
        pair.renew_web().await?;
        pair.renew_caller().await?;
        traffic.next(20).await?;
    }
    let counts = traffic.stop().await;
    assert_eq!(counts.errors, 0, "{counts:?}");
    // Failures, whose messages must not quote credentials.
    let control = &pair.mesh.control;
    let root = pair.root().await?;
    let client = connect(control, (&root, ISTIOD), None).await?;
    let (unused, used) = (token(control, "test", "other").await?, token(control, "test", "other").await?);
    let key = Key::new()?;
    client.create(Proof::token(&used), &key.request(&[])?, &[]).await??;
    for (token, csr) in [(used.as_str(), key.request(&[])?), (&unused, key.pem()), ("x.y.z", key.pem())] {
        let refused = client.create(Proof::token(token), &csr, &[("a", &key.pem())]).await?;
        let status = refused.err().ok_or("it is not refused")?;
        assert!(!status.message().contains("PRIVATE"), "{status:?}");
    }
    Member::join(control, "test", "another").await?;
    needles.push(Needle::key("a key in place of a request", &key.pem())?);
    needles.push(Needle::token("a used token", &used)?);
    needles.push(Needle::token("an unused token", &unused)?);
    // The set becomes unusable and usable again.
    let other = Authority::new("other")?;
    needles.push(Needle::key("the key of a refused set", &other.key)?);
    other.plug_into(directory.path(), &[&other])?;
    control.wait_for_log("the roots replace current ones").await?;
    std::fs::write(directory.path().join("ca-key.pem"), format!("{}x", other.key.replace("BEGIN", "BEGIN OTHER")))?;
    control.wait_for_log("ca-key.pem").await?;

    let mut places = pages(control).await?;
    let kubeconfig = control.kubeconfig().ok_or("no kubeconfig")?;
    places.push(("the export".to_owned(), done(&kubeconfig, &["export"], "").await?.into_bytes()));
    files(pair.data.path(), &mut places)?;
    for (name, envoy) in [("server", &pair.server), ("client", &pair.client)] {
        for page in ["/config_dump?include_eds", "/certs", "/stats", "/clusters", "/listeners", "/server_info"] {
            places.push((format!("{page} of the {name}"), envoy.admin(page).await?.text().into_bytes()));
        }
        places.push((format!("the log of the {name}"), envoy.log()?.into_bytes()));
    }
    search(&needles, &places);
    // The search would find them: what is public is there.
    let certificate = pair.web.identity().0;
    let line = certificate.lines().nth(3).ok_or("no certificate")?;
    assert!(places.iter().any(|(_, bytes)| contains(bytes, line.as_bytes())), "no page shows the certificate");

    // The keys of workloads never come into the control plane, so that they are not in its memory either.
    let Some(memory) = control.pid().and_then(memory) else {
        eprintln!("skipped: this user may not read the memory of its processes");
        return Ok(());
    };
    let own = needles
        .iter()
        .filter(|needle| needle.what.starts_with("the server's") || needle.what.starts_with("the client's"));
    for needle in own {
        assert!(!needle.is_in(&memory), "{} is in the memory of the control plane", needle.what);
    }
    assert!(needles[0].is_in(&memory) && memory.len() > 1 << 20, "the authority's key is in its memory");
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn keys_and_tokens_are_in_no_log_page_dump_file_or_foreign_memory() {
    run().await.unwrap_or_else(|error| panic!("{error}"));
}

/// A crash leaves no file with the memory, even if the limit of the shell allows one.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_crash_leaves_no_core_file() -> Result<()> {
    let directory = tempfile::tempdir()?;
    let (program, place) = (directory.path().join("rutter"), directory.path().join("place"));
    std::fs::create_dir(&place)?;
    let script =
        format!("#!/bin/sh\nulimit -c unlimited\ncd {}\nexec {} \"$@\"\n", place.display(), rutter_binary().display());
    std::fs::write(&program, script)?;
    std::fs::set_permissions(&program, std::fs::Permissions::from_mode(0o755))?;
    let mut control = Control::start_with_api(&program, &directory.path().join("data"), &[]).await?;
    let pid = control.pid().ok_or("it does not run")?;
    let limits = std::fs::read_to_string(format!("/proc/{pid}/limits"))?;
    let line = limits.lines().find(|line| line.starts_with("Max core file size")).ok_or("no limit")?;
    assert_eq!(line.split_whitespace().nth(4), Some("0"), "{line}");
    assert!(std::process::Command::new("sh").args(["-c", &format!("kill -ABRT {pid}")]).status()?.success());
    let stopped = || async { control.readiness().await.is_err().then_some(()) };
    wait_for("the crash", PATIENCE, stopped).await?;
    control.kill().await?;
    assert_eq!(std::fs::read_dir(&place)?.count(), 0, "a core file");
    Ok(())
}
