//! What connections a workload takes: plain text, the mesh's mutual TLS, or both.

use std::collections::BTreeMap;

use crate::proxy::Labels;

/// Label of pods and WorkloadEntries that says whether they take the mesh's mutual TLS (`istio`).
const TLS_MODE_LABEL: &str = "security.istio.io/tlsMode";

/// Whether a workload's labels say that it takes the mesh's mutual TLS; none if they say nothing.
pub fn labelled(labels: &Labels) -> Option<bool> {
    labels.get(TLS_MODE_LABEL).map(|mode| &**mode == "istio")
}

/// What is taken at a port.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug, Default)]
pub enum Mode {
    /// What comes is passed on as it is.
    Disable,
    /// The mesh's mutual TLS is opened, and plain text taken, too.
    #[default]
    Permissive,
    /// The mesh's mutual TLS and nothing else.
    Strict,
}

impl Mode {
    /// As it is written in a PeerAuthentication.
    pub const fn name(self) -> &'static str {
        match self {
            Mode::Disable => "DISABLE",
            Mode::Permissive => "PERMISSIVE",
            Mode::Strict => "STRICT",
        }
    }
}

/// What a workload takes, by its ports. Two workloads that take the same have equal values.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Debug, Default)]
pub struct PeerModes {
    mode: Mode,
    /// Ports at which it is another one.
    ports: BTreeMap<u16, Mode>,
}

impl PeerModes {
    /// One mode, and others at these ports.
    pub fn new(mode: Mode, ports: impl IntoIterator<Item = (u16, Mode)>) -> PeerModes {
        let ports = ports.into_iter().filter(|(_, other)| *other != mode).collect();
        PeerModes { mode, ports }
    }

    /// What is left of it where there is no certificate: plain text where that may be taken.
    pub fn without_certificates(&self) -> PeerModes {
        let left = |mode| match mode {
            Mode::Disable | Mode::Permissive => Mode::Disable,
            Mode::Strict => Mode::Strict,
        };
        PeerModes::new(
            left(self.mode),
            self.ports.iter().map(|(port, mode)| (*port, left(*mode))),
        )
    }

    /// The mode at a port of the workload.
    pub fn at(&self, port: u16) -> Mode {
        self.ports.get(&port).copied().unwrap_or(self.mode)
    }

    /// The mode at all ports that are not excepted.
    pub fn elsewhere(&self) -> Mode {
        self.mode
    }

    /// The ports at which the mode is another one, ascending.
    pub fn exceptions(&self) -> impl Iterator<Item = (u16, Mode)> {
        self.ports.iter().map(|(port, mode)| (*port, *mode))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn exceptions_that_are_none_are_forgotten() {
        let modes = PeerModes::new(Mode::Strict, [(1, Mode::Strict), (2, Mode::Disable)]);
        assert_eq!(modes, PeerModes::new(Mode::Strict, [(2, Mode::Disable)]));
        assert_eq!((modes.at(1), modes.at(2)), (Mode::Strict, Mode::Disable));
        assert_eq!(modes.exceptions().collect::<Vec<_>>(), [(2, Mode::Disable)]);
    }

    #[test]
    fn without_a_certificate_what_must_be_tls_is_not_plain_text() {
        let ports = [(1, Mode::Strict), (2, Mode::Disable)];
        let left = PeerModes::new(Mode::Permissive, ports).without_certificates();
        assert_eq!(left, PeerModes::new(Mode::Disable, [(1, Mode::Strict)]));
    }
}
