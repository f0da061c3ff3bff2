//! The rules that send a pod's traffic through its proxy, for iptables and nftables.
