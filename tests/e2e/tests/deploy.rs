//! The chart and `rutter manifest`: both render the same objects, a real API server accepts them, and the roles contain
//! exactly the permissions that the program needs.

// A failure here fails the test, so unwrapping is fine.
#![allow(clippy::unwrap_used)]

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use config::Limits;
use config::schema::definitions;
use e2e::{kubectl_binary, rutter_binary};
use serde_json::{Value, json};
use test_harness::kubernetes::{ControlPlane, Settings};

fn chart() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../deploy/helm/rutter")
}

/// The value files with which all comparisons are made.
fn values() -> Vec<PathBuf> {
    let files = std::fs::read_dir(chart().join("ci")).unwrap();
    let mut files: Vec<PathBuf> = files.map(|file| file.unwrap().path()).collect();
    files.sort();
    assert!(files.len() >= 3);
    files
}

fn succeed(command: &mut Command) -> Output {
    let output = command.output().unwrap();
    let told = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success(), "{command:?}: {told}");
    output
}

/// The objects in a text, by kind, namespace and name.
fn objects(text: &[u8]) -> BTreeMap<String, Value> {
    let read = config::parse_yaml_json(text, "", &Limits::default());
    assert!(read.errors.is_empty(), "{:?}", read.errors);
    let mut found = BTreeMap::new();
    for document in read.documents.into_iter().filter(|document| !document.value.is_null()) {
        assert!(document.duplicates.is_empty(), "{:?}", document.duplicates);
        let object = document.value;
        let name = ["kind", "/metadata/namespace", "/metadata/name"].map(|path| match path.strip_prefix('/') {
            None => object[path].as_str().unwrap_or_default().to_owned(),
            Some(_) => object.pointer(path).and_then(Value::as_str).unwrap_or_default().to_owned(),
        });
        assert!(found.insert(name.join(" "), object).is_none(), "{name:?} twice");
    }
    found
}

fn manifest(arguments: &[&str]) -> BTreeMap<String, Value> {
    objects(&succeed(Command::new(rutter_binary()).args(["manifest", "--in-place-of-istiod"]).args(arguments)).stdout)
}

/// Makes the labels equal that name Helm or `rutter manifest`.
fn without_manager(mut objects: BTreeMap<String, Value>) -> BTreeMap<String, Value> {
    let label = "/metadata/labels/app.kubernetes.io~1managed-by";
    for object in objects.values_mut() {
        for prefix in ["", "/spec/template"] {
            if let Some(label) = object.pointer_mut(&format!("{prefix}{label}")) {
                *label = "x".into();
            }
        }
    }
    objects
}

#[test]
fn objects_with_the_names_of_istiod_must_be_allowed() {
    let run = |arguments: &[&str]| Command::new(rutter_binary()).arg("manifest").args(arguments).output().unwrap();
    for arguments in [&["--skip-crds"][..], &["--revision", "default"], &["--set", "revision="]] {
        let refused = run(arguments);
        assert_eq!(refused.status.code(), Some(2), "{arguments:?}");
        assert!(refused.stdout.is_empty(), "{arguments:?}");
        assert!(String::from_utf8_lossy(&refused.stderr).contains("--in-place-of-istiod"), "{refused:?}");
    }
    for arguments in [&["--in-place-of-istiod"][..], &["--revision", "canary"], &["--show-values"]] {
        assert!(run(arguments).status.success(), "{arguments:?}");
    }
}

#[test]
fn helm_and_rutter_manifest_render_the_same_objects() {
    let helm = test_harness::helm(&mut |line| eprintln!("{line}")).unwrap_or_else(|error| panic!("{error}"));
    let sets: [&[&str]; 3] = [
        &[],
        &["--set", "env.A_B=x\\,y,tolerations[0].key=k,revisionTags={a,b}", "--set-string", "env.N=1"],
        &["--set", "autoscaleEnabled=false,meshConfig=null,global.istioNamespace=other"],
    ];
    for file in values() {
        for set in sets {
            let file = file.to_str().unwrap();
            let theirs = succeed(
                Command::new(&helm)
                    .args(["template", "rutter"])
                    .arg(chart())
                    .args(["--namespace", "mesh", "-f", file])
                    .args(set),
            );
            let mut arguments = vec!["--namespace", "mesh", "--skip-crds", "-f", file];
            arguments.extend(set);
            let (ours, theirs) = (manifest(&arguments), objects(&theirs.stdout));
            let (ours, theirs) = (without_manager(ours), without_manager(theirs));
            assert_eq!(ours.keys().collect::<Vec<_>>(), theirs.keys().collect::<Vec<_>>(), "{file} {set:?}");
            for (name, object) in &ours {
                assert_eq!(object, &theirs[name], "{file} {set:?}: {name}");
            }
        }
    }
}

#[test]
fn the_chart_contains_the_crds_of_this_build() {
    let whole = manifest(&[]);
    let mut bare = manifest(&["--skip-crds"]);
    bare.extend(objects(&std::fs::read(chart().join("crds/crds.yaml")).unwrap()));
    assert_eq!(whole, bare);
}

