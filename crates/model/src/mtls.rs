//! mTLS modes of workloads: whether they accept plain text, the mesh's mutual TLS, or both.

use std::collections::BTreeMap;

use crate::proxy::Labels;

/// Label of pods and WorkloadEntries; `istio` if they accept the mesh's mutual TLS.
const TLS_MODE_LABEL: &str = "security.istio.io/tlsMode";

/// Whether a workload's labels declare that it accepts the mesh's mutual TLS; none without the label.
pub fn labelled(labels: &Labels) -> Option<bool> {
    labels.get(TLS_MODE_LABEL).map(|mode| &**mode == "istio")
}

/// mTLS mode of a port.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug, Default)]
pub enum Mode {
    /// Connections are forwarded as they are.
    Disable,
    /// Plain text and the mesh's mutual TLS, which is terminated.
    #[default]
    Permissive,
    /// Only the mesh's mutual TLS.
    Strict,
}

impl Mode {
    /// Its name in a PeerAuthentication.
    pub const fn name(self) -> &'static str {
        match self {
            Mode::Disable => "DISABLE",
            Mode::Permissive => "PERMISSIVE",
            Mode::Strict => "STRICT",
        }
    }
}

/// mTLS modes of a workload's ports, in normal form: workloads with the same modes have equal values.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Debug, Default)]
pub struct MtlsModes {
    mode: Mode,
    /// Ports with a different mode.
    ports: BTreeMap<u16, Mode>,
}

impl MtlsModes {
    /// A mode, with exceptions for these ports.
    pub fn new(mode: Mode, ports: impl IntoIterator<Item = (u16, Mode)>) -> MtlsModes {
        let ports = ports.into_iter().filter(|(_, other)| *other != mode).collect();
        MtlsModes { mode, ports }
    }

    /// The modes of a proxy without a certificate: plain text where it is permitted.
    pub fn without_certificates(&self) -> MtlsModes {
        let left = |mode| match mode {
            Mode::Disable | Mode::Permissive => Mode::Disable,
            Mode::Strict => Mode::Strict,
        };
        MtlsModes::new(left(self.mode), self.ports.iter().map(|(port, mode)| (*port, left(*mode))))
    }

    /// The mode of a port of the workload.
    pub fn at(&self, port: u16) -> Mode {
        self.ports.get(&port).copied().unwrap_or(self.mode)
    }

    /// The mode of all other ports.
    pub fn default_mode(&self) -> Mode {
        self.mode
    }

    /// Ports with a different mode, ascending.
    pub fn exceptions(&self) -> impl Iterator<Item = (u16, Mode)> {
        self.ports.iter().map(|(port, mode)| (*port, *mode))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn redundant_exceptions_are_dropped() {
        let modes = MtlsModes::new(Mode::Strict, [(1, Mode::Strict), (2, Mode::Disable)]);
        assert_eq!(modes, MtlsModes::new(Mode::Strict, [(2, Mode::Disable)]));
        assert_eq!((modes.at(1), modes.at(2)), (Mode::Strict, Mode::Disable));
        assert_eq!(modes.exceptions().collect::<Vec<_>>(), [(2, Mode::Disable)]);
    }

    #[test]
    fn without_a_certificate_strict_stays_strict() {
        let ports = [(1, Mode::Strict), (2, Mode::Disable)];
        let left = MtlsModes::new(Mode::Permissive, ports).without_certificates();
        assert_eq!(left, MtlsModes::new(Mode::Disable, [(1, Mode::Strict)]));
    }
}
