use std::collections::BTreeMap;

use ca::KeyKind;
use ca::keeper::{Found, Options};
use ca::self_signed::{SECRET, Settings, create, to_secret};
use tokio::time::sleep;

use super::*;
use crate::authority::storage::StorageError;

const DAY: Duration = Duration::from_secs(86_400);
const HOUR: Duration = Duration::from_secs(3600);

/// An API server with one Secret, which reports each change to all replicas.
#[derive(Clone, Default)]
struct Server(Arc<Mutex<State>>);

#[derive(Default)]
struct State {
    secret: Option<Found>,
    writes: u32,
    failures: u32,
    replicas: Vec<mpsc::Sender<Event>>,
}

impl Server {
    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap()
    }

    fn put(&self, secret: Option<BTreeMap<String, Vec<u8>>>) -> String {
        let mut state = self.state();
        state.writes += 1;
        let version = state.writes.to_string();
        state.secret = secret.map(|data| Found { data, version: version.clone() });
        let content = state.secret.clone().map_or(Content::Absent, Content::Present);
        for replica in &state.replicas {
            replica.try_send((Place::SelfSigned, content.clone())).unwrap();
        }
        version
    }
}

impl Secrets for Server {
    async fn read(&self, _: &str) -> Result<Option<Found>, StorageError> {
        Ok(self.state().secret.clone())
    }

    async fn write(
        &self,
        name: &str,
        data: &BTreeMap<String, Vec<u8>>,
        replaces: Option<&str>,
    ) -> Result<Option<String>, StorageError> {
        assert_eq!(name, SECRET);
        // Replicas write at the same time.
        sleep(Duration::from_millis(20)).await;
        {
            let mut state = self.state();
            if state.failures > 0 {
                state.failures -= 1;
                return Err(StorageError("unavailable".to_owned()));
            }
            if state.secret.as_ref().map(|found| &*found.version) != replaces {
                return Ok(None);
            }
        }
        Ok(Some(self.put(Some(data.clone()))))
    }
}

struct Replica {
    issuer: watch::Receiver<Option<Issuer>>,
    _mesh: watch::Sender<Arc<MeshConfig>>,
}

impl Replica {
    /// Starts a replica whose clock begins now and runs with the paused time of the test.
    fn start(server: &Server, interval: Duration) -> Replica {
        let (begin, started) = (SystemTime::now(), Instant::now());
        let (mesh, mesh_seen) = watch::channel(Arc::new(MeshConfig::default()));
        let (issuer, seen) = watch::channel(None);
        let options = Options {
            self_signed: Settings {
                key: KeyKind::P256,
                lifetime: DAY * 10,
                ..Settings::new("replaced by the trust domain")
            },
            rotates: !interval.is_zero(),
            multiple_roots: false,
            in_cacerts: false,
            revocation: true,
        };
        let keeping = Keeping {
            keeper: Arc::new(Mutex::new(Keeper::new(options))),
            secrets: server.clone(),
            schedule: Schedule { interval, jitter: true },
            clock: Arc::new(move || begin + started.elapsed()),
            mesh: mesh_seen,
            issuer,
        };
        let (events, queue) = mpsc::channel(QUEUE);
        let mut state = server.state();
        let content = state.secret.clone().map_or(Content::Absent, Content::Present);
        let others = [Place::Directory, Place::Cacerts].map(|place| (place, Content::Absent));
        for event in others.into_iter().chain([(Place::SelfSigned, content)]) {
            events.try_send(event).unwrap();
        }
        state.replicas.push(events);
        drop(state);
        tokio::spawn(keeping.run(queue));
        Replica { issuer: seen, _mesh: mesh }
    }

    async fn authority(&mut self) -> ca::Authority {
        let own = |issuer: &Option<Issuer>| matches!(issuer, Some(Issuer::Own(_)));
        match &*self.issuer.wait_for(own).await.unwrap() {
            Some(Issuer::Own(authority)) => authority.clone(),
            other => panic!("{other:?}"),
        }
    }

