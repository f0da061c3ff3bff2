use super::*;
use crate::KeyKind;
use crate::tests::{DAY, cacerts, foreign, now, revoked};

fn options() -> Options {
    Options {
        self_signed: Settings { key: KeyKind::P256, ..Settings::new("cluster.local") },
        rotates: true,
        multiple_roots: false,
        in_cacerts: false,
        revocation: true,
    }
}

/// A keeper and the Secrets that its writes change, as an API server with optimistic concurrency does.
struct Replica {
    keeper: Keeper,
    now: SystemTime,
}

#[derive(Default)]
struct Server(BTreeMap<Place, Found>, u32);

impl Server {
    fn put(&mut self, place: Place, data: BTreeMap<String, Vec<u8>>) {
        self.1 += 1;
        self.0.insert(place, Found { data, version: self.1.to_string() });
    }

    /// Whether the write was accepted.
    fn write(&mut self, save: &Save) -> bool {
        let now = self.0.get(&save.place()).map(|found| found.version.clone());
        let fits = now == save.replaces;
        if fits {
            self.put(save.place(), save.found.data.clone());
        }
        fits
    }

    fn content(&self, place: Place) -> Content {
        self.0.get(&place).cloned().map_or(Content::Absent, Content::Present)
    }
}

impl Replica {
    fn new(options: Options) -> Replica {
        Replica { keeper: Keeper::new(options), now: now() }
    }

    fn see(&mut self, server: &Server) {
        for place in [Place::Directory, Place::Cacerts, Place::SelfSigned] {
            self.keeper.observe(place, server.content(place));
        }
    }

    fn step(&mut self, due: bool) -> Step {
        self.keeper.step(self.now, due)
    }

    /// Reads, decides and writes until nothing is left to write.
    fn settle(&mut self, server: &mut Server, due: bool) -> Step {
        for _ in 0..3 {
            self.see(server);
            let step = self.step(due);
            match &step.save {
                Some(save) => drop(server.write(save)),
                None => return step,
            }
        }
        panic!("it never settles");
    }
}

fn own(step: &Step) -> &Authority {
    match &step.issuer {
        Some(Issuer::Own(authority)) => authority,
        other => panic!("{other:?}"),
    }
}

fn refused(step: &Step) -> &str {
    let reason = step.notices.iter().find_map(|notice| match notice {
        Notice::Refused { reason, .. } => Some(&**reason),
        _ => None,
    });
    reason.unwrap_or_else(|| panic!("{step:?}"))
}

#[test]
fn nothing_is_created_before_every_place_was_read() {
    let mut replica = Replica::new(options());
    replica.keeper.observe(Place::SelfSigned, Content::Absent);
    replica.keeper.observe(Place::Cacerts, Content::Absent);
    assert_eq!(replica.step(true), Step { issuer: None, save: None, notices: Vec::new() });
    replica.keeper.observe(Place::Directory, Content::Absent);
    let step = replica.step(false);
    let save = step.save.unwrap();
    assert_eq!((save.name, save.replaces, save.reason), (SECRET, None, Reason::Created));
    assert_eq!(step.issuer, None, "it is used once it is stored");
}

#[test]
fn two_replicas_create_one_authority() {
    let mut server = Server::default();
    let (mut one, mut two) = (Replica::new(options()), Replica::new(options()));
    one.see(&server);
    two.see(&server);
    let (first, second) = (one.step(false).save.unwrap(), two.step(false).save.unwrap());
    assert!(server.write(&first) && !server.write(&second));
    assert_eq!(own(&one.settle(&mut server, false)), own(&two.settle(&mut server, false)));
    assert_eq!(server.1, 1, "written once");
}

#[test]
fn an_unfinished_write_is_repeated_with_the_same_key() {
    let mut replica = Replica::new(options());
    replica.see(&Server::default());
    let first = replica.step(false).save.unwrap();
    assert_eq!(replica.step(true).save.unwrap(), first);
    assert!(!format!("{:?} {first:?}", replica.keeper).contains("PRIVATE"));
}

