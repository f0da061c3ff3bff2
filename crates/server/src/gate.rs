//! Authenticates calls, a limited number for each address at the same time.

use std::sync::Arc;

use ca::caller::{Caller, CallerError};
use tokio::sync::Semaphore;

use crate::authentication::{Authenticators, Credentials, Purpose, Refused};
use crate::log_limit::LogLimit;
use crate::per_address::PerAddress;
use crate::signing;

/// The number of calls of one address that are authenticated at the same time; further ones wait. Methods may ask other
/// servers, and a client with invalid tokens must not keep others waiting.
const TOGETHER: usize = 32;

/// Authenticates calls. Cheap to clone.
#[derive(Clone)]
pub(crate) struct Gate {
    authenticators: Authenticators,
    signing: signing::Watched,
    places: PerAddress<Semaphore>,
    log: Arc<LogLimit>,
}

impl Gate {
    pub(crate) fn new(authenticators: Authenticators, signing: signing::Watched) -> Gate {
        Gate { authenticators, signing, places: PerAddress::default(), log: Arc::default() }
    }

    /// Authenticates a caller. An identity of another trust domain is not accepted, even if its certificate is: the names of
    /// namespaces and service accounts mean something else there.
    ///
    /// # Errors
    /// No method accepts the credentials. It was logged.
    pub(crate) async fn authenticate(&self, credentials: &Credentials, purpose: Purpose) -> Result<Caller, Refused> {
        let authenticated = self.try_all(credentials, purpose).await;
        if let Err(refused) = &authenticated {
            let client = credentials.remote().map(|address| address.to_string()).unwrap_or_default();
            self.log.note(|more| tracing::warn!(client, reason = %refused, more, "{purpose} was not authenticated"));
        }
        authenticated
    }

    async fn try_all(&self, credentials: &Credentials, purpose: Purpose) -> Result<Caller, Refused> {
        let caller = match credentials.certificate() {
            // The handshake has verified it.
            Some(_) => self.authenticators.authenticate(credentials, purpose).await?,
            None => {
                let place = self.places.get(credentials.remote(), || Semaphore::new(TOGETHER));
                let _place = place.acquire().await;
                self.authenticators.authenticate(credentials, purpose).await?
            }
        };
        let domain = &caller.identity.trust_domain;
        match self.signing.borrow().trust.is_own(domain) {
            true => Ok(caller),
            false => Err(Refused(vec![(caller.method, CallerError::ForeignDomain(domain.clone()))])),
        }
    }
}