/// The group, resource and verb that the rules grant.
fn granted(rules: &Value) -> BTreeSet<(String, String, String)> {
    let texts = |rule: &Value, field: &str| -> Vec<String> {
        let items = rule[field].as_array().unwrap().iter();
        items.map(|item| item.as_str().unwrap().to_owned()).collect()
    };
    let mut all = BTreeSet::new();
    for rule in rules.as_array().unwrap() {
        for group in texts(rule, "apiGroups") {
            for resource in texts(rule, "resources") {
                for verb in texts(rule, "verbs") {
                    assert!(!format!("{group}{resource}{verb}").contains('*'), "a role names what it grants");
                    all.insert((group.clone(), resource.clone(), verb));
                }
            }
        }
    }
    all
}

/// The cluster-wide permissions that the program needs.
fn needed(
    untaint: bool,
    exports: bool,
    credentials: bool,
    signers: bool,
    gateways: bool,
) -> BTreeSet<(String, String, String)> {
    const READ: [&str; 3] = ["get", "list", "watch"];
    let mut all = BTreeSet::new();
    let mut need = |group: &str, resource: &str, verbs: &[&str]| {
        for verb in verbs {
            all.insert((group.to_owned(), resource.to_owned(), (*verb).to_owned()));
        }
    };
    for kind in definitions() {
        let Some(mesh) = kind.mesh else { continue };
        if mesh.is_credential() && !credentials {
            continue;
        }
        need(kind.group, kind.plural, &READ);
        if status::has_status(mesh) {
            need(kind.group, &format!("{}/status", kind.plural), &["get", "patch", "update"]);
        }
    }
    need("apiextensions.k8s.io", "customresourcedefinitions", &READ);
    for webhooks in ["mutatingwebhookconfigurations", "validatingwebhookconfigurations"] {
        need("admissionregistration.k8s.io", webhooks, &["get", "list", "watch", "patch"]);
    }
    need("networking.k8s.io", "ingresses/status", &["get", "patch", "update"]);
    need("", "configmaps", &["create", "get", "list", "watch", "patch"]);
    need("networking.istio.io", "workloadentries", &["create", "patch", "delete"]);
    need("authentication.k8s.io", "tokenreviews", &["create"]);
    need("authorization.k8s.io", "subjectaccessreviews", &["create"]);
    if untaint {
        need("", "nodes", &["patch"]);
    }
    if gateways {
        const WRITE: [&str; 5] = ["get", "list", "watch", "create", "patch"];
        need("", "serviceaccounts", &WRITE);
        need("", "services", &WRITE);
        need("apps", "deployments", &WRITE);
        need("autoscaling", "horizontalpodautoscalers", &WRITE);
        need("policy", "poddisruptionbudgets", &WRITE);
        need("gateway.networking.k8s.io", "gatewayclasses", &["create"]);
    }
    if exports {
        need("multicluster.x-k8s.io", "serviceexports", &["create"]);
    }
    if signers {
        need("certificates.k8s.io", "certificatesigningrequests", &["create", "get", "delete"]);
        need("certificates.k8s.io", "certificatesigningrequests/approval", &["update"]);
        need("certificates.k8s.io", "signers", &["approve"]);
    }
    all
}

#[test]
fn the_role_has_exactly_the_needed_permissions() {
    for (untaint, exports, credentials, signers, gateways) in [
        (false, false, true, false, true),
        (true, false, true, false, true),
        (false, true, true, false, true),
        (false, false, false, false, true),
        (false, false, false, false, false),
        (false, false, true, true, true),
    ] {
        let mut set = vec!["--skip-crds".to_owned(), "--set".to_owned(), format!("taint.enabled={untaint}")];
        if exports {
            set.extend(["--set-string".to_owned(), "env.ENABLE_MCS_AUTO_EXPORT=true".to_owned()]);
        }
        if !credentials {
            set.extend(["--set-string".to_owned(), "env.RUTTER_SECRETS_FOR=none".to_owned()]);
        }
        if !gateways {
            for controller in ["DEPLOYMENT", "GATEWAYCLASS"] {
                let off = format!("env.PILOT_ENABLE_GATEWAY_API_{controller}_CONTROLLER=false");
                set.extend(["--set-string".to_owned(), off]);
            }
        }
        if signers {
            set.extend(["--set-string".to_owned(), "env.EXTERNAL_CA=ISTIOD_RA_KUBERNETES_API".to_owned()]);
            set.extend(["--set".to_owned(), "global.certSigners={example.com/mesh}".to_owned()]);
        }
        let objects = manifest(&set.iter().map(String::as_str).collect::<Vec<_>>());
        let role = &objects["ClusterRole  istiod-clusterrole-istio-system"];
        assert_eq!(granted(&role["rules"]), needed(untaint, exports, credentials, signers, gateways));
        for rule in role["rules"].as_array().unwrap() {
            // Other ConfigMaps are read only if they may contain CA certificates for proxies.
            let of_maps = rule["resources"] == json!(["configmaps"]) && rule["verbs"] != json!(["create"]);
            let of_signers = rule["resources"] == json!(["signers"]);
            assert_eq!(rule.get("resourceNames").is_some(), of_maps || of_signers, "{rule}");
        }
    }
}