#[test]
fn the_root_is_rotated_when_it_is_due_and_the_others_reload() {
    let mut server = Server::default();
    let (mut one, mut two) = (Replica::new(options()), Replica::new(options()));
    let old = own(&one.settle(&mut server, true)).clone();
    two.settle(&mut server, true);
    one.now = now() + DAY * 3000;
    two.now = one.now;
    assert!(one.step(false).save.is_none(), "not before the check");
    one.see(&server);
    two.see(&server);
    let (first, second) = (one.step(true).save.unwrap(), two.step(true).save.unwrap());
    assert_eq!((first.reason, first.replaces.as_deref()), (Reason::Rotated, Some("1")));
    assert!(server.write(&first) && !server.write(&second));
    let (left, right) = (one.settle(&mut server, true), two.settle(&mut server, true));
    assert_eq!(own(&left), own(&right));
    assert_eq!(server.1, 2, "rotated once");
    assert_ne!(own(&left).issuer(), old.issuer());
    assert_eq!(own(&left).roots(), [own(&left).issuer().clone()], "it takes the place of the old root of the same key");
    let Notice::Used { replaces_key, roots, .. } = &right.notices[0] else { panic!("{right:?}") };
    assert!(!replaces_key && *roots == 1);
}

#[test]
fn an_expired_root_is_renewed_at_once_unless_rotation_is_off() {
    let mut server = Server::default();
    let old = own(&Replica::new(options()).settle(&mut server, false)).clone();
    let late = now() + DAY * 4000;
    let mut idle = Replica { now: late, ..Replica::new(Options { rotates: false, ..options() }) };
    idle.see(&server);
    assert_eq!(idle.step(true).save, None);
    let mut replica = Replica { now: late, ..Replica::new(options()) };
    replica.see(&server);
    let step = replica.step(false);
    assert_eq!(step.save.as_ref().unwrap().reason, Reason::Recovered);
    let new = own(&replica.settle(&mut server, false)).clone();
    assert_eq!(new.issuer().public_key(), old.issuer().public_key());
    assert!(new.issuer().is_valid_at(late));
}

#[test]
fn a_deleted_secret_is_written_again_and_a_replaced_one_is_followed() {
    let mut server = Server::default();
    let mut replica = Replica::new(options());
    let old = own(&replica.settle(&mut server, false)).clone();
    server.0.clear();
    replica.see(&server);
    assert_eq!(replica.step(false).save.unwrap().reason, Reason::Restored);
    assert_eq!(own(&replica.settle(&mut server, false)), &old);
    let other = crate::tests::root("cluster.local", now());
    server.put(Place::SelfSigned, self_signed::to_secret(&other, SECRET));
    let step = replica.settle(&mut server, false);
    assert_eq!(own(&step), &other, "all replicas sign with the key of the Secret");
    assert!(matches!(step.notices[0], Notice::Used { replaces_key: true, .. }));
}

#[test]
fn the_secret_cacerts_can_hold_a_self_signed_authority() {
    let mut server = Server::default();
    let mut replica = Replica::new(Options { in_cacerts: true, ..options() });
    let first = own(&replica.settle(&mut server, false)).clone();
    assert!(server.0[&Place::Cacerts].data.contains_key("istio-generated"));
    // Another control plane without the setting finds it, and rotates it there.
    let mut other = Replica { now: now() + DAY * 3500, ..Replica::new(options()) };
    other.see(&server);
    assert_eq!(other.step(true).save.unwrap().name, CACERTS);
    // A mounted copy is not mistaken for an operator's certificates.
    let mounted = server.0[&Place::Cacerts].data.clone();
    server.put(Place::Directory, mounted);
    assert_eq!(own(&replica.settle(&mut server, false)), &first);
    // `istio-ca-secret` is preferred, as in istiod.
    let preferred = crate::tests::root("cluster.local", now());
    server.put(Place::SelfSigned, self_signed::to_secret(&preferred, SECRET));
    assert_eq!(own(&Replica::new(options()).settle(&mut server, false)), &preferred);
}

