//! The secret discovery service (SDS): `StreamSecrets`, `DeltaSecrets` and `FetchSecrets` on a Unix socket.

pub(crate) mod server;
pub(crate) mod subscription;
pub(crate) mod wire;

#[cfg(test)]
mod tests;
