"""References by name, from a cache folder laid out as sacreBLEU's; nothing is ever fetched."""

from __future__ import annotations

import gzip
import io
import json
import logging
import os
import socket
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import portalocker
import pytest
import sacrebleu.dataset.base
import sacrebleu.utils
from sacrebleu.dataset import DATASETS

from seq2sweep.cli import main
from seq2sweep.errors import UserError
from seq2sweep.evaluate.references import NEWSTEST2014, read_texts
from tests.refusal import refusal

NAMES = ("wmt14/full", "wmt14", "wmt13", "wmt21/systems", "wmt17/ms")


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty cache of sacreBLEU's, and no network."""
    folder = tmp_path / "cache"
    for name in NAMES:
        monkeypatch.setattr(DATASETS[name], "_outdir", str(folder / name))
        monkeypatch.setattr(DATASETS[name], "_rawdir", str(folder / name / "raw"))

    def refuse(*_: object, **__: object) -> None:
        raise AssertionError("a test reached for the network")

    monkeypatch.setattr(urllib.request, "urlopen", refuse)
    monkeypatch.chdir(tmp_path)
    return folder


def fill(cache: Path, name: str, pair: str, lines: list[str], source: int | None = None) -> None:
    """The text files that sacreBLEU leaves of a set it has used, one a field."""
    folder = cache / name
    folder.mkdir(parents=True, exist_ok=True)
    count = len(lines) if source is None else source
    fields = {"src": ["A sentence."] * count, "ref": lines}
    fields |= {field: ["x"] * count for field in ("docid", "genre", "origlang")}
    for field, content in fields.items():
        path = folder / f"{name.replace('/', '_')}.{pair}.{field}"
        path.write_text("".join(line + "\n" for line in content), encoding="utf-8")


def hypothesis(lines: list[str], name: str = "h.txt") -> Path:
    Path(name).write_text("".join(line + "\n" for line in lines), encoding="utf-8")
    return Path(name)


def sentences(count: int) -> list[str]:
    return [f"Der IT-Chef kommt zum {i}. Mal." for i in range(count)]


