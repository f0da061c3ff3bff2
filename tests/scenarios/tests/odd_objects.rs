//! Envoy accepts every resource that is derived from valid random objects.
//!
//! `RUTTER_RANDOM=FIRST-LAST` plays the meshes with these seeds (each has fifteen random objects). A single seed prints
//! its objects.
#![allow(clippy::unwrap_used)]

use scenarios::judge::Evidence;
use scenarios::random;

/// The number of meshes that are checked at once.
const AT_ONCE: usize = 100;

fn seeds() -> Vec<u64> {
    let Ok(asked) = std::env::var("RUTTER_RANDOM") else {
        return (0..25).collect();
    };
    let (first, last) = asked.split_once('-').unwrap_or((&asked, &asked));
    (first.parse().unwrap()..=last.parse().unwrap()).collect()
}

#[tokio::test]
async fn envoy_accepts_resources_derived_from_random_objects() {
    let seeds = seeds();
    if let [seed] = seeds[..] {
        random::objects(seed).iter().for_each(|object| eprintln!("{object}"));
    }
    let (mut count, mut refused) = (0, Vec::new());
    for some in seeds.chunks(AT_ONCE) {
        let mut evidence = Evidence::default();
        for seed in some {
            match random::evidence(*seed) {
                Ok(more) => evidence.join(more),
                Err(error) => refused.push(format!("seed {seed}: {error:#}")),
            }
        }
        count += evidence.len();
        refused.extend(evidence.judge().await.unwrap().iter().map(ToString::to_string));
    }
    let objects = seeds.len() * random::OBJECTS;
    assert!(
        refused.is_empty(),
        "of {count} resources of {objects} objects, {} are refused:\n{}",
        refused.len(),
        refused.join("\n\n")
    );
    eprintln!("{count} resources of {objects} objects, all accepted");
}