#[test]
fn plugged_in_certificates_take_precedence_and_a_broken_set_keeps_the_last_good_one() {
    let mut server = Server::default();
    let root = foreign("root", None, |_| ());
    let issuer = foreign("issuer", Some(&root), |_| ());
    let good = cacerts(&issuer, &[&issuer], &[&root]);
    server.put(Place::Cacerts, good.clone());
    let mut replica = Replica::new(options());
    let first = own(&replica.settle(&mut server, true)).clone();
    assert_eq!(first.issuer().subject(), "CN=issuer");
    let mut broken = good.clone();
    broken.remove("ca-key.pem");
    server.put(Place::Cacerts, broken);
    let step = replica.settle(&mut server, false);
    assert_eq!(own(&step), &first);
    assert!(refused(&step).starts_with("the Secret cacerts: ca-key.pem is missing"), "{}", refused(&step));
    assert!(replica.keeper.problem().is_some());
    assert!(replica.settle(&mut server, false).notices.is_empty(), "reported once");
    // Removed certificates do not lead to a self-signed root while proxies run.
    server.0.clear();
    let step = replica.settle(&mut server, false);
    assert_eq!((own(&step), step.save.is_some()), (&first, false));
    assert!(refused(&step).contains("the certificates were removed"), "{}", refused(&step));
    let next = foreign("next", Some(&root), |_| ());
    server.put(Place::Cacerts, cacerts(&next, &[&next], &[&root]));
    let step = replica.settle(&mut server, false);
    assert_eq!(own(&step).issuer().subject(), "CN=next", "another issuer of the same root");
    assert!(step.notices.contains(&Notice::Resolved));
}

#[test]
fn a_broken_set_at_the_start_creates_no_root() {
    let mut server = Server::default();
    let root = foreign("root", None, |_| ());
    let mut data = cacerts(&root, &[], &[&root]);
    data.remove("root-cert.pem");
    server.put(Place::Directory, data);
    let mut replica = Replica::new(options());
    let step = replica.settle(&mut server, true);
    let Some(Issuer::Unavailable(reason)) = &step.issuer else { panic!("{step:?}") };
    assert!(reason.starts_with("the directory ROOT_CA_DIR: root-cert.pem is missing"), "{reason}");
    replica.keeper.observe(Place::Directory, Content::Unreadable("permission denied".to_owned()));
    assert!(refused(&replica.step(true)).contains("permission denied"));
}

#[test]
fn roots_change_only_by_addition_and_removal() {
    let mut server = Server::default();
    let (old, new) = (foreign("old", None, |_| ()), foreign("new", None, |_| ()));
    let set = |issuer: &crate::tests::Foreign, roots: &[&crate::tests::Foreign]| cacerts(issuer, &[], roots);
    for multiple_roots in [false, true] {
        let mut replica = Replica::new(Options { multiple_roots, ..options() });
        server.put(Place::Directory, set(&old, &[&old]));
        let first = own(&replica.settle(&mut server, false)).clone();
        server.put(Place::Directory, set(&new, &[&new]));
        let step = replica.settle(&mut server, false);
        assert_eq!(own(&step), &first, "the root was replaced");
        server.put(Place::Directory, set(&old, &[&old, &new]));
        let step = replica.settle(&mut server, false);
        assert_eq!(own(&step).roots().len(), if multiple_roots { 2 } else { 1 });
        if multiple_roots {
            server.put(Place::Directory, set(&new, &[&old, &new]));
            assert_eq!(own(&replica.settle(&mut server, false)).issuer().subject(), "CN=new");
            server.put(Place::Directory, set(&new, &[&new]));
            assert_eq!(own(&replica.settle(&mut server, false)).roots().len(), 1);
        }
    }
}

#[test]
fn revocation_lists_are_used_unless_they_are_off() {
    let mut server = Server::default();
    let root = foreign("root", None, |_| ());
    let mut data = cacerts(&root, &[], &[&root]);
    data.insert("ca-crl.pem".to_owned(), revoked(&root, &[&[7]]).into());
    server.put(Place::Directory, data);
    let with = Replica::new(options()).settle(&mut server, false);
    assert!(own(&with).revocation_pem().is_some());
    let without = Replica::new(Options { revocation: false, ..options() }).settle(&mut server, false);
    assert!(own(&without).revocation_pem().is_none());
}
