"""The registry of data sets: ours is whole, and mistakes in one's own are named."""

from __future__ import annotations

import datetime
import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from seq2sweep.data import sources
from seq2sweep.data.archives import Text
from seq2sweep.data.sources import REGISTRY, Archive, Corpus, mirrored
from seq2sweep.errors import UserError

DIRECTIONS = [
    *(("wmt14-en-de", *pair) for pair in (("en", "de"), ("de", "en"))),
    *(("wmt14-en-fr", *pair) for pair in (("en", "fr"), ("fr", "en"))),
    *(("multi30k", *pair) for pair in (("en", "de"), ("de", "en"), ("en", "fr"), ("fr", "en"))),
    ("wmt14-en-de-newstest2013", "en", "de"),
]


@pytest.mark.parametrize(("name", "source", "target"), DIRECTIONS)
def test_every_archive_has_a_sum_and_an_address(name: str, source: str, target: str) -> None:
    dataset = sources.load(REGISTRY, name, source, target)
    assert dataset.licence
    used = {text[0] for c in sum(dataset.splits.values(), ()) for text in (c.source, c.target)}
    assert {archive.file for archive in dataset.archives} == used
    for archive in dataset.archives:
        assert archive.digest is not None
        assert archive.addresses[0].startswith("https://")
        assert all(address.endswith("/" + archive.file) for address in archive.addresses)
    for corpora in dataset.splits.values():
        for corpus in corpora:
            for text, language in ((corpus.source, source), (corpus.target, target)):
                wanted = text[1] or text[0]
                assert re.search(rf"\.{language}(\.sgm|\.gz)?$", wanted), wanted
            assert corpus.source != corpus.target


def test_english_german_is_made_of_what_the_paper_trained_on() -> None:
    dataset = sources.load(REGISTRY, "wmt14-en-de", "en", "de")
    train = {corpus.name: corpus for corpus in dataset.splits["train"]}
    assert list(train) == ["europarl-v7", "commoncrawl", "news-commentary-v9"]
    file = "training-parallel-europarl-v7.tgz"
    assert train["europarl-v7"] == Corpus(
        "europarl-v7",
        (file, "training/europarl-v7.de-en.en"),
        (file, "training/europarl-v7.de-en.de"),
        None,
    )
    (test,) = dataset.splits["test"]
    assert test.lines == 3003
    assert test.texts(Path("there")) == (
        Text(Path("there/test-full.tgz"), "test-full/newstest2014-deen-src.en.sgm"),
        Text(Path("there/test-full.tgz"), "test-full/newstest2014-deen-ref.de.sgm"),
    )


def test_the_other_direction_swaps_roles_not_only_languages() -> None:
    there, back = (
        sources.load(REGISTRY, "wmt14-en-de", *pair).splits["test"][0]
        for pair in (("en", "de"), ("de", "en"))
    )
    assert back.source[1] == "test-full/newstest2014-deen-src.de.sgm"
    assert back.target[1] == "test-full/newstest2014-deen-ref.en.sgm"
    assert there.name == back.name


def test_mirrors_replace_the_longest_beginning() -> None:
    mirrors = {"https://a.org/": "file:///cache/", "https://a.org/deep/": "s3://bucket/x/"}
    assert mirrored("https://a.org/file.tgz", mirrors) == "file:///cache/file.tgz"
    assert mirrored("https://a.org/deep/file.tgz", mirrors) == "s3://bucket/x/file.tgz"
    assert mirrored("http://a.org/file.tgz", mirrors) == "http://a.org/file.tgz"
    assert mirrored("https://a.org/file.tgz", {}) == "https://a.org/file.tgz"


# --- a registry of one's own ---------------------------------------------------------------------

