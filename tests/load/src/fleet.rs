//! The simulated proxies of a run, and how the cost of a change for them is measured.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use anyhow::{Result, bail};
use rustls::ClientConfig;
use test_harness::run::Protocol;
use tokio::sync::Semaphore;
use tokio::task::{AbortHandle, JoinSet};

use crate::certificates::{self, Issuer};
use crate::client::{self, Place, Seen};
use crate::mesh::Mesh;
use crate::objects::Size;
use crate::probe::Spent;
use crate::process::{PATIENCE, QUIET, idle};
use crate::report::Measured;
use crate::wire;

/// The number of proxies that connect at the same time.
const KNOCKING: usize = 50;
/// The number of the gateway.
const GATEWAY: usize = usize::MAX;

/// The interval at which responses are counted.
const POLL: Duration = Duration::from_millis(50);

/// The proxies that a change affects.
#[derive(Clone, Copy)]
pub(crate) enum Whom {
    /// Every proxy from this number on.
    AllFrom(usize),
    /// Some proxies; the number is not known in advance, because Sidecars limit what they see.
    Some,
}

impl Whom {
    /// The proxies that see every change.
    pub(crate) fn of(size: Size) -> Whom {
        if size.rules { Whom::Some } else { Whom::AllFrom(0) }
    }
}

/// The proxies, and their control plane.
pub(crate) struct Fleet<'m> {
    pub(crate) mesh: &'m Mesh,
    pub(crate) pid: u32,
    address: SocketAddr,
    protocol: Protocol,
    proxies: Vec<Member>,
    tasks: JoinSet<Result<()>>,
    door: Arc<Semaphore>,
    /// The bytes and responses of proxies that were replaced.
    gone: (u64, u64),
    /// Signs the certificates of proxies that connect over TLS.
    issuer: Option<Arc<Issuer>>,
}

/// One proxy.
struct Member {
    /// The number of its workload.
    number: usize,
    seen: Arc<Seen>,
    task: Option<AbortHandle>,
    /// Its certificate, and how it verifies that of the control plane.
    tls: Option<Arc<ClientConfig>>,
}

impl Member {
    fn new(number: usize) -> Member {
        Member { number, seen: Arc::default(), task: None, tls: None }
    }
}

impl<'m> Fleet<'m> {
    /// No proxies yet, of the control plane with this address and process ID.
    pub(crate) fn new(mesh: &'m Mesh, address: SocketAddr, protocol: Protocol, pid: u32) -> Fleet<'m> {
        let door = Arc::new(Semaphore::new(KNOCKING));
        Fleet {
            mesh,
            pid,
            address,
            protocol,
            proxies: Vec::new(),
            tasks: JoinSet::new(),
            door,
            gone: (0, 0),
            issuer: None,
        }
    }

    /// The same proxies over TLS, at this address. Each gets a certificate of its own service account.
    pub(crate) fn over_tls(self, address: SocketAddr, issuer: Arc<Issuer>) -> Fleet<'m> {
        Fleet { address, issuer: Some(issuer), ..self }
    }

    /// Connects this many more proxies.
    pub(crate) fn connect(&mut self, count: usize) -> Result<()> {
        let from = self.proxies.len();
        self.proxies.extend((from..from + count).map(Member::new));
        self.open_streams(from)
    }

    /// Connects one more proxy, which rejects each response with the endpoints of this cluster, with this error.
    pub(crate) fn connect_refusing(&mut self, cluster: &str, error: &str) -> Result<()> {
        let member = Member::new(self.proxies.len());
        member.seen.refuse(cluster, error);
        self.add(member)
    }

    /// Connects the gateway of all Gateways.
    pub(crate) fn connect_gateway(&mut self) -> Result<()> {
        self.add(Member::new(GATEWAY))
    }

    fn add(&mut self, member: Member) -> Result<()> {
        self.proxies.push(member);
        self.open_stream(self.proxies.len() - 1)
    }

