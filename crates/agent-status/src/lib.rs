//! The status port of the agent: readiness, merged metrics, probes of applications, drain and quit.
