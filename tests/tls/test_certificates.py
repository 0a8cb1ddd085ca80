"""What is in the certificates that are made, and what is refused."""

from datetime import datetime, timedelta, timezone

import pytest
from cryptography import x509
from cryptography.x509.oid import ExtendedKeyUsageOID

from outrider.certificates import Pair, describe, issue, make_authority
from outrider.errors import InvalidArgumentError
from outrider.identity import Role

NOW = datetime(2026, 12, 1, 12, 0, 0, tzinfo=timezone.utc)
CA = make_authority("home", 400, NOW)


def made(role: Role = Role.DRAFT, hosts: tuple[str, ...] = (), days: int = 30) -> Pair:
    return issue(CA, role, "node", hosts, days, NOW)


def extensions(pair: Pair) -> x509.Extensions:
    return x509.load_pem_x509_certificate(pair.certificate).extensions


@pytest.mark.parametrize("role", Role)
def test_a_certificate_says_its_role_and_its_hosts(role: Role) -> None:
    found = describe(made(role, ("Second.lan", "192.168.1.7", "fe80::1")).certificate)
    assert found.kind == "certificate"
    assert found.roles == (role.value,)
    assert found.hosts == ("second.lan", "192.168.1.7", "fe80::1")
    assert (found.name, found.issuer) == ("node", "home")
    assert found.days_left(NOW) == 30


def test_it_is_valid_a_little_before_it_was_made_for_clocks_that_are_late() -> None:
    found = describe(made().certificate)
    assert timedelta(minutes=5) <= NOW - found.not_before <= timedelta(minutes=30)
    assert found.not_after == NOW + timedelta(days=30)


@pytest.mark.parametrize("role", Role)
def test_only_services_can_serve(role: Role) -> None:
    purposes = extensions(made(role)).get_extension_for_class(x509.ExtendedKeyUsage).value
    assert ExtendedKeyUsageOID.CLIENT_AUTH in purposes
    assert (ExtendedKeyUsageOID.SERVER_AUTH in purposes) is (role is not Role.CLIENT)


def test_what_the_ca_signs_can_sign_nothing() -> None:
    of_ca = extensions(CA).get_extension_for_class(x509.BasicConstraints).value
    of_node = extensions(made()).get_extension_for_class(x509.BasicConstraints).value
    assert (of_ca.ca, of_ca.path_length, of_node.ca) == (True, 0, False)
    usage = extensions(made()).get_extension_for_class(x509.KeyUsage).value
    assert not usage.key_cert_sign


def test_it_is_signed_by_the_ca_and_every_one_has_a_key_of_its_own() -> None:
    authority = x509.load_pem_x509_certificate(CA.certificate)
    one, other = made(), made()
    x509.load_pem_x509_certificate(one.certificate).verify_directly_issued_by(authority)
    assert one.key != other.key


def test_a_key_is_not_shown_with_its_pair() -> None:
    assert b"PRIVATE KEY" in CA.key
    assert "PRIVATE KEY" not in repr(CA)


def test_the_ca_describes_itself() -> None:
    found = describe(CA.certificate)
    assert (found.kind, found.name, found.roles, found.hosts) == ("CA", "home", (), ())


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ({"hosts": ("a_b",)}, "host is 'a_b'; give a host name or an IP address"),
        ({"hosts": ("attic:7072",)}, "without port"),
        ({"hosts": ("*.lan",)}, "wildcards"),
        ({"hosts": ("",)}, "host is ''"),
        ({"hosts": ("-a",)}, "host is '-a'"),
        ({"hosts": ("a" * 64,)}, "host is 'aaa"),
        ({"hosts": ("orchestrator.outrider.internal",)}, "names in outrider.internal are roles"),
        ({"hosts": ("Verify.Outrider.Internal",)}, "are roles"),
        ({"name": "a/b"}, "name is 'a/b'"),
        ({"name": ""}, "name is ''"),
        ({"name": "-"}, "name is '-'"),
        ({"name": "a" * 65}, "name is 'aaa"),
        ({"days": 0}, "days is 0; give 1 to"),
        ({"days": 401}, "days is 401, and the CA itself is valid for 400 more"),
        ({"authority": Pair(CA.key, CA.key)}, "the CA's certificate has no certificate"),
        ({"authority": Pair(CA.certificate, b"x")}, "the CA's key cannot be read"),
        (
            {"authority": Pair(CA.certificate, make_authority("b", 9, NOW).key)},
            "the CA's key is not that of its certificate",
        ),
    ],
    ids=lambda value: str(value)[:40],
)
def test_what_cannot_be_is_told(arguments: dict[str, object], says: str) -> None:
    given: dict[str, object] = {
        "authority": CA,
        "role": Role.DRAFT,
        "name": "node",
        "hosts": (),
        "days": 30,
        "now": NOW,
        **arguments,
    }
    with pytest.raises(InvalidArgumentError) as refused:
        issue(**given)  # type: ignore[arg-type]
    assert says in refused.value.message


def test_a_ca_has_a_name_and_a_length_of_life() -> None:
    for name, days in (("", 1), ("a\n", 1), ("a" * 65, 1), ("a", 0), ("a", 36501)):
        with pytest.raises(InvalidArgumentError):
            make_authority(name, days, NOW)


def test_what_is_no_certificate_is_told() -> None:
    with pytest.raises(InvalidArgumentError, match="no certificate that can be read"):
        describe(b"hello")
