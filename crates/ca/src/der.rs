//! Encodes certificates in DER, as Go's `crypto/x509` does for istiod: the same extensions in the same order.

use std::net::IpAddr;

use aws_lc_rs::{digest, rand};
use names::Identity;
use x509_parser::time::ASN1Time;
use yasna::models::{GeneralizedTime, ObjectIdentifier, UTCTime};
use yasna::{DERWriter, DERWriterSeq, Tag};

use crate::key::{KeyError, KeyKind, PrivateKey};
use crate::signature::Curve;

const COMMON_NAME: &[u64] = &[2, 5, 4, 3];
const ORGANIZATION: &[u64] = &[2, 5, 4, 10];
const RSA: &[u64] = &[1, 2, 840, 113_549, 1, 1, 1];
const RSA_SHA256: &[u64] = &[1, 2, 840, 113_549, 1, 1, 11];
const EC: &[u64] = &[1, 2, 840, 10_045, 2, 1];
const P256: &[u64] = &[1, 2, 840, 10_045, 3, 1, 7];
const P384: &[u64] = &[1, 3, 132, 0, 34];
const ECDSA_SHA256: &[u64] = &[1, 2, 840, 10_045, 4, 3, 2];
const ECDSA_SHA384: &[u64] = &[1, 2, 840, 10_045, 4, 3, 3];
const KEY_ID: &[u64] = &[2, 5, 29, 14];
const KEY_USAGE: &[u64] = &[2, 5, 29, 15];
const ALTERNATIVE_NAMES: &[u64] = &[2, 5, 29, 17];
const BASIC_CONSTRAINTS: &[u64] = &[2, 5, 29, 19];
const ISSUER_KEY_ID: &[u64] = &[2, 5, 29, 35];
const EXTENDED_KEY_USAGE: &[u64] = &[2, 5, 29, 37];
const SERVER_AUTH: &[u64] = &[1, 3, 6, 1, 5, 5, 7, 3, 1];
const CLIENT_AUTH: &[u64] = &[1, 3, 6, 1, 5, 5, 7, 3, 2];

/// A subject alternative name.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum AlternativeName {
    /// A SPIFFE identity. The caller of [`certificate`] has checked that it is ASCII.
    Uri(Identity),
    /// A DNS name, checked.
    Dns(String),
    /// An address.
    Ip(IpAddr),
}

/// The purpose of a certificate.
pub(crate) enum Role<'a> {
    /// Signs other certificates; with its key identifier.
    Authority(&'a [u8]),
    /// Authenticates a client or server.
    Leaf(&'a [AlternativeName]),
}

/// The content of a certificate. Times are seconds since 1970.
pub(crate) struct Template<'a> {
    pub(crate) subject: &'a [u8],
    pub(crate) public_key: &'a [u8],
    pub(crate) valid: (i64, i64),
    pub(crate) role: Role<'a>,
}

/// The issuer of a certificate.
pub(crate) struct Signer<'a> {
    pub(crate) subject: &'a [u8],
    pub(crate) key_id: Option<&'a [u8]>,
    pub(crate) key: &'a PrivateKey,
}

/// Encodes and signs a certificate with a random serial number of 127 bits.
///
/// # Errors
/// The cryptographic library failed, or a time is outside of the years that certificates can express.
pub(crate) fn certificate(template: &Template<'_>, signer: &Signer<'_>) -> Result<Vec<u8>, KeyError> {
    let mut serial = [0; 16];
    rand::fill(&mut serial).map_err(|_| KeyError::Library)?;
    // Positive, and always of the same length.
    serial[0] = serial[0] & 0x7f | 0x40;
    let (start, end) = (moment(template.valid.0)?, moment(template.valid.1)?);
    let kind = signer.key.kind();
    let content = yasna::construct_der(|writer| {
        writer.write_sequence(|writer| {
            writer.next().write_tagged(Tag::context(0), |writer| writer.write_u8(2));
            writer.next().write_bigint_bytes(&serial, true);
            signature_algorithm(writer.next(), kind);
            writer.next().write_der(signer.subject);
            writer.next().write_sequence(|writer| {
                write_time(writer.next(), &start);
                write_time(writer.next(), &end);
            });
            writer.next().write_der(template.subject);
            writer.next().write_der(template.public_key);
            writer.next().write_tagged(Tag::context(3), |writer| {
                writer.write_sequence(|writer| extensions(writer, &template.role, signer));
            });
        });
    });
    let signature = signer.key.sign(&content)?;
    Ok(yasna::construct_der(|writer| {
        writer.write_sequence(|writer| {
            writer.next().write_der(&content);
            signature_algorithm(writer.next(), kind);
            writer.next().write_bitvec_bytes(&signature, signature.len() * 8);
        });
    }))
}

fn extensions(writer: &mut DERWriterSeq<'_>, role: &Role<'_>, signer: &Signer<'_>) {
    let is_authority = matches!(role, Role::Authority(_));
    extension(writer, KEY_USAGE, true, |writer| match is_authority {
        true => writer.write_bitvec_bytes(&[0b0000_0100], 6), // keyCertSign
        false => writer.write_bitvec_bytes(&[0b1010_0000], 3), // digitalSignature, keyEncipherment
    });
    if !is_authority {
        extension(writer, EXTENDED_KEY_USAGE, false, |writer| {
            writer.write_sequence(|writer| {
                oid(writer.next(), SERVER_AUTH);
                oid(writer.next(), CLIENT_AUTH);
            });
        });
    }
    extension(writer, BASIC_CONSTRAINTS, true, |writer| {
        writer.write_sequence(|writer| {
            if is_authority {
                writer.next().write_bool(true);
            }
        });
    });
    match role {
        Role::Authority(key_id) => extension(writer, KEY_ID, false, |writer| writer.write_bytes(key_id)),
        Role::Leaf(names) => {
            if let Some(key_id) = signer.key_id {
                extension(writer, ISSUER_KEY_ID, false, |writer| {
                    writer.write_sequence(|writer| implicit(writer.next(), 0, key_id));
                });
            }
            if !names.is_empty() {
                // Always critical, as istiod does; required because the subject is usually empty.
                extension(writer, ALTERNATIVE_NAMES, true, |writer| alternative_names(writer, names));
            }
        }
    }
}

