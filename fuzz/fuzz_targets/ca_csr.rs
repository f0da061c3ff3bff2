//! Parses a certificate signing request, in DER and PEM. Nothing may panic or hang, and an accepted request must have a
//! public key that can be certified and gives no other name than the caller's.

#![no_main]

use std::sync::LazyLock;
use std::time::{Duration, SystemTime};

use ca::self_signed::{Settings, create};
use ca::trust::Source;
use ca::{Authority, Certificate, Csr, KeyKind, Lifetimes, TrustBundle};
use libfuzzer_sys::fuzz_target;
use names::{Identity, TrustDomain};

fn now() -> SystemTime {
    SystemTime::UNIX_EPOCH + Duration::from_secs(1_800_000_000)
}

static AUTHORITY: LazyLock<(Authority, TrustBundle)> = LazyLock::new(|| {
    let authority = create(&Settings { key: KeyKind::P256, ..Settings::new("cluster.local") }, now()).unwrap();
    let mut trust = TrustBundle::new(TrustDomain::default(), []);
    trust.replace(&TrustDomain::default(), Source::Authority, authority.roots()).unwrap();
    (authority, trust)
});

fuzz_target!(|bytes: &[u8]| {
    let _ = Csr::from_pem(&String::from_utf8_lossy(bytes));
    let Ok(csr) = Csr::from_der(bytes) else {
        return;
    };
    let (authority, trust) = &*AUTHORITY;
    let caller = Identity::parse("spiffe://cluster.local/ns/shop/sa/cart").unwrap();
    let issued = authority.issue(&csr, std::slice::from_ref(&caller), 0, &Lifetimes::default(), now()).unwrap();
    assert!(!Certificate::from_der(&issued.der).unwrap().is_authority());
    assert_eq!(trust.verify(&issued.presented(), now()), Ok(caller));
});
