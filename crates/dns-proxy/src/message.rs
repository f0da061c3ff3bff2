//! Reads queries and composes answers.

use std::net::IpAddr;

use domain::base::iana::{Class, Opcode, Rcode};
use domain::base::message_builder::{AnswerBuilder, PushError, StaticCompressor};
use domain::base::{Message, MessageBuilder, Name, ParsedName, Rtype, ToName as _, Ttl};
use domain::rdata::{A, Aaaa, Cname};

use crate::table::Found;

/// The time for which answers may be cached. It is short, because addresses may change at any time.
const TTL: Ttl = Ttl::from_secs(30);
/// The largest message over UDP without EDNS, in bytes.
const MIN_UDP: usize = 512;
/// The size of an OPT record without options, in bytes.
const OPT: usize = 11;

/// The transport of a query.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Transport {
    /// A datagram.
    Udp,
    /// A connection.
    Tcp,
}

/// A query that can be answered or forwarded.
#[derive(Debug)]
pub struct Query<'a> {
    message: &'a Message<[u8]>,
    question: ParsedName<&'a [u8]>,
    /// The name in lower case, without a trailing dot; empty if it has other characters than host names.
    pub name: String,
    /// The requested type.
    pub rtype: Rtype,
    /// The requested class.
    pub class: Class,
    /// The largest answer, in bytes.
    pub limit: usize,
    has_opt: bool,
}

/// The reason why a message is not a query.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Rejected {
    /// It must not be answered.
    Silently,
    /// It is answered with an error.
    Answer(Vec<u8>),
}

/// Reads a message.
///
/// # Errors
/// The message is not a query with one question.
pub fn read(bytes: &[u8], transport: Transport) -> Result<Query<'_>, Rejected> {
    let message = Message::from_slice(bytes).map_err(|_| Rejected::Silently)?;
    if message.header().qr() {
        return Err(Rejected::Silently);
    }
    let error = |rcode| Rejected::Answer(compose(message, rcode, MIN_UDP, |_| Ok(())));
    if message.header().opcode() != Opcode::QUERY {
        return Err(error(Rcode::NOTIMP));
    }
    let question = message.sole_question().map_err(|_| error(Rcode::FORMERR))?;
    let opt = message.opt();
    let size = opt.as_ref().map_or(0, |opt| usize::from(opt.udp_payload_size()));
    let limit = if transport == Transport::Tcp { usize::from(u16::MAX) } else { size.max(MIN_UDP) };
    let (rtype, class) = (question.qtype(), question.qclass());
    let name = host_name(question.qname());
    Ok(Query { message, question: *question.qname(), name, rtype, class, limit, has_opt: opt.is_some() })
}

impl<'a> Query<'a> {
    /// The message as it was received.
    #[must_use]
    pub fn message(&self) -> &'a Message<[u8]> {
        self.message
    }

    /// An answer with an error.
    #[must_use]
    pub fn error(&self, rcode: Rcode) -> Vec<u8> {
        self.compose(rcode, |_| Ok(()))
    }

    /// An answer with the addresses of the requested family, beginning with the one at `turn`. It has no records if there are none:
    /// the name exists all the same. Records that exceed the limit are left out, and the answer says that it is truncated.
    #[must_use]
    pub fn answer(&self, found: &Found<'_>, turn: usize) -> Vec<u8> {
        let wanted = |ip: &&IpAddr| ip.is_ipv4() == (self.rtype == Rtype::A);
        let mut addresses: Vec<IpAddr> = found.addresses.iter().filter(wanted).copied().collect();
        if !addresses.is_empty() {
            let first = turn % addresses.len();
            addresses.rotate_left(first);
        }
        self.compose(Rcode::NOERROR, |answer| {
            answer.header_mut().set_aa(true);
            let owner: Name<Vec<u8>> = self.question.to_name();
            let canonical = found.canonical.and_then(|name| Name::<Vec<u8>>::vec_from_str(name).ok());
            if let Some(canonical) = canonical.as_ref().filter(|_| !addresses.is_empty()) {
                answer.push((&owner, TTL, Cname::new(canonical)))?;
            }
            let owner = canonical.as_ref().unwrap_or(&owner);
            addresses.iter().try_for_each(|ip| match ip {
                IpAddr::V4(ip) => answer.push((owner, TTL, A::new(*ip))),
                IpAddr::V6(ip) => answer.push((owner, TTL, Aaaa::new(*ip))),
            })
        })
    }

    fn compose(&self, rcode: Rcode, push: impl FnOnce(&mut Answer) -> Result<(), PushError>) -> Vec<u8> {
        if !self.has_opt {
            return compose(self.message, rcode, self.limit, push);
        }
        let answer = composer(self.message, rcode, self.limit - OPT, push);
        let mut additional = answer.additional();
        additional.clear_push_limit();
        // Cannot fail: there is room, and the target grows.
        let _ = additional.opt(|opt| {
            opt.set_udp_payload_size(1232);
            Ok(())
        });
        additional.finish().into_target()
    }
}

type Answer = AnswerBuilder<StaticCompressor<Vec<u8>>>;

