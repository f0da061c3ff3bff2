//! The bootstrap configuration of Envoy and the metadata of its node, from the agent's environment and ProxyConfig.
