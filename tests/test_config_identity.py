"""Issuers and roles in a configuration file."""

from __future__ import annotations

from pathlib import Path

import pytest

from busway.config import ConfigError, Configuration, load
from busway.model.identity import AUDIENCE, DEV_ISSUER, Role

ISSUER = '[[issuers]]\nissuer = "https://sts.example/"\njwks_file = "keys.json"\n'


def read(tmp_path: Path, text: str) -> Configuration:
    file = tmp_path / "c.toml"
    file.write_text(text)
    return load({"config": file}, {})


def test_an_issuer_has_safe_defaults(tmp_path: Path) -> None:
    (issuer,) = read(tmp_path, ISSUER).issuers
    assert issuer.jwks_file == Path("keys.json")
    assert issuer.audiences == (AUDIENCE,)
    assert issuer.algorithms == ("RS256",)
    assert issuer.clock_skew_ms == 60_000


def test_all_of_an_issuer_can_be_said(tmp_path: Path) -> None:
    (issuer,) = read(
        tmp_path,
        '[[issuers]]\nissuer = "i"\njwks_url = "https://sts.example/keys"\n'
        'audiences = ["api://bus"]\nalgorithms = ["ES256", "RS512"]\n'
        'clock_skew = "5m"\nrefresh = "10m"\n',
    ).issuers
    assert issuer.jwks_url == "https://sts.example/keys"
    assert (issuer.audiences, issuer.algorithms) == (("api://bus",), ("ES256", "RS512"))
    assert (issuer.clock_skew_ms, issuer.refresh_ms) == (300_000, 600_000)


def test_roles_belong_to_a_namespace(tmp_path: Path) -> None:
    default, other = read(
        tmp_path,
        ISSUER
        + '[[roles]]\nrole = "Azure Service Bus Data Sender"\napp = "shop"\nentities = ["orders"]\n'
        + '[[namespaces.contoso.roles]]\nrole = "owner"\ngroup = "admins"\n',
    ).namespaces
    (sender,), (owner,) = default.roles, other.roles
    assert (sender.role, sender.claim, sender.value) == (Role.SENDER, "app", "shop")
    assert (sender.issuer, sender.entities) == ("https://sts.example/", ("orders",))
    assert (owner.role, owner.claim, owner.value) == (Role.OWNER, "group", "admins")


def test_without_issuers_a_role_is_one_of_dev_tokens(tmp_path: Path) -> None:
    (role,) = read(tmp_path, '[[roles]]\nrole = "receiver"\napp = "desk"\n').namespaces[0].roles
    assert role.issuer == DEV_ISSUER


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ('[[issuers]]\njwks_file = "k"', "issuer 1: has no issuer"),
        ('[[issuers]]\nissuer = "i"', "must have jwks_file or jwks_url"),
        (ISSUER + 'jwks_url = "https://x/"', "must have jwks_file or jwks_url"),
        (ISSUER + ISSUER, "is declared twice"),
        (f'[[issuers]]\nissuer = "{DEV_ISSUER}"\njwks_file = "k"', "cannot be another's"),
        ('[[issuers]]\nissuer = "i"\njwks_url = "http://sts.example/"', "an https:// address"),
        ('[[issuers]]\nissuer = "i"\njwks_url = "file:///etc/passwd"', "an https:// address"),
        (ISSUER + 'algorithms = ["none"]', "can have RS256"),
        (ISSUER + 'algorithms = ["HS256"]', "shared secret are never taken"),
        (ISSUER + "algorithms = []", "a list of texts"),
        (ISSUER + 'clock_skew = "1h"', "from 0 s to 600 s"),
        (ISSUER + 'refresh = "1s"', "from 60 s to 86400 s"),
        (ISSUER + 'audience = "x"', "Did you mean 'audiences'?"),
        (ISSUER + '[[roles]]\nrole = "boss"\napp = "a"', "Azure Service Bus Data Owner"),
        (ISSUER + '[[roles]]\nrole = "owner"', "must say whose it is"),
        (ISSUER + '[[roles]]\nrole = "owner"\napp = "a"\nobject = "o"', "must say whose it is"),
        (ISSUER + '[[roles]]\nrole = "owner"\napp = "a"\nissuer = "x"', "issuer is 'x'"),
        (ISSUER + '[[roles]]\nrole = "owner"\napp = "a"\nentities = ["/"]', "can be no entity"),
        (
            ISSUER + '[[issuers]]\nissuer = "i"\njwks_file = "k"\n'
            '[[roles]]\nrole = "owner"\napp = "a"',
            "must say of which issuer: there are 2",
        ),
    ],
)
def test_mistakes_are_told(tmp_path: Path, text: str, problem: str) -> None:
    with pytest.raises(ConfigError) as told:
        read(tmp_path, text)
    assert problem in str(told.value)


def test_dev_tokens_bring_tls(tmp_path: Path) -> None:
    assert load({"dev_tokens": True}, {}).settings.tls
    in_memory = {"dev_tokens": True, "memory": True}
    assert not load(in_memory | {"identity_header": "h" * 20}, {}).settings.tls
    with pytest.raises(ConfigError, match="BUSWAY_IDENTITY_HEADER or --identity-header"):
        load(in_memory, {})
    own = {"dev_tokens": True, "tls_cert": "c.pem", "tls_key": "k.pem"}
    assert not load(own, {}).settings.tls


def test_the_secret_is_in_no_text_of_the_settings() -> None:
    settings = load({"identity_header": "s3cret-s3cret-s3cret"}, {}).settings
    assert "s3cret" not in repr(settings)