fn compose(
    query: &Message<[u8]>,
    rcode: Rcode,
    limit: usize,
    push: impl FnOnce(&mut Answer) -> Result<(), PushError>,
) -> Vec<u8> {
    composer(query, rcode, limit, push).finish().into_target()
}

fn composer(
    query: &Message<[u8]>,
    rcode: Rcode,
    limit: usize,
    push: impl FnOnce(&mut Answer) -> Result<(), PushError>,
) -> Answer {
    let target = StaticCompressor::new(Vec::with_capacity(MIN_UDP));
    let builder = MessageBuilder::from_target(target).unwrap_or_else(|_| unreachable!("a vector grows"));
    let mut answer = builder.start_error(query, rcode);
    answer.header_mut().set_ra(true);
    answer.header_mut().set_cd(query.header().cd());
    answer.set_push_limit(limit);
    if push(&mut answer).is_err() {
        answer.header_mut().set_tc(true);
    }
    answer
}

/// A response without its records, marked as truncated.
#[must_use]
pub fn truncated(query: &Query<'_>) -> Vec<u8> {
    query.compose(Rcode::NOERROR, |answer| {
        answer.header_mut().set_tc(true);
        Ok(())
    })
}

/// A name in lower case, without a trailing dot; empty if it has other characters than those of host names and wildcards.
fn host_name(name: &ParsedName<&[u8]>) -> String {
    let mut text = String::with_capacity(64);
    for label in name.iter().filter(|label| !label.is_root()) {
        let plain = |byte: &u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'*');
        if !label.as_slice().iter().all(plain) {
            return String::new();
        }
        if !text.is_empty() {
            text.push('.');
        }
        text.extend(label.as_slice().iter().map(|byte| char::from(byte.to_ascii_lowercase())));
    }
    text
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::tests::values::query;

    fn found(count: u8, canonical: Option<&str>) -> Found<'_> {
        Found { canonical, addresses: (0..count).map(|i| IpAddr::from([10, 0, 0, i])).collect() }
    }

    #[test]
    fn answers_fit_and_say_if_they_are_truncated() {
        for (edns, transport, records, complete) in [
            (None, Transport::Udp, 20, true),
            (None, Transport::Udp, 40, false),
            (Some(4096), Transport::Udp, 200, true),
            (Some(1232), Transport::Udp, 200, false),
            (Some(100), Transport::Udp, 20, true),
            (None, Transport::Tcp, 250, true),
        ] {
            let bytes = query("Cart.shop", Rtype::A, edns);
            let query = read(&bytes, transport).unwrap();
            assert_eq!(query.name, "cart.shop");
            let answer = Message::from_octets(query.answer(&found(records, None), 3)).unwrap();
            assert!(answer.as_slice().len() <= query.limit && answer.is_answer(query.message()), "{edns:?} {records}");
            let count = answer.answer().unwrap().count();
            assert_eq!(
                (answer.header().tc(), count == usize::from(records)),
                (!complete, complete),
                "{edns:?} {records}"
            );
            assert_eq!(answer.opt().is_some(), edns.is_some());
            assert!(answer.header().aa() && answer.header().rd() && answer.header().ra());
            let first = answer.answer().unwrap().limit_to::<A>().next().unwrap().unwrap();
            assert_eq!((first.data().addr().octets()[3], first.ttl()), (3, TTL), "answers begin at the turn");
        }
    }

    #[test]
    fn other_messages_are_rejected() {
        let good = query("a", Rtype::A, None);
        let change = |index: usize, value: u8| {
            let mut bytes = good.clone();
            bytes[index] = value;
            read(&bytes, Transport::Udp).map(|_| ()).map_err(|rejected| match rejected {
                Rejected::Silently => None,
                Rejected::Answer(answer) => Some(Message::from_octets(answer).unwrap().header().rcode()),
            })
        };
        assert_eq!(change(0, 1), Ok(()));
        assert_eq!(change(2, 0x80), Err(None), "a response is ignored");
        assert_eq!(change(2, 0x20), Err(Some(Rcode::NOTIMP)));
        for (index, value) in [(5, 0), (5, 2), (12, 200)] {
            assert_eq!(change(index, value), Err(Some(Rcode::FORMERR)), "{index} {value}");
        }
        assert_eq!(read(&good[..11], Transport::Udp).unwrap_err(), Rejected::Silently);
    }

    proptest! {
        #[test]
        fn any_bytes_are_read(bytes in prop::collection::vec(any::<u8>(), 0..200), flip in any::<(usize, u8)>()) {
            let _ = read(&bytes, Transport::Udp);
            let mut close = query("cart.shop.svc.cluster.local", Rtype::AAAA, Some(1232));
            let index = flip.0 % close.len();
            close[index] = flip.1;
            if let Ok(query) = read(&close, Transport::Udp) {
                for answer in [query.answer(&found(60, Some("cart")), flip.0), truncated(&query), query.error(Rcode::SERVFAIL)] {
                    prop_assert!(answer.len() <= query.limit);
                    prop_assert!(Message::from_octets(answer).unwrap().is_answer(query.message()));
                }
            }
        }
    }
}