OWN: dict[str, Any] = {
    "archives": {
        "a.tgz": {"addresses": ["https://a.org/a.tgz"], "bytes": 12, "md5": "0" * 32},
        "b.en.gz": {"addresses": ["s3://b/b.en.gz"]},
        "b.ro.gz": {"addresses": ["s3://b/b.ro.gz"]},
    },
    "datasets": {
        "ours": {
            "languages": ["en", "ro"],
            "about": "ours",
            "licence": "ours",
            "pairs": 7,
            "train": [{"name": "b", "archive": "b.{language}.gz"}],
            "valid": [{"name": "v", "archive": "a.tgz", "members": "v.{language}", "lines": 3}],
            "test": [{"name": "t", "archive": "a.tgz", "members": {"source": "s", "target": "t"}}],
        }
    },
}


def written(folder: Path, content: Any) -> Path:
    folder.mkdir(exist_ok=True)
    (folder / "own.yaml").write_text(yaml.safe_dump(content))
    return folder


def changed(path: str, value: Any) -> dict[str, Any]:
    """OWN with the value at a path of keys replaced, or removed if it is None."""
    content: dict[str, Any] = yaml.safe_load(yaml.safe_dump(OWN))
    *above, last = path.split("/")
    section: Any = content
    for key in above:
        section = section[int(key) if key.isdigit() else key]
    if value is None:
        del section[last]
    else:
        section[last] = value
    return content


def test_a_registry_of_ones_own(tmp_path: Path) -> None:
    dataset = sources.load(written(tmp_path, OWN), "ours", "en", "ro")
    assert dataset.archives == (
        Archive("b.en.gz", ("s3://b/b.en.gz",), None, None, None),
        Archive("b.ro.gz", ("s3://b/b.ro.gz",), None, None, None),
        Archive("a.tgz", ("https://a.org/a.tgz",), 12, "md5", "0" * 32),
    )
    assert dataset.splits["train"] == (Corpus("b", ("b.en.gz", None), ("b.ro.gz", None), None),)
    assert dataset.splits["valid"] == (Corpus("v", ("a.tgz", "v.en"), ("a.tgz", "v.ro"), 3),)
    assert dataset.splits["test"] == (Corpus("t", ("a.tgz", "s"), ("a.tgz", "t"), None),)


@pytest.mark.parametrize(
    ("path", "value", "message"),
    [
        ("archives/a.tgz", None, "archives has no a.tgz"),
        ("archives/a.tgz/addresses", [], "archives.a.tgz has [] as addresses"),
        ("archives/a.tgz/addresses", ["a.org/a.tgz"], "'a.org/a.tgz' as an address"),
        ("archives/a.tgz/addresses", [7], "addresses[0] is a number, not a string; fix it"),
        ("archives/a.tgz/md5", "12", "a md5 of 2 characters"),
        ("archives/a.tgz/bytes", "many", "archives.a.tgz: bytes is a string, not a number"),
        ("archives/a.tgz", ["x"], "archives.a.tgz must be a section"),
        ("archives", ["x"], "archives must be a section"),
        ("datasets/ours/train", None, "datasets.ours: train is missing"),
        ("datasets/ours/pairs", "many", "datasets.ours: pairs is a string"),
        ("archives/a.tgz/bytes", -1, "has -1 as bytes"),
        ("archives/a.tgz/sha265", "0" * 64, "archives.a.tgz has sha265, which is none of"),
        ("archives/a.tgz/addresses", ["http://[::1/a"], "'http://[::1/a' as an address"),
        ("datasets/ours/test/0/line", 7, "datasets.ours.test has line, which is none of"),
        ("datasets/ours/tests", [], "datasets.ours has tests, which is none of"),
        (
            "datasets/ours/languages",
            ["en", False],
            "languages[1] is true or false, not a string; fix it (a text such as no needs quotes)",
        ),
        ("datasets/ours/test", [OWN["datasets"]["ours"]["test"][0]] * 2, "a name twice in test"),
        ("datasets/ours/licence", None, "datasets.ours: licence is missing"),
        ("datasets/ours/licence", "", "datasets.ours has '' as licence"),
        ("datasets/ours/about", datetime.date(2026, 1, 1), "about is a date, not a string"),
        ("datasets/ours/test", ["t"], "datasets.ours: test[0] is a string, not an object"),
        ("datasets/ours/test/0/name", None, "datasets.ours.test: name is missing"),
        ("datasets/ours/test/0/members", {"source": 7}, "datasets.ours.test: source is a number"),
        ("datasets/ours/test/0/archive", "../a.tgz", "archives has no ../a.tgz"),
    ],
)
def test_mistakes_are_named(tmp_path: Path, path: str, value: Any, message: str) -> None:
    folder = written(tmp_path, changed(path, value))
    with pytest.raises(UserError) as caught:
        sources.load(folder, "ours", "en", "ro")
    assert str(tmp_path / "own.yaml") in str(caught.value)
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("file", ["../a.tgz", "/a.tgz", "..", "deep/a.tgz"])
def test_an_archive_cannot_lie_outside_of_its_folder(tmp_path: Path, file: str) -> None:
    content = changed("datasets/ours/test/0/archive", file)
    content["archives"][file] = OWN["archives"]["a.tgz"]
    with pytest.raises(UserError, match="the name of a file, without a folder"):
        sources.load(written(tmp_path, content), "ours", "en", "ro")


