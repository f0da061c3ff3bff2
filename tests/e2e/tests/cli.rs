//! The command line of `rutter` with the embedded store: scripts of commands with their expected output.
//!
//! `RUTTER_BLESS=1 cargo test -p e2e --test cli` writes the actual output into the scripts; review the diff.

use std::path::{Path, PathBuf};

use e2e::rutter_binary;
use e2e::script::{Against, Shell, play};
use test_harness::run::{Control, Result};

fn shell(kubeconfig: PathBuf) -> Shell {
    Shell {
        kubeconfig,
        programs: vec![("rutter".to_owned(), rutter_binary().to_owned())],
        // There is one output for all variants.
        against: Against::RULE,
    }
}

/// Plays a script with its own control plane.
async fn played(name: &str) -> Result<()> {
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/cli").join(format!("{name}.script"));
    let data = tempfile::tempdir()?;
    let control = Control::start_with_api(rutter_binary(), data.path(), &[]).await?;
    let kubeconfig = control.kubeconfig().ok_or("it has no kubeconfig")?;
    let played = tokio::task::spawn_blocking(move || play(&script, &shell(kubeconfig))).await?;
    match played {
        Ok(()) => Ok(()),
        Err(wrong) => Err(format!("{wrong}\nthe log ends:\n{}", control.log_end()?).into()),
    }
}

macro_rules! scripts {
    ($($(#[$doc:meta])* $name:ident,)*) => {$(
        $(#[$doc])*
        #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
        async fn $name() {
            played(stringify!($name)).await.unwrap_or_else(|error| panic!("{error}"));
        }
    )*};
}

scripts! {
    /// Common commands: apply, get, change, delete.
    objects,
    /// Error messages.
    mistakes,
    /// History, rollback, export and import, and pruning.
    versions,
    /// The effective settings of a workload's proxy.
    settings,
    /// References that do not resolve, and kinds without effect.
    references,
    /// Commands that need no object: version, crds, completion.
    surroundings,
}

/// `rutter validate` needs no server and prints the same with and without one.
#[test]
fn validation() {
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/cli/validation.script");
    play(&script, &shell("/dev/null".into())).unwrap_or_else(|error| panic!("{error}"));
}
