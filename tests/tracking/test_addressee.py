"""What a store is called: by its address, and by an id where other machines have the like."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from seq2sweep.tracking import addressee
from seq2sweep.tracking.addressee import named
from seq2sweep.tracking.outbox import address_of


def test_a_file_keeps_its_id(tmp_path: Path) -> None:
    file = tmp_path / "deep" / "mlflow.db"
    uri = f"sqlite:///{file}"
    name = named(uri, file)
    assert re.fullmatch(f"[0-9a-f]{{32}} {re.escape(uri)}", name)
    assert named(uri, file) == name
    assert address_of(name) == address_of(uri) == uri
    assert [path.name for path in file.parent.iterdir()] == ["mlflow.db.id"]
    assert named(uri, tmp_path / "mlflow.db") not in (name, uri)


@pytest.mark.parametrize("links", [False, True])
def test_the_first_process_gives_the_id(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, links: bool
) -> None:
    file, first = tmp_path / "mlflow.db", "a" * 32
    real = Path.hardlink_to

    def link(path: Path, target: Path) -> None:
        if not links:
            raise PermissionError("none here")
        path.write_text(first)
        real(path, target)

    monkeypatch.setattr(Path, "hardlink_to", link)
    name = named("sqlite:///x", file)
    assert (name == f"{first} sqlite:///x") is links
    assert named("sqlite:///x", file) == name
    assert [path.name for path in tmp_path.iterdir()] == ["mlflow.db.id"]


@pytest.mark.parametrize("text", ["", "no id"])
def test_without_an_id_it_is_the_address(tmp_path: Path, text: str) -> None:
    (tmp_path / "mlflow.db.id").write_text(text)
    assert named("sqlite:///x", tmp_path / "mlflow.db") == "sqlite:///x"
    (tmp_path / "file").touch()
    assert named("sqlite:///x", tmp_path / "file" / "mlflow.db") == "sqlite:///x"


@pytest.mark.parametrize(
    ("uri", "here"),
    [
        ("http://localhost:5000", True),
        ("http://127.0.0.1:5000/", True),
        ("https://ada:hunter2@[::1]:5000", True),
        ("postgresql+psycopg2://ada:hunter2@localhost/runs", True),
        ("postgresql+psycopg2:///runs", False),
        ("postgresql+psycopg2://ada:hunter2@/runs?host=db.example.org", False),
        ("http://mlflow:5000", False),
        ("http://ada:hunter2@10.0.0.1:5000", False),
    ],
)
def test_a_server_of_this_machine_has_its_id(
    uri: str, here: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shown = uri.replace("ada:hunter2", "***")
    monkeypatch.setattr(addressee, "MACHINE_ID", tmp_path / "machine-id")
    assert named(uri, None) == shown  # as in a container
    names = set()
    for machine in ("3d12", "77a0"):
        (tmp_path / "machine-id").write_text(f"{machine}\n")
        names.add(named(uri, None))
    assert {address_of(name) for name in names} == {shown}
    assert len(names) == (2 if here else 1)
    assert not any("3d12" in name.partition(" ")[0] for name in names)
