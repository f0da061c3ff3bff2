//! Parses the method, path and query of a request. Nothing may panic. Errors have a 4xx status and a message, and the
//! parts of an object's name cannot form another path.

#![no_main]

use api::params::Params;
use api::path::{Route, parse};
use http::Method;
use libfuzzer_sys::fuzz_target;

const METHODS: [Method; 7] = [
    Method::GET,
    Method::HEAD,
    Method::POST,
    Method::PUT,
    Method::PATCH,
    Method::DELETE,
    Method::OPTIONS,
];

fuzz_target!(|input: (u8, &str)| {
    let (choice, text) = input;
    let (path, query) = text.split_once('?').unwrap_or((text, ""));
    let params = match Params::parse(query) {
        Ok(params) => params,
        Err(failure) => {
            assert!(failure.code == 400 && !failure.message.is_empty());
            Params::default()
        }
    };
    let method = &METHODS[usize::from(choice) % METHODS.len()];
    match parse(method, path, &params) {
        Err(failure) => {
            assert!((400..500).contains(&failure.code), "{failure:?}");
            assert_eq!(failure.status()["code"], failure.code);
            assert!(failure.message.len() < 1024, "the error is too long");
        }
        Ok(Route::Objects(target, _)) => {
            let parts = [Some(target.group), Some(target.version), Some(target.plural), target.namespace, target.name];
            for part in parts.into_iter().flatten() {
                assert!(part != "." && part != ".." && !part.contains(['/', '%', '\0']), "{part:?}");
            }
        }
        Ok(_) => {}
    }
});
