//! The choice between the variants of iptables.

use interception::{Binary, Config, Family, Program};

use crate::ExecError;
use crate::process::Runner;

/// A variant of iptables.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Variant {
    /// The part of the names of its programs that distinguishes it.
    pub(crate) suffix: &'static str,
    /// Whether it needs a lock, because it replaces whole tables.
    pub(crate) locks: bool,
}

/// The beginning of the lines that make our chains, and Istio's.
const OWN_CHAINS: &str = ":ISTIO_";
const LEGACY: Variant = Variant { suffix: "-legacy", locks: true };
const NFT: Variant = Variant { suffix: "-nft", locks: false };

/// The variants that rules are removed from: those that have any, unless the settings name one.
pub(crate) fn all(config: &Config) -> &'static [Variant] {
    match config.force_binary {
        Some(Binary::Legacy) => &[LEGACY],
        Some(Binary::Nft) => &[NFT],
        None => &[LEGACY, NFT],
    }
}

/// Chooses the variant: the one that the settings name; the one that has rules in this network namespace; nft; or the programs
/// without a suffix. Istio counts empty tables as rules of legacy iptables. They may be left by a program that listed them.
pub(crate) fn choose(runner: &Runner<'_>, config: &Config, family: Family) -> Result<Variant, ExecError> {
    if let Some(binary) = config.force_binary {
        let variant = if binary == Binary::Legacy { LEGACY } else { NFT };
        return usable(runner, family, variant).map(|()| variant);
    }
    let mut reasons = Vec::new();
    let nft = rules(runner, family, NFT);
    let has_ours = nft.as_ref().is_ok_and(|rules| rules.contains(OWN_CHAINS));
    // To list rules of legacy iptables would make its tables; to save them does not.
    match rules(runner, family, LEGACY) {
        Ok(rules) if !has_ours && rules.lines().any(|line| line.starts_with("-A ")) => return Ok(LEGACY),
        Ok(_) => {}
        Err(error) => reasons.push(error.to_string()),
    }
    match nft.and_then(|_| usable(runner, family, NFT)) {
        Ok(()) => return Ok(NFT),
        Err(error) => reasons.push(error.to_string()),
    }
    let plain = Variant { suffix: "", locks: true };
    match usable(runner, family, plain) {
        Ok(()) => {
            let version =
                runner.run(&Program::Save(family).name(""), &["--version".to_owned()], "").unwrap_or_default();
            Ok(Variant { locks: !version.contains("nf_tables"), ..plain })
        }
        Err(error) => {
            reasons.push(error.to_string());
            Err(ExecError::NoVariant { family, reasons: reasons.join("; ") })
        }
    }
}

/// The rules of a variant.
pub(crate) fn rules(runner: &Runner<'_>, family: Family, variant: Variant) -> Result<String, ExecError> {
    runner.run(&Program::Save(family).name(variant.suffix), &[], "")
}

/// Checks that the programs of a variant are there and that the kernel supports it.
fn usable(runner: &Runner<'_>, family: Family, variant: Variant) -> Result<(), ExecError> {
    let save = Program::Save(family).name(variant.suffix);
    let lock = variant.locks.then(|| "--wait=30".to_owned());
    let arguments: Vec<String> = ["-t", "nat", "-S"].map(str::to_owned).into_iter().chain(lock).collect();
    runner.run(save.trim_end_matches("-save"), &arguments, "").map(|_| ())
}
