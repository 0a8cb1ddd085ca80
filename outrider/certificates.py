"""Certificates: a small CA, and what it signs for services and clients. Pure: PEM in, PEM out.

Knows `cryptography`, which nothing else here does; knows no files and no gRPC.
"""

import ipaddress
import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from outrider.errors import InvalidArgumentError
from outrider.identity import DOMAIN, Role, roles_of

SKEW = timedelta(minutes=10)
"""Clocks of a home lab are not all right: a certificate is valid a little before it is made."""

MAX_DAYS = 36500

_NAME = re.compile(r"[A-Za-z0-9](?:[\w.-]{0,62}[A-Za-z0-9])?", re.ASCII)
_HOST = re.compile(
    r"(?=.{1,253}$)(?:(?!-)[A-Za-z0-9-]{1,63}(?<!-)\.)*(?!-)[A-Za-z0-9-]{1,63}(?<!-)"
)


@dataclass(frozen=True, slots=True)
class Pair:
    """A certificate and its key, both PEM."""

    certificate: bytes
    key: bytes = field(repr=False)


@dataclass(frozen=True, slots=True)
class Described:
    """What a certificate says. `hosts` are the names and addresses beside the roles."""

    kind: str
    name: str
    issuer: str
    roles: tuple[str, ...]
    hosts: tuple[str, ...]
    not_before: datetime
    not_after: datetime
    fingerprint: str

    def days_left(self, now: datetime) -> int:
        """Whole days until it runs out; below 0 afterwards."""
        return (self.not_after - now).days


def make_authority(name: str, days: int, now: datetime) -> Pair:
    """A CA of its own, which signs certificates of services and clients, and of no further CA."""
    _check_days(days)
    key = ec.generate_private_key(ec.SECP256R1())
    subject = _subject(name)
    builder = _begun(subject, subject, key.public_key(), now, now + timedelta(days=days))
    usage = _usage(key_cert_sign=True, crl_sign=True)
    builder = (
        builder.add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(usage, critical=True)
        .add_extension(_own_id(key), critical=False)
    )
    return _signed(builder, key, key)


def issue(
    authority: Pair, role: Role, name: str, hosts: Sequence[str], days: int, now: datetime
) -> Pair:
    """A certificate of `role`, signed by `authority`, with a key of its own."""
    _check_days(days)
    if _NAME.fullmatch(name) is None:
        raise InvalidArgumentError(
            f"name is {name!r}; give up to 64 letters, digits, '-', '_' or '.'"
        )
    ca = _loaded(authority.certificate, "the CA's certificate")
    ca_key = _loaded_key(authority.key)
    if ca_key.public_key() != ca.public_key():
        raise InvalidArgumentError("the CA's key is not that of its certificate; give its own")
    left = (ca.not_valid_after_utc - now).days
    if days > left:
        raise InvalidArgumentError(
            f"days is {days}, and the CA itself is valid for {max(left, 0)} more; give fewer, or "
            "make a new CA (outrider certs init) and issue all certificates anew"
        )
    key = ec.generate_private_key(ec.SECP256R1())
    names = [x509.DNSName(role.dns_name), *map(_alternative, hosts)]
    purposes = [ExtendedKeyUsageOID.CLIENT_AUTH]
    if role is not Role.CLIENT:
        purposes.append(ExtendedKeyUsageOID.SERVER_AUTH)
    ca_id = x509.AuthorityKeyIdentifier.from_issuer_subject_key_identifier(
        ca.extensions.get_extension_for_class(x509.SubjectKeyIdentifier).value
    )
    builder = _begun(_subject(name), ca.subject, key.public_key(), now, now + timedelta(days=days))
    builder = (
        builder.add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(_usage(digital_signature=True), critical=True)
        .add_extension(x509.ExtendedKeyUsage(purposes), critical=False)
        .add_extension(x509.SubjectAlternativeName(names), critical=False)
        .add_extension(_own_id(key), critical=False)
        .add_extension(ca_id, critical=False)
    )
    return _signed(builder, key, ca_key)


