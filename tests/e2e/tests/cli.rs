//! The command line of `rutter` against the embedded store: scripts of commands with what they print.
//!
//! `RUTTER_BLESS=1 cargo test -p e2e --test cli` writes what is printed into the scripts; the diff is the review.

use std::path::{Path, PathBuf};

use e2e::rutter_binary;
use e2e::script::{Against, Shell, play};
use test_harness::run::{Control, Result};

fn shell(kubeconfig: PathBuf) -> Shell {
    Shell {
        kubeconfig,
        programs: vec![("rutter".to_owned(), rutter_binary().to_owned())],
        // There is one output for all.
        against: Against::RULE,
    }
}

/// Plays a script over a control plane of its own.
async fn played(name: &str) -> Result<()> {
    let script = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("tests/data/cli")
        .join(format!("{name}.script"));
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
    /// What people do with objects: apply, look, change, delete.
    objects,
    /// What they are told when something is wrong.
    mistakes,
    /// Earlier versions, copies, and objects that files have no longer.
    versions,
    /// What the settings of a workload's proxy come to.
    settings,
    /// Commands that need no object: version, crds, completion.
    surroundings,
}

/// The checks of files need no server, and say the same with and without one.
#[test]
fn validation() {
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/cli/validation.script");
    play(&script, &shell("/dev/null".into())).unwrap_or_else(|error| panic!("{error}"));
}
