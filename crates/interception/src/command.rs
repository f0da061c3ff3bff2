//! Commands that make the rules.

use std::fmt;

use crate::rule::Family;

/// A program. The variant of iptables is chosen when it runs.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Program {
    /// `iptables-restore` or `ip6tables-restore`.
    Restore(Family),
    /// `iptables-save` or `ip6tables-save`.
    Save(Family),
    /// `nft`.
    Nft,
    /// `ip`.
    Ip,
}

impl Program {
    /// The name of the program, for a variant of iptables: `-nft`, `-legacy`, or nothing.
    #[must_use]
    pub fn name(self, variant: &str) -> String {
        let family = |family: Family| if family == Family::V6 { "6" } else { "" };
        match self {
            Program::Restore(of) => format!("ip{}tables{variant}-restore", family(of)),
            Program::Save(of) => format!("ip{}tables{variant}-save", family(of)),
            Program::Nft => "nft".to_owned(),
            Program::Ip => "ip".to_owned(),
        }
    }
}

/// A program to run.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Command {
    /// The program.
    pub program: Program,
    /// Its arguments.
    pub arguments: Vec<String>,
    /// Its standard input.
    pub input: String,
    /// A part of the error message that means that there was nothing to do.
    pub done_already: &'static [&'static str],
}

/// Writes the command line, and the input below it: the output of `--dry-run`.
impl fmt::Display for Command {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.program.name(""))?;
        for argument in &self.arguments {
            write!(f, " {argument}")?;
        }
        writeln!(f)?;
        f.write_str(&self.input)
    }
}
