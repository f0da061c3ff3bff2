//! Rules that derive routes, traffic policy and visibility from resources
