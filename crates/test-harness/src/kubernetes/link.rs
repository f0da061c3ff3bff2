//! A proxy between clients and an API server that injects faults: responses are delayed, fragmented, withheld, cut in
//! the middle of a line or replaced by errors, and requests arrive long after their sender gave up.
//!
//! Clients use plain HTTP, so that the link sees where a request ends; the connection to the server uses TLS. Each
//! request has its own connection. The faults follow deterministically from a seed and the order of requests.

mod faults;
mod request;

use std::net::SocketAddr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::JoinHandle;

use super::ControlPlane;
use super::client::Client;
use crate::run::Result;
use faults::{Dice, Fate};
pub use faults::{FaultPlan, Passage};
use request::Request;

/// The maximum number of bytes forwarded at a time.
const PIECE: usize = 16 << 10;

/// A link to one API server. Dropping it closes all connections.
#[derive(Debug)]
pub struct Link {
    address: SocketAddr,
    server: String,
    administrator: String,
    shared: Arc<Shared>,
    listening: JoinHandle<()>,
}

#[derive(Debug)]
struct Shared {
    client: Client,
    faults: watch::Sender<FaultPlan>,
    /// Incremented to cut all connections.
    cuts: watch::Sender<u64>,
    /// Incremented to release held requests.
    releases: watch::Sender<u64>,
    dice: Mutex<Dice>,
    seen: Mutex<Passage>,
    held: AtomicU64,
}

impl Drop for Link {
    fn drop(&mut self) {
        self.listening.abort();
        self.cut();
    }
}

impl Link {
    /// Starts a link without faults.
    ///
    /// # Errors
    /// The link cannot listen, or the server has no kubeconfig.
    pub async fn start(plane: &ControlPlane, seed: u64) -> Result<Link> {
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        let shared = Arc::new(Shared {
            client: plane.client().clone(),
            faults: watch::Sender::default(),
            cuts: watch::Sender::default(),
            releases: watch::Sender::default(),
            dice: Mutex::new(Dice::new(seed)),
            seen: Mutex::default(),
            held: AtomicU64::new(0),
        });
        let address = listener.local_addr()?;
        let administrator = std::fs::read_to_string(plane.kubeconfig())?;
        Ok(Link {
            address,
            server: plane.url(),
            administrator,
            listening: tokio::spawn(listen(listener, Arc::clone(&shared))),
            shared,
        })
    }

    /// Rewrites a kubeconfig to use the link. The user must authenticate with a token.
    pub fn through(&self, kubeconfig: &str) -> String {
        kubeconfig.replace(&self.server, &format!("http://{}", self.address))
    }

    /// The administrator's kubeconfig, through the link.
    pub fn kubeconfig(&self) -> String {
        self.through(&self.administrator)
    }

    /// Sets the faults for existing and new connections.
    pub fn set(&self, faults: FaultPlan) {
        self.shared.faults.send_replace(faults);
    }

    /// Cuts all connections.
    pub fn cut(&self) {
        self.shared.cuts.send_modify(|cuts| *cuts += 1);
    }

    /// The statistics so far.
    pub fn seen(&self) -> Passage {
        lock(&self.shared.seen).clone()
    }

    /// The number of requests that are held now ([`FaultPlan::hold`]).
    pub fn held(&self) -> u64 {
        self.shared.held.load(Ordering::Relaxed)
    }

    /// Forwards the held requests to the server, whether or not their senders still wait. The status codes of the
    /// responses are recorded in [`Passage::late`].
    pub fn release(&self) {
        self.shared.releases.send_modify(|releases| *releases += 1);
    }
}

async fn listen(listener: TcpListener, shared: Arc<Shared>) {
    while let Ok((client, _)) = listener.accept().await {
        let shared = Arc::clone(&shared);
        let mut cuts = shared.cuts.subscribe();
        cuts.mark_unchanged();
        tokio::spawn(async move {
            // Failing connections are the purpose of the link.
            let _ = shared.carry(client, cuts).await;
        });
    }
}

impl Shared {
    async fn carry(&self, mut client: TcpStream, mut cuts: watch::Receiver<u64>) -> Result<()> {
        if self.faults.borrow().down {
            return Ok(());
        }
        let request = tokio::select! {
            request = Request::read(&mut client) => request?,
            _ = cuts.changed() => return Ok(()),
        };
        let faults = self.faults.borrow().clone();
        if faults.holds(&request.line) {
            return self.deliver_late(&request).await;
        }
        let fate = lock(&self.dice).fate(&faults, &request.line);
        lock(&self.seen).note(&fate, &request.line);
        let carried = async {
            match fate {
                Fate::Answered(answer) => Ok(client.write_all(&answer).await?),
                Fate::Carried { cut } => self.exchange(&request, &mut client, cut).await,
            }
        };
        tokio::select! {
            // A cut connection forwards nothing, even if the fault plan has changed since.
            biased;
            _ = cuts.changed() => Ok(()),
            carried = carried => carried,
        }
    }

    /// Holds a request until it is released and then sends it. The sender receives no response.
    async fn deliver_late(&self, request: &Request) -> Result<()> {
        let mut releases = self.releases.subscribe();
        releases.mark_unchanged();
        self.held.fetch_add(1, Ordering::Relaxed);
        let released = releases.changed().await;
        self.held.fetch_sub(1, Ordering::Relaxed);
        released?;
        let mut server = self.client.connect().await?;
        server.write_all(&request.bytes).await?;
        let mut answer = Vec::new();
        server.read_to_end(&mut answer).await?;
        let text = String::from_utf8_lossy(&answer);
        let code = text.split(' ').nth(1).and_then(|code| code.parse().ok());
        lock(&self.seen).late.push(code.unwrap_or(0));
        Ok(())
    }

    /// Forwards a request and its response until one side closes or `cut` bytes have passed.
    async fn exchange(&self, request: &Request, client: &mut TcpStream, cut: Option<usize>) -> Result<()> {
        let mut server = self.client.connect().await?;
        server.write_all(&request.bytes).await?;
        let mut left = cut.unwrap_or(usize::MAX);
        let mut faults = self.faults.subscribe();
        let (mut buffer, mut more) = (vec![0; PIECE], [0; 1]);
        loop {
            let read = tokio::select! {
                read = server.read(&mut buffer) => read?,
                // The client only closes the connection: it sends nothing after its request.
                _ = client.read(&mut more) => return Ok(()),
            };
            if read == 0 {
                return Ok(client.shutdown().await?);
            }
            let mut rest = &buffer[..read.min(left)];
            left -= rest.len();
            while !rest.is_empty() {
                faults.wait_for(|faults| !faults.silent).await?;
                let (delay, size) = {
                    let now = faults.borrow();
                    (lock(&self.dice).below(now.delay), now.crumb)
                };
                if !delay.is_zero() {
                    tokio::time::sleep(delay).await;
                }
                let size = if size == 0 { rest.len() } else { size.min(rest.len()) };
                client.write_all(&rest[..size]).await?;
                rest = &rest[size..];
            }
            if left == 0 {
                lock(&self.seen).cut += 1;
                return Ok(());
            }
        }
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Dice {
    /// A random duration below this one.
    fn below(&mut self, most: Duration) -> Duration {
        most.mul_f64(self.roll(1000) as f64 / 1000.0)
    }
}
