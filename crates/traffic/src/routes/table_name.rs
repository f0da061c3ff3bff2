//! Names of sidecars' route tables.

/// A route table of a sidecar, by its name.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum TableName<'a> {
    /// `PORT`: all hosts at this port.
    Port(u16),
    /// `HOST:PORT`: one service, for a listener that detects the protocol.
    Service(&'a str, u16),
    /// `http_proxy` or the path of a Unix socket: all hosts at all ports.
    Any,
}

impl TableName<'_> {
    /// Parses a name; `None` if no listener of a sidecar uses it.
    pub(super) fn parse(name: &str) -> Option<TableName<'_>> {
        if name == "http_proxy" || name.starts_with("unix:") {
            return Some(TableName::Any);
        }
        let Some((host, port)) = name.rsplit_once(':') else {
            return name.parse().ok().filter(|p| *p != 0).map(TableName::Port);
        };
        let port = port.parse().ok().filter(|p| *p != 0)?;
        (!host.is_empty()).then_some(TableName::Service(host, port))
    }

    /// The port, 0 for [`TableName::Any`].
    pub(super) fn port(self) -> u16 {
        match self {
            TableName::Port(port) | TableName::Service(_, port) => port,
            TableName::Any => 0,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn forms() {
        assert_eq!(TableName::parse("80"), Some(TableName::Port(80)));
        assert_eq!(TableName::parse("a.b:8080"), Some(TableName::Service("a.b", 8080)));
        assert_eq!(TableName::parse("http_proxy"), Some(TableName::Any));
        assert_eq!(TableName::parse("unix:///var/run/s"), Some(TableName::Any));
        for bad in ["", "x", "0", "99999", "a:", ":80", "a:0", "http.80"] {
            assert_eq!(TableName::parse(bad), None, "{bad}");
        }
    }
}
