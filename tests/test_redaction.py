"""No password of an address is shown, wherever in it and whatever it is made of."""

from __future__ import annotations

import string

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from seq2sweep.redaction import redact, secret_in, secrets_in


@pytest.mark.parametrize(
    ("text", "masked"),
    [
        ("http://ada:hunter2@host:5000/x", "http://***@host:5000/x"),
        ("postgresql://ada:hu@nter2@host/db failed", "postgresql://***@host/db failed"),
        ("postgresql://ada:hun/ter2@host/db", "postgresql://***@host/db"),
        ("cloned https://ghtoken@host/x well", "cloned https://***@host/x well"),
        ("http://host/x?api_token=hunter2&step=3", "http://host/x?api_token=***&step=3"),
        ("with url: /x?step=3&PWD=hunter2 (Caused", "with url: /x?step=3&PWD=*** (Caused"),
        ("mssql+pyodbc:///?odbc_connect=UID%3Dsa%3BPWD%3Dx", "mssql+pyodbc:///?odbc_connect=***"),
        ("s3://b/x?X-Amz-Signature=ab%2Fc&a=1", "s3://b/x?X-Amz-Signature=***&a=1"),
        ("https://b/x?sp=r&sig=a/b+c=", "https://b/x?sp=r&sig=***"),
        ("postgresql://host/db?p%61ssword=hun@ter2", "postgresql://***"),
        ("https://host/#access_token=hunter2", "https://host/#access_token=***"),
        ("sqlite:////home/a@b/mlflow.db", "sqlite:////home/a@b/mlflow.db"),
        ("mail ada@host, see http://host/a?b=c", "mail ada@host, see http://host/a?b=c"),
        ("models:/m@champion at http://host", "models:/m@champion at http://host"),
        # It may be the rest of a password with a slash in it.
        ("http://host/a@b", "http://***@b"),
        ("", ""),
    ],
)
def test_what_is_masked_and_what_stays(text: str, masked: str) -> None:
    assert redact(text) == masked
    assert redact(masked) == masked


PRINTED = string.ascii_letters + string.digits + string.punctuation + "äß€"
QUERY_KEYS = (
    "password pwd sig token api_key X-Amz-Signature X-Amz-Credential X-Amz-Security-Token "
    "sslpassword client_secret access_token Signature AWSAccessKeyId passphrase"
).split()
# What stands before and after a password, in all the places where people write one.
BEFORE_HOST = [
    ("postgresql://ada:", "@host:5432/runs"),
    ("https://", "@host/x?step=3"),
    ("https://ada:x@host:", "@other"),
    ("mysql+pymysql://:", "@host/runs?charset=utf8"),
    ("http://ada:", "@[::1]:5000#part"),
]
IN_QUERY = [
    place
    for key in QUERY_KEYS
    for place in (
        (f"s3://bucket/x?{key}=", ""),
        (f"url: /x?step=3&{key}=", "&more=1#a"),
        (f"odbc://host;{key}=", "&more=1"),
    )
]


@settings(max_examples=200, deadline=None)
@given(st.text(PRINTED, min_size=1, max_size=40), st.sampled_from(["", "failed: ", '{"uri": "']))
def test_no_part_of_a_password_is_shown(password: str, begin: str) -> None:
    # In a query an `&` ends the value, so there it has to be quoted.
    in_query = [(*place, password.replace("&", "%26")) for place in IN_QUERY]
    for before, after, secret in [(*place, password) for place in BEFORE_HOST] + in_query:
        text = f"{begin}{before}{secret}{after} then more"
        assert secrets_in(text)
        shown = redact(text).split("***")
        assert len(shown) > 1, text
        for piece in shown:
            assert piece in begin + before or piece in f"{after} then more", (text, shown)


@pytest.mark.parametrize(
    ("text", "certain"),
    [
        ("https://token@host", True),
        ("postgresql://ada:pa/ss@host", True),
        ("git+https://host/project@v1", False),
        ("http://host:5000/a@b", False),
        ("http://host/?key=a@b", False),
    ],
)
def test_an_at_sign_in_a_path_is_no_certain_password(text: str, certain: bool) -> None:
    assert secrets_in(text)[0].certain is certain


def test_what_was_found_is_said_without_it() -> None:
    (before, query) = secrets_in("see https://hunter2@host/x?pwd=hunter3")
    assert (before.what, query.what) == ("a user or password", "a secret in its query (pwd)")
    assert before.scheme == "https"


@pytest.mark.parametrize(
    ("text", "found"),
    [
        # One word with two addresses, of which the first has a path, or an @ in it.
        ('{"docs":"https://a.com/x","store":"https://user:hunter2@b.com"}', True),
        ("URLS=http://mlflow:5000/x,https://user:hunter2@b.com/y", True),
        ("--extra-index-url=https://a.org/simple;https://u:hunter2@b.org/", True),
        ('"https://hunter2@h/x,https://b/c@1"', True),
        ("https://a.com/x,https://b.com/pkg@1,https://c.com", False),
        ("sqlite:///a@b,https://host/x", False),
        ('{"repo":"https://a.com/o","home":"https://b.org","email":"me@b.com"}', False),
        ('{"a":"https://b.org/x","b":"https://b.org:8080","email":"me@b.com"}', False),
        ('{"a":"https://b.org/x","b":"https://bob:hunter2@h/x","email":"me@b.com"}', True),
        ("https://b.org/x,https://bob:hunter&2@h/x", True),
        ("https://a.com/?next=https://b.com&mail=me@b.com", False),
        # An @ or # in front of a password is written so.
        ("https://user:%40bcdef@host/", True),
        ("postgresql://mlflow:%23Secret@db/x", True),
        ("https://%40token@host", True),
        ("https://%s:%s@host, https://user:%(password)s@host", False),
        ("https://user:%DB_PASSWORD%@host", False),
        ("https://$USER:${PASSWORD}@host", False),
    ],
)
def test_a_password_of_an_address_is_found_in_a_file(text: str, found: bool) -> None:
    said = secret_in(text.encode())
    assert said == ("an address with a user or password in line 1" if found else None)


def test_a_long_line_takes_no_long_time() -> None:
    line = "a" * 1_000_000 + "://" + "?x=" * 100_000
    assert redact(line) == line
    line = "http://a/" * 100_000
    assert redact(line) == line
