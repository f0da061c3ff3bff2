//! The parts that all of the agent shares: its [`environment`], the connection to the control plane ([`upstream`]), and the values
//! that its other parts exchange ([`exchange`]).

pub mod environment;
pub mod exchange;
pub mod upstream;