    /// Records from now on when proxies receive this cluster's endpoints.
    pub(crate) fn expect(&self, cluster: &str) {
        self.proxies.iter().for_each(|proxy| proxy.seen.expect(cluster));
    }

    /// Records from now on when the gateway receives a route table with this host.
    pub(crate) fn expect_host(&self, host: &str) {
        self.proxies.iter().for_each(|proxy| proxy.seen.expect_host(host));
    }

    /// When the gateway received the expected host.
    pub(crate) fn expected_host(&self) -> Option<Instant> {
        self.proxies.iter().find_map(|proxy| proxy.seen.expected_host())
    }

    /// Waits until all sidecars have received what is expected. Returns when the last one did.
    pub(crate) async fn expected(&mut self) -> Result<Option<Instant>> {
        let begin = Instant::now();
        loop {
            let sidecars = self.proxies.iter().filter(|proxy| proxy.number != GATEWAY);
            let times: Option<Vec<Instant>> = sidecars.map(|proxy| proxy.seen.expected()).collect();
            if let Some(times) = times {
                return Ok(times.into_iter().max());
            }
            self.check()?;
            if begin.elapsed() > PATIENCE {
                bail!("a change did not arrive in {PATIENCE:?}");
            }
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
    }

    /// Disconnects one proxy and connects another, of the workload with this number.
    pub(crate) fn replace(&mut self, at: usize, number: usize) -> Result<()> {
        self.proxies.push(Member::new(number));
        let replaced = self.proxies.swap_remove(at);
        self.part_with(&replaced);
        self.open_stream(at)
    }

    /// Disconnects and removes the proxies from this place on.
    pub(crate) fn dismiss(&mut self, from: usize) {
        for member in self.proxies.split_off(from) {
            self.part_with(&member);
        }
    }

    /// Ends the stream of a removed proxy. What it received is still counted.
    fn part_with(&mut self, member: &Member) {
        if let Some(task) = &member.task {
            task.abort();
        }
        let (bytes, responses) = member.seen.totals();
        self.gone = (self.gone.0 + bytes, self.gone.1 + responses);
    }

    /// The number of proxies.
    pub(crate) fn len(&self) -> usize {
        self.proxies.len()
    }

    fn open_streams(&mut self, from: usize) -> Result<()> {
        (from..self.proxies.len()).try_for_each(|at| self.open_stream(at))
    }

    fn open_stream(&mut self, at: usize) -> Result<()> {
        let window = client::window(self.proxies.len());
        let member = &mut self.proxies[at];
        let node = match member.number {
            GATEWAY => wire::gateway(),
            number => {
                let workload = self.mesh.workload(number);
                if let Some(issuer) = self.issuer.as_ref().filter(|_| member.tls.is_none()) {
                    member.tls = Some(certificates::client_config(issuer, &workload.namespace, &workload.app)?);
                }
                wire::node(&workload)
            }
        };
        let (seen, door) = (Arc::clone(&member.seen), Arc::clone(&self.door));
        let place = Place { address: self.address, tls: member.tls.clone(), window };
        member.task = Some(self.tasks.spawn(client::run(place, node, self.protocol, seen, door)));
        Ok(())
    }

    /// Ends all streams. The proxies keep what they have.
    pub(crate) async fn hang_up(&mut self) {
        self.tasks.shutdown().await;
    }

    /// Removes all proxies, which must be disconnected.
    pub(crate) fn forget(&mut self) {
        self.gone = self.totals();
        self.proxies.clear();
    }

    /// Fails if a stream has ended that was not aborted.
    pub(crate) fn check(&mut self) -> Result<()> {
        while let Some(ended) = self.tasks.try_join_next() {
            match ended {
                Err(error) if error.is_cancelled() => {}
                ended => ended??,
            }
        }
        Ok(())
    }

    /// Opens a new stream for each proxy, which reports the resources that it has. `when` tells what happened before.
    pub(crate) async fn reconnect(&mut self, when: &str) -> Result<Measured> {
        let resources =
            |fleet: &Self| fleet.proxies.iter().map(|p| p.seen.resources.load(Ordering::Relaxed)).sum::<u64>();
        let before = resources(self);
        let row = self.measure(Whom::AllFrom(0), "", async |fleet| fleet.open_streams(0)).await?;
        let work = format!("all proxies reconnect {when} ({} resources sent)", resources(self) - before);
        Ok(Measured { work, ..row })
    }

    /// Disconnects all proxies at the same time, and waits until the control plane is idle.
    pub(crate) async fn leave(&mut self) -> Result<Measured> {
        let (begin, used) = (Instant::now(), Spent::by(self.pid)?);
        self.hang_up().await;
        let took = idle(self.pid).await?.saturating_duration_since(begin);
        Ok(Measured::quiet("all proxies disconnect", took, Spent::by(self.pid)?.since(&used)))
    }

    /// Makes `change`, waits until no response arrives any more, and reports the cost.
    pub(crate) async fn measure(
        &mut self,
        whom: Whom,
        work: &str,
        change: impl AsyncFnOnce(&mut Self) -> Result<()>,
    ) -> Result<Measured> {
        let (bytes, responses) = self.totals();
        let used = Spent::by(self.pid)?;
        self.proxies.iter().for_each(|proxy| proxy.seen.forget());
        self.mesh.told();
        let begin = Instant::now();
        change(self).await?;
        self.settle(begin, whom).await?;
        let Spent { processor, kernel } = Spent::by(self.pid)?.since(&used);
        // A proxy has a change when the last response with it has arrived.
        let mut arrived: Vec<Instant> =
            self.proxies.iter().filter_map(|proxy| proxy.seen.times()).map(|(_, last)| last).collect();
        arrived.sort();
        let (Some(first), Some(last)) = (arrived.first(), arrived.last()) else { bail!("{work}: nobody heard of it") };
        let (bytes_after, responses_after) = self.totals();
        Ok(Measured {
            work: work.to_owned(),
            told: self.mesh.told().map(|told| told - begin),
            first: *first - begin,
            last: *last - begin,
            processor,
            kernel,
            bytes: bytes_after - bytes,
            responses: responses_after - responses,
        })
    }

    /// Waits until the affected proxies have got a response, and then until no proxy gets one for a while, and the control plane
    /// derives none.
    async fn settle(&mut self, begin: Instant, whom: Whom) -> Result<()> {
        let mut before = (self.totals(), Spent::by(self.pid)?);
        let mut since = Instant::now();
        loop {
            tokio::time::sleep(POLL).await;
            self.check()?;
            let now = (self.totals(), Spent::by(self.pid)?);
            let works = now.1.since(&before.1).processor > POLL / 2;
            if now.0 != before.0 || works {
                since = Instant::now();
            }
            before = now;
            let (from, least) = match whom {
                Whom::AllFrom(from) => (from, self.proxies.len() - from),
                Whom::Some => (0, 1),
            };
            let concerned = &self.proxies[from..];
            let heard = concerned.iter().filter(|proxy| proxy.seen.times().is_some()).count();
            let settled = self.proxies.iter().all(|proxy| proxy.seen.is_settled());
            if heard >= least && settled && since.elapsed() > QUIET {
                return Ok(());
            }
            if begin.elapsed() > PATIENCE {
                bail!("{heard} of {} proxies heard of it in {PATIENCE:?}", concerned.len());
            }
        }
    }

    /// The bytes and responses that all proxies have received.
    pub(crate) fn totals(&self) -> (u64, u64) {
        self.proxies.iter().map(|proxy| proxy.seen.totals()).fold(self.gone, |all, one| (all.0 + one.0, all.1 + one.1))
    }
}
