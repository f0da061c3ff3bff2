//! Calls to the members of an etcd cluster: member selection, timeouts and error classification.

use std::sync::RwLock;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use protos::etcdserverpb as pb;
use tokio::sync::watch;
use tokio::time::{Instant, sleep, timeout_at};
use tonic::client::Grpc;
use tonic::codegen::http::uri::PathAndQuery;
use tonic::metadata::{Ascii, MetadataValue};
use tonic::transport::{Certificate, Channel, ClientTlsConfig, Endpoint, Identity};
use tonic::{Code, Request, Status};
use tonic_prost::ProstCodec;

use super::Options;
use crate::{Error, Revision};

/// The maximum size of an answer; a page of the largest objects is smaller.
const ANSWER_LIMIT: usize = 512 << 20;
/// The interval of keepalive pings.
const KEEP_ALIVE: Duration = Duration::from_secs(10);
/// The wait after all members failed for the first time; it doubles.
const FIRST_WAIT: Duration = Duration::from_millis(20);
const LONGEST_WAIT: Duration = Duration::from_secs(1);

/// Whether a call may be retried when its answer was lost.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Effect {
    /// Read-only or idempotent.
    Repeatable,
    /// Not idempotent.
    Once,
}

/// A failure that the caller may handle.
#[derive(Debug)]
pub(super) enum Failure {
    /// The requested revision was compacted.
    Compacted,
    /// The requested revision is in the future.
    Future,
    /// The request exceeds etcd's size limit.
    TooLarge,
    /// Any other error.
    Store(Error),
}

impl From<Error> for Failure {
    fn from(error: Error) -> Failure {
        Failure::Store(error)
    }
}

impl From<Failure> for Error {
    /// For calls that cannot fail in these ways.
    fn from(failure: Failure) -> Error {
        match failure {
            Failure::Store(error) => error,
            other => Error::Unavailable(format!("etcd refused the call: {other:?}")),
        }
    }
}

pub(super) struct Client {
    members: Vec<Member>,
    current: AtomicUsize,
    login: Option<super::Login>,
    token: RwLock<Option<MetadataValue<Ascii>>>,
    timeout: Duration,
    /// The newest revision in any answer.
    newest: AtomicU64,
    closed: watch::Sender<bool>,
}

struct Member {
    endpoint: String,
    channel: Channel,
}

/// The failure of one attempt.
enum Attempt {
    /// etcd did not receive the request, or rejected it without effect.
    NotDone(String),
    /// The outcome is unknown.
    Lost(String),
    /// The token has expired.
    Token,
    /// Retrying does not help.
    Failed(Failure),
}

impl From<Attempt> for Failure {
    fn from(attempt: Attempt) -> Failure {
        match attempt {
            Attempt::Failed(failure) => failure,
            Attempt::NotDone(text) | Attempt::Lost(text) => Error::Unavailable(text).into(),
            Attempt::Token => Error::Unavailable("the token has expired".to_owned()).into(),
        }
    }
}

impl Client {
    /// Prepares connections. They are established on first use.
    pub(super) fn new(options: &Options) -> Result<Client, Error> {
        let mut members = Vec::new();
        for endpoint in &options.endpoints {
            members.push(Member { endpoint: endpoint.clone(), channel: channel(endpoint, options)? });
        }
        if members.is_empty() {
            return Err(Error::Invalid("no etcd address is configured".into()));
        }
        Ok(Client {
            // Spreads replicas over the members.
            current: AtomicUsize::new(std::process::id() as usize % members.len()),
            members,
            login: options.login.clone(),
            token: RwLock::new(None),
            timeout: options.timeout,
            newest: AtomicU64::new(0),
            closed: watch::channel(false).0,
        })
    }