/// The permissions that control planes of other clusters need in this one.
fn needed_by_others(exports: bool, certificates: bool, credentials: bool) -> BTreeSet<(String, String, String)> {
    let read = [
        ("", "services"),
        ("", "pods"),
        ("", "nodes"),
        ("", "namespaces"),
        ("discovery.k8s.io", "endpointslices"),
        ("networking.istio.io", "workloadentries"),
        ("gateway.networking.k8s.io", "gateways"),
        ("multicluster.x-k8s.io", "serviceexports"),
        ("multicluster.x-k8s.io", "serviceimports"),
        ("apiextensions.k8s.io", "customresourcedefinitions"),
    ];
    let each = |(group, resource): (&str, &str), verbs: &[&str]| -> Vec<(String, String, String)> {
        let one = |verb: &&str| (group.to_owned(), resource.to_owned(), (*verb).to_owned());
        verbs.iter().map(one).collect()
    };
    let mut all: BTreeSet<_> = read.into_iter().flat_map(|one| each(one, &["get", "list", "watch"])).collect();
    if exports {
        all.extend(each(("multicluster.x-k8s.io", "serviceexports"), &["create"]));
    }
    if certificates {
        all.extend(each(("", "configmaps"), &["create", "get", "list", "watch", "patch"]));
    }
    all.extend(each(("authentication.k8s.io", "tokenreviews"), &["create"]));
    all.extend(each(("authorization.k8s.io", "subjectaccessreviews"), &["create"]));
    if credentials {
        all.extend(each(("", "secrets"), &["get", "list", "watch"]));
    }
    all
}

#[test]
fn the_reader_role_has_exactly_the_needed_permissions() {
    for (exports, certificates, credentials) in
        [(false, false, true), (true, false, true), (false, true, true), (false, false, false)]
    {
        let (exported, remote) =
            (format!("env.ENABLE_MCS_AUTO_EXPORT={exports}"), format!("istiodRemote.enabled={certificates}"));
        let secrets = format!("env.RUTTER_SECRETS_FOR={}", if credentials { "auto" } else { "none" });
        let objects = manifest(&["--skip-crds", "--set-string", &exported, "--set-string", &secrets, "--set", &remote]);
        let role = &objects["ClusterRole  istio-reader-clusterrole-istio-system"];
        assert_eq!(granted(&role["rules"]), needed_by_others(exports, certificates, credentials));
        assert_eq!(
            objects.contains_key("Role istio-system istio-reader"),
            exports || certificates,
            "{:?}",
            objects.keys()
        );
    }
}

/// The base image (`deploy/Containerfile`) has the C library and the compiler's runtime, and no other libraries.
#[test]
fn the_image_contains_all_libraries_of_the_program() {
    const THERE: [&str; 3] = ["libc", "libm", "libgcc_s"];
    let listed = succeed(Command::new("ldd").arg(rutter_binary())).stdout;
    let listed = String::from_utf8(listed).unwrap();
    let names = listed.lines().filter_map(|line| line.split_whitespace().next());
    let names: Vec<&str> = names.map(|name| name.rsplit('/').next().unwrap()).collect();
    assert!(names.iter().any(|name| name.starts_with("libc.so")), "{listed}");
    for name in names {
        // The kernel's virtual library, and the loader, which belongs to the C library.
        let built_in = name.starts_with("linux-vdso") || name.starts_with("ld-linux");
        let stem = name.split('.').next().unwrap();
        assert!(built_in || THERE.contains(&stem), "{name} is not in the image");
    }
}

#[tokio::test]
async fn an_api_server_accepts_every_object_of_the_manifest() {
    let cluster = ControlPlane::start(Settings::default()).await.unwrap();
    let kubeconfig = cluster.kubeconfig();
    let apply = |manifest: &[u8], flags: &[&str]| {
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), manifest).unwrap();
        succeed(
            Command::new(kubectl_binary())
                .env("KUBECONFIG", &kubeconfig)
                .args(["apply", "--server-side", "--force-conflicts", "-f"])
                .arg(file.path())
                .args(flags),
        )
    };
    let whole = succeed(Command::new(rutter_binary()).args(["manifest", "--in-place-of-istiod", "--create-namespace"]));
    apply(&whole.stdout, &[]);
    for file in values() {
        let file = file.to_str().unwrap();
        let made = succeed(Command::new(rutter_binary()).args([
            "manifest",
            "--in-place-of-istiod",
            "--skip-crds",
            "-f",
            file,
        ]));
        apply(&made.stdout, &["--dry-run=server"]);
        let told = apply(&made.stdout, &[]);
        assert!(String::from_utf8_lossy(&told.stdout).contains("deployment.apps/istiod"), "{told:?}");
    }
    let service = succeed(Command::new(kubectl_binary()).env("KUBECONFIG", &kubeconfig).args([
        "get",
        "service",
        "istiod",
        "-n",
        "istio-system",
        "-o",
        "jsonpath={.spec.ports[*].port}",
    ]));
    assert_eq!(String::from_utf8_lossy(&service.stdout), "15010 15012 443 15014");
}