def test_a_named_set_is_read_from_the_cache(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    lines = sentences(4)
    fill(cache, "wmt14/full", "en-de", lines)
    fetched: list[object] = []
    monkeypatch.setattr(sacrebleu.dataset.base, "download_file", fetched.append)
    texts = read_texts([hypothesis(lines)], "wmt14/full", "de", "en")
    assert texts.references == texts.hypotheses[0] == lines
    assert texts.test_set == {"test_set": {"name": "wmt14/full", "sentences": 4}}
    assert fetched == []


def test_scores_say_which_set_they_are_on(cache: Path, capsys: pytest.CaptureFixture[str]) -> None:
    lines = sentences(3)
    fill(cache, "wmt13", "en-de", lines)
    hypothesis(lines)
    hypothesis([*lines[:2], "Niemand kommt."], "worse.txt")
    assert main(["score", "h.txt", "wmt13", "--from", "en", "--to", "de"]) == 0
    scored = json.loads(capsys.readouterr().out)
    named = ["compare", "h.txt", "worse.txt", "wmt13", "--from", "en", "--to", "de"]
    assert main([*named, "--samples", "20"]) == 0
    compared = json.loads(capsys.readouterr().out)
    assert scored["test_set"] == compared["test_set"] == {"name": "wmt13", "sentences": 3}
    assert scored["bleu"]["paper"]["score"] == 100.0
    hypothesis(lines, "r.txt")
    assert main(["score", "h.txt", "r.txt", "--from", "en", "--to", "de"]) == 0
    plain = json.loads(capsys.readouterr().out)
    del scored["test_set"]
    assert plain == scored


def test_raw_files_beside_their_archive_are_enough(cache: Path) -> None:
    # As they are after a download, or put there by hand: sacreBLEU takes the text out of the SGML.
    raw = cache / "wmt14/full/raw"
    (raw / "test-full").mkdir(parents=True)
    (raw / "wmt14_full.test-full.tgz").write_bytes(b"not read again")
    for role, language, text in (("src", "en", "The head  is here."), ("ref", "de", "Der  Chef.")):
        document = f'<doc docid="a" genre="news" origlang="en">\n<seg id="1">{text}</seg>\n</doc>\n'
        name = f"newstest2014-deen-{role}.{language}.sgm"
        (raw / "test-full" / name).write_text(document, encoding="utf-8")
    texts = read_texts([hypothesis(["Der Chef."])], "wmt14/full", "de", "en")
    assert texts.references == ["Der Chef."]


def test_a_file_wins_over_a_name(cache: Path) -> None:
    fill(cache, "wmt14", "en-de", sentences(2))
    own = hypothesis(["Mein eigener Text."], "wmt14")
    texts = read_texts([own], "wmt14", "de", None)
    assert texts.references == ["Mein eigener Text."]
    assert texts.test_set == {}


def test_a_folder_of_that_name_does_not_win(cache: Path) -> None:
    fill(cache, "wmt14/full", "en-de", sentences(2))
    Path("wmt14/full").mkdir(parents=True)
    texts = read_texts([hypothesis(sentences(2))], "wmt14/full", "de", "en")
    assert texts.test_set == {"test_set": {"name": "wmt14/full", "sentences": 2}}


@pytest.mark.parametrize(("given", "other"), [("wmt14/full", "wmt14"), ("wmt14", "wmt14/full")])
def test_the_other_newstest2014_is_recognised(
    cache: Path, given: str, other: str, capsys: pytest.CaptureFixture[str]
) -> None:
    fill(cache, given, "en-de", sentences(NEWSTEST2014[given]))
    hypothesis(sentences(NEWSTEST2014[other]))
    error = refusal(capsys, "score", "h.txt", given, "--from", "en", "--to", "de")
    assert f"h.txt has {NEWSTEST2014[other]} lines but {given} en-de has" in error
    assert "2737 sentences as wmt14 and 3003 sentences as wmt14/full" in error


def test_the_other_newstest2014_is_recognised_in_files_too() -> None:
    reference = hypothesis(sentences(3003), "r.txt")
    with pytest.raises(UserError, match="2737 sentences as wmt14 and 3003") as caught:
        read_texts([hypothesis(sentences(2737))], reference, "de", None)
    assert "h.txt has 2737 lines but r.txt has 3003" in str(caught.value)


def test_every_hypothesis_is_checked() -> None:
    good, short = hypothesis(["a", "b"], "good.txt"), hypothesis(["a"], "short.txt")
    with pytest.raises(UserError, match=r"short.txt has 1 lines but good.txt has 2 lines: line i"):
        read_texts([good, short], good, "de", None)


@pytest.mark.parametrize(
    ("reference", "pair", "message"),
    [
        ("wmt14/full", (None, "de"), "--from en"),
        ("wmt14/full", ("en", "ja"), "wmt14/full has no en-ja; it has cs-en, en-cs"),
        ("wmt14/ful", ("en", "de"), "wmt14/ful is missing.*did you mean wmt14/full?"),
        ("newstest2014", ("en", "de"), "did you mean wmt14/full?"),
        ("nowhere.txt", ("en", "de"), "nowhere.txt is missing.*check its name and folder"),
    ],
)
def test_what_cannot_be_found_is_one_line(
    reference: str, pair: tuple[str | None, str], message: str
) -> None:
    source, target = pair
    with pytest.raises(UserError, match=message) as caught:
        read_texts([hypothesis(["a"])], reference, target, source)
    assert "\n" not in str(caught.value)


def test_a_set_with_two_references_is_refused(cache: Path) -> None:
    folder = cache / "wmt17/ms"
    folder.mkdir(parents=True)
    for field in DATASETS["wmt17/ms"].fieldnames("zh-en"):
        (folder / f"wmt17_ms.zh-en.{field.replace(':', '-')}").write_text("x\n")
    with pytest.raises(UserError, match=r"3 references.*--echo FIELD.*ref:0, ref:1"):
        read_texts([hypothesis(["a"])], "wmt17/ms", "en", "zh")


def test_a_damaged_copy_is_noticed(cache: Path) -> None:
    fill(cache, "wmt14/full", "en-de", sentences(154), source=3003)
    with pytest.raises(UserError, match=r"damaged \(3003 source sentences, 154 ref.*delete that"):
        read_texts([hypothesis(sentences(154))], "wmt14/full", "de", "en")


def no_network(*_: object) -> Any:
    raise urllib.error.URLError("[Errno -2] Name or service\nnot known")


def torn(*_: object) -> Any:
    return io.BytesIO(gzip.compress(b"a sign-in page, not a test set"))


@pytest.mark.parametrize(
    ("answer", "reason"),
    [(no_network, "Name or service not known"), (torn, "wrong checksum")],
)
def test_no_network_is_one_line_that_says_where_to_put_the_file(
    answer: Callable[..., Any],
    reason: str,
    cache: Path,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
    caplog: pytest.LogCaptureFixture,
) -> None:
    monkeypatch.setattr(urllib.request, "urlopen", answer)
    seconds, logger = socket.getdefaulttimeout(), logging.getLogger("sacrebleu")
    hypothesis(["a"])
    for _ in range(2):  # what a failed attempt leaves behind must not change the answer
        assert main(["score", "h.txt", "wmt14/full", "--from", "en", "--to", "de"]) == 2
    out, error = capfd.readouterr()
    assert out == ""
    first, second = error.splitlines()
    assert reason in first
    for line in (first, second):
        assert str(cache / "wmt14/full/raw") in line
        assert "test-full.tgz as wmt14_full.test-full.tgz" in line
        assert "set SACREBLEU to a cache folder" in line
    assert socket.getdefaulttimeout() == seconds
    assert not logger.disabled
    assert caplog.records == []  # outside of pytest they would be lines on standard error


def test_a_cache_that_another_process_has_locked_is_one_line(
    cache: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def impatient(path: str, timeout: float) -> portalocker.Lock:
        return portalocker.Lock(path, timeout=0.1)

    monkeypatch.setattr(sacrebleu.utils, "portalocker", SimpleNamespace(Lock=impatient))
    hypothesis(["a"])
    raw = cache / "wmt14/full/raw"
    raw.mkdir(parents=True)
    with portalocker.Lock(raw / "wmt14_full.test-full.tgz.lock"):
        assert main(["score", "h.txt", "wmt14/full", "--from", "en", "--to", "de"]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert f"cannot lock {raw} ([Errno 11] Resource temporarily unavailable): wait for" in line
    assert "set SACREBLEU to a folder on a disk" in line


def test_a_set_whose_fields_are_in_its_archive(
    cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # From 2021 on sacreBLEU opens the archive even to name the fields.
    monkeypatch.setattr(urllib.request, "urlopen", no_network)
    with pytest.raises(UserError, match="wmt21/systems en-de is not in sacreBLEU's cache"):
        read_texts([hypothesis(["a"])], "wmt21/systems", "de", "en")


def test_the_environment_says_where_the_cache_is(cache: Path) -> None:
    fill(cache, "wmt14", "en-fr", ["Voici l'avant-projet."])
    hypothesis(["Voici l'avant-projet."])
    nowhere = "http://127.0.0.1:9"
    environment = os.environ | {"SACREBLEU": str(cache), "https_proxy": nowhere}
    arguments = ["score", "h.txt", "wmt14", "--from", "en", "--to", "fr"]
    done = subprocess.run(
        [sys.executable, "-m", "seq2sweep.cli", *arguments],
        env=environment | {"http_proxy": nowhere},
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.stderr == ""
    result = json.loads(done.stdout)
    assert result["test_set"] == {"name": "wmt14", "sentences": 1}
    assert result["bleu"]["paper"] == result["bleu"]["tokenised"]