@pytest.mark.parametrize("file", ["a.tgz.json", "a.partial"])
def test_receipts_have_names_of_their_own(tmp_path: Path, file: str) -> None:
    content = changed("datasets/ours/test/0/archive", file)
    content["archives"][file] = OWN["archives"]["a.tgz"]
    with pytest.raises(UserError, match="a name as receipts and partial downloads have"):
        sources.load(written(tmp_path, content), "ours", "en", "ro")


def test_unknown_names_and_languages(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="did you mean wmt14-en-de"):
        sources.load(REGISTRY, "wmt-en-de", "en", "de")
    with pytest.raises(UserError, match=r"which .* does not describe; known: phrasebook, files"):
        sources.load(REGISTRY, "zzz", "en", "de")
    with pytest.raises(UserError, match=r"data.source en and data.target fr: wmt14-en-de has en"):
        sources.load(REGISTRY, "wmt14-en-de", "en", "fr")
    with pytest.raises(UserError, match="choose two of them"):
        sources.load(REGISTRY, "multi30k", "en", "en")
    with pytest.raises(UserError, match=r"does not describe, did you mean phrasebook\?"):
        sources.load(tmp_path / "empty", "phrasebok", "en", "de")
    with pytest.raises(UserError, match="holds no registry of data sets"):
        sources.load(tmp_path, "wmt14-en-de", "en", "de")


def test_files_that_are_no_registry(tmp_path: Path) -> None:
    (tmp_path / "x.yaml").write_text("a: [")
    with pytest.raises(UserError, match=r"x\.yaml line 1: not valid YAML"):
        sources.load(tmp_path, "a", "en", "de")
    (tmp_path / "x.yaml").write_text("datasets: {a: {}, a: {}}")
    with pytest.raises(UserError, match="'a' appears twice"):
        sources.load(tmp_path, "a", "en", "de")
    (tmp_path / "y.yaml").mkdir()
    (tmp_path / "x.yaml").unlink()
    with pytest.raises(UserError, match=r"y\.yaml cannot be read"):
        sources.load(tmp_path, "a", "en", "de")
    (tmp_path / "y.yaml").rmdir()
    (tmp_path / "x.yaml").write_text("datasets: {2013: {}}\n")
    with pytest.raises(UserError, match=r"x.yaml: datasets\.2013 must be text: put it into quotes"):
        sources.load(tmp_path, "a", "en", "de")
    (tmp_path / "x.yaml").write_text("- a\n")
    with pytest.raises(UserError, match="must be a section"):
        sources.load(tmp_path, "a", "en", "de")
    written(tmp_path, OWN)
    (tmp_path / "x.yaml").write_text(yaml.safe_dump(OWN))
    with pytest.raises(UserError, match=r"archives.a.tgz is in .*own\.yaml already"):
        sources.load(tmp_path, "a", "en", "de")
