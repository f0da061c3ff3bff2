//! Parses a SPIFFE bundle, a request for another signer, and a join token. Nothing may panic or hang, and every root of an accepted
//! bundle is a certificate authority.

#![no_main]

use ca::join::JoinToken;
use ca::registration::check_request;
use libfuzzer_sys::fuzz_target;
use names::Identity;

fuzz_target!(|bytes: &[u8]| {
    if let Ok(bundle) = ca::spiffe::parse(bytes) {
        assert!(!bundle.roots.is_empty() && bundle.roots.iter().all(ca::Certificate::is_authority));
    }
    let text = String::from_utf8_lossy(bytes);
    let caller = Identity::parse("spiffe://cluster.local/ns/shop/sa/cart").unwrap();
    let _ = check_request(&text, &caller);
    if let Ok(token) = JoinToken::parse(&text) {
        assert_eq!(JoinToken::parse(&token.expose()).unwrap().id(), token.id());
    }
});
