//! Load: simulated proxies over real streams
