//! The parts that all of the agent shares: its [`environment`], the connection to the control plane ([`upstream`]), [`tls`] to
//! other servers, and the values that its other parts exchange ([`exchange`]).

pub mod environment;
pub mod exchange;
pub mod tls;
pub mod upstream;
