//! Reads the values of a Secret `cacerts`, revocation lists, client certificates, sealed keys, join tokens and forwarded
//! certificates. Nothing may panic or hang, and no error may show a private key.

#![no_main]

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr};
use std::sync::LazyLock;
use std::time::{Duration, SystemTime};

use ca::caller::{Caller, TrustedRanges};
use ca::join::JoinToken;
use ca::revocation::RevocationLists;
use ca::sealed::KeyFile;
use ca::self_signed::{self, Settings, create};
use ca::trust::Source;
use ca::{Authority, KeyKind, TrustBundle, plugged_in};
use libfuzzer_sys::fuzz_target;
use names::TrustDomain;

fn now() -> SystemTime {
    SystemTime::UNIX_EPOCH + Duration::from_secs(1_800_000_000)
}

static AUTHORITY: LazyLock<(Authority, TrustBundle, KeyFile)> = LazyLock::new(|| {
    let authority = create(&Settings { key: KeyKind::P256, ..Settings::new("cluster.local") }, now()).unwrap();
    let mut trust = TrustBundle::new(TrustDomain::default(), []);
    trust.replace(&TrustDomain::default(), Source::Authority, authority.roots()).unwrap();
    (authority, trust, KeyFile::new(&[7; 32]).unwrap())
});

fuzz_target!(|input: (u8, Vec<u8>, Vec<u8>)| {
    let (choice, first, second) = input;
    let (authority, trust, file) = &*AUTHORITY;
    let mut data = self_signed::to_secret(authority, self_signed::SECRET);
    let keys =
        ["ca-cert.pem", "ca-key.pem", "cert-chain.pem", "root-cert.pem", "ca-crl.pem", "tls.crt", "tls.key", "ca.crt"];
    data.insert(keys[usize::from(choice) % keys.len()].to_owned(), first.clone());
    data.insert(keys[usize::from(choice) / 16 % keys.len()].to_owned(), second.clone());
    for error in [plugged_in::load(&data, now()).err(), self_signed::from_secret(&data, now()).err()] {
        let shown = error.map(|error| format!("{error} {error:?}")).unwrap_or_default();
        let secret = authority.key().expose_pem().lines().nth(1).unwrap();
        assert!(!shown.contains(secret), "a private key is shown");
    }
    let _ = plugged_in::load(&BTreeMap::from([("tls.crt".to_owned(), first.clone())]), now());
    let _ = RevocationLists::from_pem(&first, authority.roots());
    let _ = trust.verify(&[first.clone().into(), second.into()], now());
    let _ = file.open(&first, "ca-key");
    let text = String::from_utf8_lossy(&first);
    let _ = JoinToken::parse(&text);
    let _ = Caller::from_forwarded(&text, IpAddr::V4(Ipv4Addr::LOCALHOST), &TrustedRanges::default());
});