    /// Calls one member after the other until one answers or the timeout is over.
    pub(super) async fn call<Q, A>(&self, path: &'static str, request: Q, effect: Effect) -> Result<A, Failure>
    where
        Q: protos::Message + Clone + Default + Send + Sync + 'static,
        A: protos::Message + Default + Send + Sync + 'static,
    {
        let mut closed = self.closed.subscribe();
        tokio::select! {
            biased;
            () = is_closed(&mut closed) => Err(Error::Closed.into()),
            answer = self.attempts(path, request, effect) => answer,
        }
    }

    async fn attempts<Q, A>(&self, path: &'static str, request: Q, effect: Effect) -> Result<A, Failure>
    where
        Q: protos::Message + Clone + Default + Send + Sync + 'static,
        A: protos::Message + Default + Send + Sync + 'static,
    {
        let end = Instant::now() + self.timeout;
        let mut wait = FIRST_WAIT;
        let mut tries = 0;
        loop {
            let index = self.current();
            // A read at a member without a quorum must leave time for another member.
            let share = match effect {
                Effect::Repeatable => self.timeout / 3,
                Effect::Once => self.timeout,
            };
            let until = end.min(Instant::now() + share);
            let last = match self.attempt(index, path, request.clone(), until).await {
                Ok(answer) => return Ok(answer),
                Err(Attempt::Failed(failure)) => return Err(failure),
                Err(Attempt::Lost(text)) if effect == Effect::Once => return Err(Error::Unknown(text).into()),
                Err(Attempt::Lost(text) | Attempt::NotDone(text)) => {
                    self.avoid(index);
                    text
                }
                Err(Attempt::Token) => {
                    self.set_token(None);
                    "etcd rejects its own token".to_owned()
                }
            };
            tries += 1;
            if tries % self.members.len() == 0 {
                if Instant::now() + wait >= end {
                    return Err(Error::Unavailable(last).into());
                }
                sleep(wait).await;
                wait = (wait * 2).min(LONGEST_WAIT);
            } else if Instant::now() >= end {
                return Err(Error::Unavailable(last).into());
            }
        }
    }

    async fn attempt<Q, A>(&self, index: usize, path: &'static str, request: Q, until: Instant) -> Result<A, Attempt>
    where
        Q: protos::Message + Clone + Default + Send + Sync + 'static,
        A: protos::Message + Default + Send + Sync + 'static,
    {
        let mut request = self.request(index, request, until).await?;
        request.set_timeout(until.saturating_duration_since(Instant::now()));
        self.unary(index, path, request, until).await
    }

    async fn unary<Q, A>(
        &self,
        index: usize,
        path: &'static str,
        request: Request<Q>,
        until: Instant,
    ) -> Result<A, Attempt>
    where
        Q: protos::Message + Clone + Default + Send + Sync + 'static,
        A: protos::Message + Default + Send + Sync + 'static,
    {
        let (codec, path) = (ProstCodec::<Q, A>::default(), PathAndQuery::from_static(path));
        let call = |mut grpc: Grpc<Channel>| async move { grpc.unary(request, path, codec).await };
        self.with_member(index, until, call).await
    }

    /// Calls a member once it is connected.
    async fn with_member<T, F>(
        &self,
        index: usize,
        until: Instant,
        call: impl FnOnce(Grpc<Channel>) -> F,
    ) -> Result<T, Attempt>
    where
        F: Future<Output = Result<tonic::Response<T>, Status>>,
    {
        let Member { endpoint, channel } = &self.members[index];
        let answer = timeout_at(until, async {
            let mut grpc = Grpc::new(channel.clone())
                .max_decoding_message_size(ANSWER_LIMIT)
                .max_encoding_message_size(ANSWER_LIMIT);
            let ready = grpc.ready().await;
            ready.map_err(|e| Attempt::NotDone(format!("{endpoint}: {e}")))?;
            let answer = call(grpc).await;
            answer.map_err(|status| attempt(endpoint, &status))
        });
        match answer.await {
            Ok(answer) => Ok(answer?.into_inner()),
            Err(_) => Err(Attempt::Lost(format!("{endpoint}: no answer in time"))),
        }
    }

    /// Opens a bidirectional stream at the current member. Returns the member, too.
    pub(super) async fn stream<Q, A>(
        &self,
        path: &'static str,
        requests: tokio::sync::mpsc::Receiver<Q>,
    ) -> Result<(usize, tonic::Streaming<A>), Failure>
    where
        Q: protos::Message + Clone + Default + Send + Sync + 'static,
        A: protos::Message + Default + Send + Sync + 'static,
    {
        let index = self.current();
        let until = Instant::now() + self.timeout / 3;
        let opened = async {
            let requests = tonic::codegen::tokio_stream::wrappers::ReceiverStream::new(requests);
            let mut request = self.request(index, requests, until).await?;
            // A member that lost its quorum must end the stream instead of staying silent.
            request.metadata_mut().insert("hasleader", MetadataValue::from_static("true"));
            let (codec, path) = (ProstCodec::<Q, A>::default(), PathAndQuery::from_static(path));
            let call = |mut grpc: Grpc<Channel>| async move { grpc.streaming(request, path, codec).await };
            self.with_member(index, until, call).await
        };
        let stream = opened.await.map_err(|attempt| {
            match &attempt {
                Attempt::Token => self.set_token(None),
                Attempt::NotDone(_) | Attempt::Lost(_) => self.avoid(index),
                Attempt::Failed(_) => {}
            }
            Failure::from(attempt)
        })?;
        Ok((index, stream))
    }

    /// Queries the status of a member.
    pub(super) async fn status(&self, index: usize) -> Result<pb::StatusResponse, Error> {
        let until = Instant::now() + self.timeout / 3;
        let status = self.attempt(index, "/etcdserverpb.Maintenance/Status", pb::StatusRequest {}, until).await;
        status.map_err(|attempt| Failure::from(attempt).into())
    }

    /// Switches to another member, if this one is still the current one.
    pub(super) fn avoid(&self, index: usize) {
        let next = (index + 1) % self.members.len();
        let _ = self.current.compare_exchange(index, next, Ordering::Relaxed, Ordering::Relaxed);
    }

    /// Switches to another member.
    pub(super) fn avoid_current(&self) {
        self.avoid(self.current());
    }

    /// Records the revision of an answer and returns it.
    pub(super) fn note(&self, header: Option<&pb::ResponseHeader>) -> Revision {
        let revision = revision(header.map_or(0, |header| header.revision));
        self.newest.fetch_max(revision, Ordering::Relaxed);
        revision
    }

    /// The newest revision that is known locally.
    pub(super) fn newest(&self) -> Revision {
        self.newest.load(Ordering::Relaxed)
    }

    /// Accepts that etcd has gone back to this revision.
    pub(super) fn reset_newest(&self, revision: Revision) {
        self.newest.store(revision, Ordering::Relaxed);
    }

    /// Ends all calls and watches.
    pub(super) fn close(&self) {
        self.closed.send_replace(true);
    }

    /// A receiver for [`is_closed`].
    pub(super) fn closing(&self) -> watch::Receiver<bool> {
        self.closed.subscribe()
    }

    fn current(&self) -> usize {
        self.current.load(Ordering::Relaxed) % self.members.len()
    }

    /// Adds the token to a request; logs in first if there is none.
    async fn request<T>(&self, index: usize, message: T, until: Instant) -> Result<Request<T>, Attempt> {
        let mut request = Request::new(message);
        if let Some(login) = &self.login {
            let token = match self.token() {
                Some(token) => token,
                None => self.log_in(index, login, until).await?,
            };
            request.metadata_mut().insert("token", token);
        }
        Ok(request)
    }

    async fn log_in(
        &self,
        index: usize,
        login: &super::Login,
        until: Instant,
    ) -> Result<MetadataValue<Ascii>, Attempt> {
        let request = pb::AuthenticateRequest { name: login.user.clone(), password: login.password.clone() };
        let answer = self.unary(index, "/etcdserverpb.Auth/Authenticate", Request::new(request), until).await;
        let answer: pb::AuthenticateResponse = answer.map_err(|attempt| match attempt {
            Attempt::Failed(failure) => {
                let text = format!("login as {}: {}", login.user, Error::from(failure));
                Attempt::Failed(Error::Unavailable(text).into())
            }
            // Logging in has no effects: it may be retried.
            Attempt::NotDone(text) | Attempt::Lost(text) => Attempt::NotDone(text),
            Attempt::Token => Attempt::NotDone("etcd rejects the login".to_owned()),
        })?;
        let token: Result<MetadataValue<Ascii>, _> = answer.token.parse();
        let token = token.map_err(|_| Attempt::NotDone("the token cannot be sent".to_owned()))?;
        self.set_token(Some(token.clone()));
        Ok(token)
    }

    fn token(&self) -> Option<MetadataValue<Ascii>> {
        self.token.read().unwrap_or_else(std::sync::PoisonError::into_inner).clone()
    }

    fn set_token(&self, token: Option<MetadataValue<Ascii>>) {
        *self.token.write().unwrap_or_else(std::sync::PoisonError::into_inner) = token;
    }
}

/// Waits until the store is closed.
pub(super) async fn is_closed(closed: &mut watch::Receiver<bool>) {
    if closed.wait_for(|closed| *closed).await.is_err() {
        // The client outlives its users. Without a client, nothing can close it.
        std::future::pending::<()>().await;
    }
}

/// Converts a revision from etcd. None is negative.
pub(super) fn revision(revision: i64) -> Revision {
    Revision::try_from(revision).unwrap_or(0)
}

/// Converts a revision to etcd's type. Larger values behave like revisions in the future.
pub(super) fn number(revision: Revision) -> i64 {
    i64::try_from(revision).unwrap_or(i64::MAX)
}

fn channel(endpoint: &str, options: &Options) -> Result<Channel, Error> {
    let bad = |e: &dyn std::fmt::Display| Error::Invalid(format!("the address {endpoint} of etcd: {e}"));
    let text = match (endpoint.contains("://"), &options.tls) {
        (true, _) => endpoint.to_owned(),
        (false, Some(_)) => format!("https://{endpoint}"),
        (false, None) => format!("http://{endpoint}"),
    };
    let mut built = Endpoint::from_shared(text.clone())
        .map_err(|e| bad(&e))?
        .connect_timeout(options.timeout / 3)
        .tcp_nodelay(true)
        .http2_keep_alive_interval(KEEP_ALIVE)
        .keep_alive_timeout(KEEP_ALIVE / 2)
        .keep_alive_while_idle(true)
        // Many streams share a connection. With the small default window, an unread stream would block the others.
        .initial_connection_window_size(Some(64 << 20));
    if text.starts_with("https://") {
        let tls = options.tls.clone().unwrap_or_default();
        let mut config = ClientTlsConfig::new();
        config = match tls.ca {
            Some(ca) => config.ca_certificate(Certificate::from_pem(ca)),
            None => config.with_native_roots(),
        };
        if let Some((certificate, key)) = tls.identity {
            config = config.identity(Identity::from_pem(certificate, key));
        }
        if let Some(name) = tls.server_name {
            config = config.domain_name(name);
        }
        built = built.tls_config(config).map_err(|e| bad(&e))?;
    }
    Ok(built.connect_lazy())
}

/// Classifies a status.
fn attempt(endpoint: &str, status: &Status) -> Attempt {
    let message = status.message();
    let text = format!("{endpoint}: {message}");
    if not_sent(status) {
        return Attempt::NotDone(text);
    }
    match status.code() {
        Code::OutOfRange if message.contains("compacted") => Attempt::Failed(Failure::Compacted),
        Code::OutOfRange if message.contains("future revision") => Attempt::Failed(Failure::Future),
        Code::InvalidArgument if message.contains("too large") => Attempt::Failed(Failure::TooLarge),
        Code::InvalidArgument if message.contains("user name is empty") => Attempt::Token,
        Code::InvalidArgument => Attempt::Failed(Error::Invalid(text).into()),
        Code::ResourceExhausted if message.contains("space exceeded") => Attempt::Failed(Error::Full(text).into()),
        // Rejected before it was proposed to the cluster.
        Code::ResourceExhausted if message.contains("too many requests") => Attempt::NotDone(text),
        _ if message.contains("raft proposal dropped") => Attempt::NotDone(text),
        Code::Unauthenticated => Attempt::Token,
        Code::PermissionDenied => Attempt::Failed(Error::ReadOnly(text).into()),
        // A login without authentication.
        Code::FailedPrecondition | Code::Unimplemented => Attempt::Failed(Error::Unavailable(text).into()),
        _ => Attempt::Lost(text),
    }
}

/// Whether the request was not sent, because there was no connection.
fn not_sent(status: &Status) -> bool {
    let mut source = std::error::Error::source(status);
    while let Some(error) = source {
        if error.is::<tonic::ConnectError>() {
            return true;
        }
        source = error.source();
    }
    false
}