def describe(pem: bytes) -> Described:
    """What the first certificate in `pem` says; raises InvalidArgumentError where there is none."""
    certificate = _loaded(pem, "the file")
    dns, addresses, is_ca = [], [], False
    for extension in certificate.extensions:
        if isinstance(extension.value, x509.SubjectAlternativeName):
            dns = extension.value.get_values_for_type(x509.DNSName)
            addresses = extension.value.get_values_for_type(x509.IPAddress)
        elif isinstance(extension.value, x509.BasicConstraints):
            is_ca = extension.value.ca
    roles = [role for role in Role if role in roles_of(dns)]
    hosts = [name for name in dns if name not in {role.dns_name for role in roles}]
    return Described(
        "CA" if is_ca else "certificate",
        _common_name(certificate.subject),
        _common_name(certificate.issuer),
        tuple(role.value for role in roles),
        (*hosts, *map(str, addresses)),
        certificate.not_valid_before_utc,
        certificate.not_valid_after_utc,
        certificate.fingerprint(hashes.SHA256()).hex(),
    )


def _alternative(host: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(host))
    except ValueError:
        pass
    if _HOST.fullmatch(host) is None:
        raise InvalidArgumentError(
            f"host is {host!r}; give a host name or an IP address, without port and wildcards"
        )
    if host.lower().endswith(f".{DOMAIN}"):
        raise InvalidArgumentError(
            f"host is {host!r}: names in {DOMAIN} are roles; give a role of its own to each node"
        )
    return x509.DNSName(host.lower())


def _begun(
    subject: x509.Name,
    issuer: x509.Name,
    public_key: ec.EllipticCurvePublicKey,
    now: datetime,
    end: datetime,
) -> x509.CertificateBuilder:
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(public_key)
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - SKEW)
        .not_valid_after(end)
    )


def _signed(
    builder: x509.CertificateBuilder,
    key: ec.EllipticCurvePrivateKey,
    signer: ec.EllipticCurvePrivateKey,
) -> Pair:
    return Pair(
        builder.sign(signer, hashes.SHA256()).public_bytes(serialization.Encoding.PEM),
        key.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.NoEncryption(),
        ),
    )


def _subject(name: str) -> x509.Name:
    if not 1 <= len(name) <= 64 or not name.isprintable():
        raise InvalidArgumentError(f"name is {name!r}; give 1 to 64 printable characters")
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])


def _usage(
    *, digital_signature: bool = False, key_cert_sign: bool = False, crl_sign: bool = False
) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=digital_signature,
        key_cert_sign=key_cert_sign,
        crl_sign=crl_sign,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        encipher_only=False,
        decipher_only=False,
    )


def _own_id(key: ec.EllipticCurvePrivateKey) -> x509.SubjectKeyIdentifier:
    return x509.SubjectKeyIdentifier.from_public_key(key.public_key())


def _common_name(name: x509.Name) -> str:
    found = name.get_attributes_for_oid(NameOID.COMMON_NAME)
    return str(found[0].value) if found else name.rfc4514_string()


def _loaded(pem: bytes, what: str) -> x509.Certificate:
    try:
        return x509.load_pem_x509_certificate(pem)
    except ValueError as error:
        raise InvalidArgumentError(
            f"{what} has no certificate that can be read; give one in PEM"
        ) from error


def _loaded_key(pem: bytes) -> ec.EllipticCurvePrivateKey:
    try:
        key = serialization.load_pem_private_key(pem, password=None)
    except (ValueError, TypeError) as error:
        raise InvalidArgumentError(
            "the CA's key cannot be read; give one in PEM, without a password"
        ) from error
    if not isinstance(key, ec.EllipticCurvePrivateKey):
        raise InvalidArgumentError(
            "the CA's key is of another kind than ECDSA; give the CA that outrider certs init made"
        )
    return key


def _check_days(days: int) -> None:
    if not 1 <= days <= MAX_DAYS:
        raise InvalidArgumentError(f"days is {days}; give 1 to {MAX_DAYS}")
