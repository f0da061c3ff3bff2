//! A real Envoy accepts every resource that any proxy of any scenario has at any step.
#![allow(clippy::unwrap_used)]

use scenarios::judge::Evidence;

#[tokio::test]
async fn envoy_accepts_all_resources_of_scenarios() {
    let mut evidence = Evidence::default();
    for file in scenarios::files().unwrap() {
        evidence.join(scenarios::run::collect(&file).unwrap());
    }
    let count = evidence.len();
    let refusals = evidence.judge().await.unwrap();
    let shown: Vec<String> = refusals.iter().map(ToString::to_string).collect();
    assert!(refusals.is_empty(), "of {count} resources, {} are refused:\n{}", refusals.len(), shown.join("\n\n"));
    eprintln!("{count} resources, all accepted");
}
