//! Hostnames of listeners and routes.

use names::Hostname;

/// The hosts that a listener and a route share: of each pair the narrower one, once, in the order of the route's.
pub fn intersection(listener: &Hostname, route: &[Hostname]) -> Vec<Hostname> {
    let mut found: Vec<Hostname> = Vec::new();
    for host in route {
        let narrower = match (host.subset_of(listener), listener.subset_of(host)) {
            (true, _) => host,
            (false, true) => listener,
            (false, false) => continue,
        };
        if !found.contains(narrower) {
            found.push(narrower.clone());
        }
    }
    found
}

/// Whether a host of a listener belongs to another one: it has a more specific hostname that covers the host. `exists` says
/// whether a listener has a hostname.
pub(crate) fn is_taken(host: &Hostname, own: &Hostname, mut exists: impl FnMut(&Hostname) -> bool) -> bool {
    let mut other = Some(host.clone());
    while let Some(name) = other.filter(|name| name != own && name.subset_of(own)) {
        if exists(&name) {
            return true;
        }
        other = wider(&name);
    }
    false
}

/// The narrowest wildcard that covers a host, other than itself.
pub fn wider(host: &Hostname) -> Option<Hostname> {
    if host.is_everything() {
        return None;
    }
    let text = host.as_str();
    let rest = text.strip_prefix("*.").unwrap_or(text).split_once('.').map(|(_, rest)| rest);
    Hostname::parse(&rest.map_or_else(|| "*".to_owned(), |rest| format!("*.{rest}"))).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn host(text: &str) -> Hostname {
        Hostname::parse(text).unwrap()
    }

    const HOSTS: [&str; 7] =
        ["*", "*.com", "*.example.com", "example.com", "a.example.com", "*.a.example.com", "b.a.example.com"];

    #[test]
    fn the_narrower_host_is_shared() {
        let shared = |listener: &str, route: &[&str]| {
            let route: Vec<Hostname> = route.iter().map(|text| host(text)).collect();
            let found = intersection(&host(listener), &route);
            found.iter().map(Hostname::to_string).collect::<Vec<_>>()
        };
        assert_eq!(shared("*", &["*"]), ["*"]);
        assert_eq!(shared("*.example.com", &["*"]), ["*.example.com"]);
        assert_eq!(shared("*.example.com", &["example.com", "a.b.example.com"]), ["a.b.example.com"]);
        assert_eq!(shared("a.example.com", &["*.example.com", "*.com", "b.com"]), ["a.example.com"]);
        assert!(shared("example.com", &["*.example.com"]).is_empty());
    }

    #[test]
    fn an_intersection_is_symmetric_and_covered_by_both() {
        for (a, b) in HOSTS.iter().flat_map(|a| HOSTS.iter().map(move |b| (host(a), host(b)))) {
            let found = intersection(&a, std::slice::from_ref(&b));
            assert_eq!(found, intersection(&b, std::slice::from_ref(&a)), "{a} and {b}");
            assert!(found.iter().all(|one| one.subset_of(&a) && one.subset_of(&b)), "{a} and {b}");
            assert_eq!(found.is_empty(), !a.matches(&b), "{a} and {b}");
        }
    }

    #[test]
    fn the_most_specific_listener_takes_a_host() {
        let all = ["*", "*.example.com", "foo.example.com"].map(host);
        let owners = |text: &str| {
            let asked = host(text);
            let covers =
                all.iter().filter(|own| asked.subset_of(own) && !is_taken(&asked, own, |name| all.contains(name)));
            covers.map(Hostname::to_string).collect::<Vec<_>>()
        };
        assert_eq!(owners("foo.example.com"), ["foo.example.com"]);
        assert_eq!(owners("bar.example.com"), ["*.example.com"]);
        assert_eq!(owners("*.example.com"), ["*.example.com"]);
        assert_eq!(owners("example.com"), ["*"]);
    }
}