fn alternative_names(writer: DERWriter<'_>, names: &[AlternativeName]) {
    writer.write_sequence(|writer| {
        for name in names {
            match name {
                AlternativeName::Uri(identity) => implicit(writer.next(), 6, identity.to_string().as_bytes()),
                AlternativeName::Dns(name) => implicit(writer.next(), 2, name.as_bytes()),
                AlternativeName::Ip(IpAddr::V4(address)) => implicit(writer.next(), 7, &address.octets()),
                AlternativeName::Ip(IpAddr::V6(address)) => implicit(writer.next(), 7, &address.octets()),
            }
        }
    });
}

/// A name with an organization and a common name; empty without both.
pub(crate) fn subject(organization: Option<&str>, common_name: Option<&str>) -> Vec<u8> {
    let attributes = [(ORGANIZATION, organization), (COMMON_NAME, common_name)];
    yasna::construct_der(|writer| {
        writer.write_sequence(|writer| {
            for (kind, value) in attributes {
                let Some(value) = value else { continue };
                writer.next().write_set(|writer| {
                    writer.next().write_sequence(|writer| {
                        oid(writer.next(), kind);
                        writer.next().write_utf8_string(value);
                    });
                });
            }
        });
    })
}

/// The key identifier of a public key: the start of its SHA-256, by RFC 7093, method 1.
pub(crate) fn key_id(public_bits: &[u8]) -> Vec<u8> {
    digest::digest(&digest::SHA256, public_bits).as_ref()[..20].to_vec()
}

/// A SubjectPublicKeyInfo with an RSA key.
pub(crate) fn rsa_public_key(modulus: &[u8], exponent: &[u8]) -> Vec<u8> {
    let key = yasna::construct_der(|writer| {
        writer.write_sequence(|writer| {
            writer.next().write_bigint_bytes(modulus, true);
            writer.next().write_bigint_bytes(exponent, true);
        });
    });
    yasna::construct_der(|writer| {
        writer.write_sequence(|writer| {
            writer.next().write_sequence(|writer| {
                oid(writer.next(), RSA);
                writer.next().write_null();
            });
            writer.next().write_bitvec_bytes(&key, key.len() * 8);
        });
    })
}

/// A SubjectPublicKeyInfo with a point of an elliptic curve.
pub(crate) fn ec_public_key(curve: Curve, point: &[u8]) -> Vec<u8> {
    yasna::construct_der(|writer| {
        writer.write_sequence(|writer| {
            writer.next().write_sequence(|writer| {
                oid(writer.next(), EC);
                oid(
                    writer.next(),
                    match curve {
                        Curve::P256 => P256,
                        Curve::P384 => P384,
                    },
                );
            });
            writer.next().write_bitvec_bytes(point, point.len() * 8);
        });
    })
}

fn signature_algorithm(writer: DERWriter<'_>, kind: KeyKind) {
    writer.write_sequence(|writer| match kind {
        KeyKind::Rsa(_) => {
            oid(writer.next(), RSA_SHA256);
            writer.next().write_null();
        }
        KeyKind::P256 => oid(writer.next(), ECDSA_SHA256),
        KeyKind::P384 => oid(writer.next(), ECDSA_SHA384),
    });
}

fn extension(writer: &mut DERWriterSeq<'_>, kind: &[u64], critical: bool, value: impl FnOnce(DERWriter<'_>)) {
    writer.next().write_sequence(|writer| {
        oid(writer.next(), kind);
        if critical {
            writer.next().write_bool(true);
        }
        writer.next().write_bytes(&yasna::construct_der(value));
    });
}

fn implicit(writer: DERWriter<'_>, tag: u64, bytes: &[u8]) {
    writer.write_tagged_implicit(Tag::context(tag), |writer| writer.write_bytes(bytes));
}

fn oid(writer: DERWriter<'_>, components: &[u64]) {
    writer.write_oid(&ObjectIdentifier::from_slice(components));
}

/// A time that certificates can express: UTCTime up to 2049, GeneralizedTime after it (RFC 5280, 4.1.2.5).
enum Moment {
    Short(UTCTime),
    Long(GeneralizedTime),
}

fn moment(seconds: i64) -> Result<Moment, KeyError> {
    let time = ASN1Time::from_timestamp(seconds).map_err(|_| KeyError::Library)?.to_datetime();
    match UTCTime::from_datetime_opt(time) {
        Some(short) => Ok(Moment::Short(short)),
        None => GeneralizedTime::from_datetime_opt(time).map(Moment::Long).ok_or(KeyError::Library),
    }
}

fn write_time(writer: DERWriter<'_>, moment: &Moment) {
    match moment {
        Moment::Short(time) => writer.write_utctime(time),
        Moment::Long(time) => writer.write_generalized_time(time),
    }
}