    async fn changed(&mut self) -> ca::Authority {
        self.issuer.mark_unchanged();
        self.issuer.changed().await.unwrap();
        self.authority().await
    }
}

#[tokio::test(start_paused = true)]
async fn two_replicas_create_one_authority_and_rotate_it_once() {
    let server = Server::default();
    let (mut one, mut two) = (Replica::start(&server, HOUR), Replica::start(&server, HOUR));
    let first = one.authority().await;
    assert_eq!(first, two.authority().await);
    assert_eq!(first.issuer().subject(), "O=cluster.local");
    assert_eq!(server.state().writes, 1, "created once");
    let before = Instant::now();
    let second = one.changed().await;
    let after = before.elapsed();
    // Eight of ten days are over, and the next check has come.
    assert!(after > DAY * 8 - HOUR && after < DAY * 8 + HOUR * 2, "{after:?}");
    let same = |issuer: &Option<Issuer>| matches!(issuer, Some(Issuer::Own(own)) if *own == second);
    two.issuer.wait_for(same).await.unwrap();
    assert_eq!(server.state().writes, 2, "rotated once");
    assert_eq!(second.roots(), [second.issuer().clone()]);
    assert_ne!(second.issuer(), first.issuer());
}

#[tokio::test(start_paused = true)]
async fn without_an_interval_nothing_is_rotated() {
    let server = Server::default();
    let mut replica = Replica::start(&server, Duration::ZERO);
    replica.authority().await;
    sleep(DAY * 20).await;
    assert_eq!(server.state().writes, 1);
}

#[tokio::test(start_paused = true)]
async fn an_expired_root_is_renewed_at_the_start() {
    let server = Server::default();
    let settings = Settings { key: KeyKind::P256, lifetime: DAY, ..Settings::new("cluster.local") };
    let old = create(&settings, SystemTime::now() - DAY * 5).unwrap();
    server.put(Some(to_secret(&old, SECRET)));
    let mut replica = Replica::start(&server, HOUR);
    let valid = |issuer: &Option<Issuer>| matches!(issuer, Some(Issuer::Own(own)) if own.issuer().is_valid_at(SystemTime::now()));
    let before = Instant::now();
    replica.issuer.wait_for(valid).await.unwrap();
    assert!(before.elapsed() < Duration::from_secs(1), "it does not wait for a check");
    assert_eq!(server.state().writes, 2);
}

#[tokio::test(start_paused = true)]
async fn a_failed_write_is_repeated_and_until_then_nobody_signs() {
    let server = Server::default();
    server.state().failures = 3;
    let mut replica = Replica::start(&server, HOUR);
    let unavailable = |issuer: &Option<Issuer>| matches!(issuer, Some(Issuer::Unavailable(_)));
    let Some(Issuer::Unavailable(reason)) = replica.issuer.wait_for(unavailable).await.unwrap().clone() else {
        panic!("available")
    };
    assert_eq!(reason, "the certificate authority cannot be stored: unavailable");
    replica.authority().await;
    assert_eq!(server.state().writes, 1);
}

#[tokio::test(start_paused = true)]
async fn a_failed_rotation_leaves_the_old_root_in_use() {
    let server = Server::default();
    let mut replica = Replica::start(&server, HOUR);
    let first = replica.authority().await;
    server.state().failures = u32::MAX;
    sleep(DAY * 9).await;
    assert_eq!(replica.authority().await, first);
    server.state().failures = 0;
    let second = replica.changed().await;
    assert_ne!(second, first);
}

#[tokio::test(start_paused = true)]
async fn a_deleted_secret_is_written_again() {
    let server = Server::default();
    let mut replica = Replica::start(&server, HOUR);
    let first = replica.authority().await;
    server.put(None);
    sleep(Duration::from_secs(1)).await;
    let found = server.state().secret.clone().unwrap();
    assert_eq!(ca::self_signed::from_secret(&found.data, SystemTime::now()).unwrap(), first);
}
