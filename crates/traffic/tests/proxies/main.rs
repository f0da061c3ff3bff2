//! Connected proxies: their audiences, listeners and gateways, and what a change makes run again.

mod audiences;
mod gateways;
mod listeners;
mod odd;
mod random;
mod world;
