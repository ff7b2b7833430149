"""WMT14 from a server on this machine to training tensors, by the stages, through every trouble."""

from __future__ import annotations

import gzip
import hashlib
import html
import io
import json
import os
import signal
import subprocess
import tarfile
import time
from collections.abc import Mapping, Sequence
from itertools import islice
from pathlib import Path
from typing import Any

import pytest
import yaml

import phrasebook
from seq2sweep import config as configuration
from seq2sweep import presets
from seq2sweep.data.bitext import Bitext
from seq2sweep.data.files import SIDES, SPLITS
from seq2sweep.data.sources import REGISTRY
from seq2sweep.data.vocabulary import Vocabulary
from tests.clone import ROOT
from tests.data.server import Page, serving
from tests.pipeline.stage_runs import command, environment, run, succeed

SHARED = ROOT.parent / "shared/data"
ENGLISH_GERMAN = ("europarl-v7", "commoncrawl", "news-commentary-v9")
ENGLISH_FRENCH = ("europarl-v7", "commoncrawl", "un-2000", "news-commentary-v9", "giga-fren")
PAIRS = 60
HELD_OUT = 12

Texts = dict[str, tuple[list[str], list[str]]]
"""English and other lines of each corpus, valid and test."""


# --- archives in the true layout -----------------------------------------------------------------


def tar(members: Mapping[str, bytes], mode: str) -> bytes:
    stream = io.BytesIO()
    with tarfile.open(fileobj=stream, mode=mode) as archive:
        for name, content in members.items():
            info = tarfile.TarInfo(name)
            info.size = len(content)
            archive.addfile(info, io.BytesIO(content))
    return stream.getvalue()


def text(lines: Sequence[str]) -> bytes:
    return "".join(f"{line}\n" for line in lines).encode()


def sgml(lines: Sequence[str], kind: str) -> bytes:
    half = len(lines) // 2
    documents = [
        f'<doc sysid="ref" docid="{name}" genre="news" origlang="en">\n'
        + "".join(f'<seg id="{i}">{html.escape(s)}</seg>\n' for i, s in enumerate(part, start=1))
        + "</doc>\n"
        for name, part in (("first", lines[:half]), ("second", lines[half:]))
    ]
    return f'<{kind} setid="made" srclang="any">\n{"".join(documents)}</{kind}>\n'.encode()


def archives(other: str, texts: Texts) -> dict[str, bytes]:
    """Every archive of English with the other language, as statmt.org has them."""
    english, foreign = ({name: pair[side] for name, pair in texts.items()} for side in (0, 1))
    pair = f"{other}-en"

    def both(stem: str, name: str) -> dict[str, bytes]:
        return {f"{stem}.{other}": text(foreign[name]), f"{stem}.en": text(english[name])}

    made = {
        "training-parallel-europarl-v7.tgz": tar(
            {
                "training/europarl-v7.cs-en.cs": b"not wanted\n" * 1000,
                **both(f"training/europarl-v7.{pair}", "europarl-v7"),
            },
            "w:gz",
        ),
        "training-parallel-commoncrawl.tgz": tar(
            both(f"./commoncrawl.{pair}", "commoncrawl"), "w:gz"
        ),
        "training-parallel-nc-v9.tgz": tar(
            both(f"training/news-commentary-v9.{pair}", "news-commentary-v9"), "w:gz"
        ),
        "dev.tgz": tar(
            {
                f"dev/newstest2013-{role}.{language}.sgm": sgml(lines, f"{role}set")
                for role in ("src", "ref")
                for language, lines in (("en", english["valid"]), (other, foreign["valid"]))
            },
            "w:gz",
        ),
    }
    stem = "test-full/newstest2014-" + ("deen" if other == "de" else "fren")
    made["test-full.tgz"] = tar(
        {
            f"{stem}-src.{other}.sgm": sgml(foreign["test"], "srcset"),
            f"{stem}-ref.en.sgm": sgml(english["test"], "refset"),
            f"{stem}-src.en.sgm": sgml(english["test"], "srcset"),
            f"{stem}-ref.{other}.sgm": sgml(foreign["test"], "refset"),
        },
        "w:gz",
    )
    if other == "fr":
        made["training-parallel-un.tgz"] = tar(both("un/undoc.2000.fr-en", "un-2000"), "w:gz")
        giga = both("giga-fren.release2.fixed", "giga-fren")
        made["training-giga-fren.tar"] = tar(
            {f"{name}.gz": gzip.compress(content) for name, content in giga.items()}, "w:"
        )
    return made


def made_texts(corpora: Sequence[str]) -> Texts:
    """Sentences of the phrasebook; what stands for French is German in another order of words."""
    train = phrasebook.generate("train", PAIRS * len(corpora), 1)
    texts: Texts = {}
    for name in corpora:
        pairs = list(islice(train, PAIRS))
        texts[name] = [p.source for p in pairs], [p.target for p in pairs]
    for split in ("valid", "test"):
        pairs = list(phrasebook.generate("valid" if split == "valid" else "test", HELD_OUT, 1))
        texts[split] = [f"{p.source} & <more>" for p in pairs], [p.target for p in pairs]
    return texts


# --- a project that downloads from a server ------------------------------------------------------


@pytest.fixture
def project(tmp_path: Path) -> Path:
    (tmp_path / "registry").mkdir()
    return tmp_path


def configure(
    project: Path,
    dataset: str,
    files: Mapping[str, bytes],
    address: str,
    lines: int = HELD_OUT,
    **changes: Any,
) -> None:
    """params.yaml, and a registry with the sums of these archives; the addresses stay ours."""
    registry = yaml.safe_load((REGISTRY / "wmt14.yaml").read_text())
    for file, content in files.items():
        archive = registry["archives"][file]
        archive |= {"bytes": len(content), "sha256": hashlib.sha256(content).hexdigest()}
        archive["addresses"] = archive["addresses"][:1]
    for split in ("valid", "test"):
        registry["datasets"][dataset][split][0]["lines"] = lines
    (project / "registry/wmt14.yaml").write_text(yaml.safe_dump(registry))
    base = "wmt14-en-fr-base" if dataset == "wmt14-en-fr" else "wmt14-en-de-base"
    config = configuration.with_changes(
        presets.load(base).config,
        {
            "data.folder": "registry",
            "vocabulary.size": 300,
            "vocabulary.character_coverage": 1.0,
            "download.mirrors": {
                "https://www.statmt.org/": f"{address}/www/",
                "https://data.statmt.org/": f"{address}/data/",
            },
            **{key.replace("__", "."): value for key, value in changes.items()},
        },
    )
    (project / "params.yaml").write_text(configuration.dump(config), encoding="utf-8")


def pages(files: Mapping[str, bytes]) -> dict[str, Page]:
    """Every archive under the path that its address has."""
    registry = yaml.safe_load((REGISTRY / "wmt14.yaml").read_text())["archives"]
    found = {}
    for file, content in files.items():
        address = registry[file]["addresses"][0]
        host, _, path = address.removeprefix("https://").partition("/")
        found[f"/{host.partition('.')[0]}/{path}"] = Page(content)
    return found


def page_of(found: Mapping[str, Page], file: str) -> Page:
    return next(page for path, page in found.items() if path.endswith(f"/{file}"))


def lines_of(path: Path) -> list[str]:
    return path.read_bytes().decode().removesuffix("\n").split("\n")


def read(path: Path) -> Any:
    return json.loads(path.read_text(encoding="utf-8"))


# --- the way through -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("dataset", "other", "corpora"),
    [("wmt14-en-de", "de", ENGLISH_GERMAN), ("wmt14-en-fr", "fr", ENGLISH_FRENCH)],
)
def test_the_whole_chain_through_a_bad_network(
    project: Path, dataset: str, other: str, corpora: Sequence[str]
) -> None:
    texts = made_texts(corpora)
    files = archives(other, texts)
    found = pages(files)
    page_of(found, "training-parallel-europarl-v7.tgz").cut_after = 700
    page_of(found, "training-parallel-europarl-v7.tgz").cuts = 2
    page_of(found, "training-parallel-commoncrawl.tgz").statuses = [500]
    page_of(found, "training-parallel-nc-v9.tgz").chunked = True
    page_of(found, "dev.tgz").ranges = False
    page_of(found, "dev.tgz").cut_after = 300
    page_of(found, "dev.tgz").cuts = 1
    found["/elsewhere/test-full.tgz"] = Page(files["test-full.tgz"], block=500, pause=0.02)
    page_of(found, "wmt14/test-full.tgz").redirect = "/elsewhere/test-full.tgz"
    with serving(found) as server:
        configure(project, dataset, files, server.address(""))
        succeed("download", project)
    provenance = read(project / "data/raw/provenance.json")
    for file, content in files.items():
        assert (project / "corpora/downloads" / file).read_bytes() == content
        sums = {"bytes": len(content), "sha256": hashlib.sha256(content).hexdigest()}
        assert provenance["archives"][file] == sums
    assert [c["name"] for c in provenance["splits"]["train"]] == list(corpora)
    left = {path.name for path in (project / "corpora/downloads").iterdir()}
    assert left == {name for file in files for name in (file, f"{file}.json")}
    receipt = read(project / "corpora/downloads/training-parallel-europarl-v7.tgz.json")
    assert receipt["texts"][f"training/europarl-v7.{other}-en.en"]["lines"] == PAIRS

    # From here on without any network.
    succeed("prepare", project)
    succeed("vocabulary", project)
    succeed("encode", project)
    metrics = read(project / "metrics/prepare.json")
    assert metrics["train"]["read"] == PAIRS * len(corpora)
    assert {name: c["read"] for name, c in metrics["train"]["corpora"].items()} == dict.fromkeys(
        corpora, PAIRS
    )
    clean = {s: lines_of(project / f"data/clean/train.{s}.txt") for s in SIDES}
    expected = [pair for name in corpora for pair in zip(*texts[name], strict=True)]
    assert list(zip(*clean.values(), strict=True)) == expected
    for split, role in (("valid", "valid"), ("test", "test")):
        for side, lines in zip(SIDES, texts[role], strict=True):
            assert lines_of(project / f"data/clean/{split}.{side}.txt") == lines
    pieces = Vocabulary.open(project / "data/vocabulary")
    train = Bitext.open(project / "data/encoded", "train")
    assert pieces.decode([train.target(i).tolist() for i in range(len(train))]) == clean["target"]
    assert read(project / "data/vocabulary/vocabulary.json")["kind"] == (
        "bpe" if other == "de" else "word_piece"
    )


def test_the_other_direction_needs_no_other_download(project: Path) -> None:
    texts = made_texts(ENGLISH_GERMAN)
    files = archives("de", texts)
    with serving(pages(files)) as server:
        configure(project, "wmt14-en-de", files, server.address(""))
        succeed("download", project)
        asked = len(server.requests)
        changes = {"data__source": "de", "data__target": "en"}
        configure(project, "wmt14-en-de", files, server.address(""), **changes)
        succeed("download", project)
        assert len(server.requests) == asked
    succeed("prepare", project)
    assert lines_of(project / "data/clean/test.source.txt") == texts["test"][1]
    assert lines_of(project / "data/clean/test.target.txt") == texts["test"][0]
    assert lines_of(project / "data/clean/train.target.txt")[:PAIRS] == texts["europarl-v7"][0]


def test_sides_of_different_length_are_refused_before_anything_is_written(project: Path) -> None:
    texts = made_texts(ENGLISH_GERMAN)
    texts["commoncrawl"][1].pop()
    files = archives("de", texts)
    with serving(pages(files)) as server:
        configure(project, "wmt14-en-de", files, server.address(""))
        done = run("download", project)
    assert done.returncode == 2
    assert f"commoncrawl.de-en.en) has {PAIRS} lines" in done.stderr
    assert f"commoncrawl.de-en.de) has {PAIRS - 1} lines" in done.stderr
    assert not (project / "data/raw").exists()


def test_a_test_set_of_another_size_is_refused(project: Path) -> None:
    files = archives("de", made_texts(ENGLISH_GERMAN))
    with serving(pages(files)) as server:
        configure(project, "wmt14-en-de", files, server.address(""), lines=3003)
        done = run("download", project)
    assert done.returncode == 2
    assert "has 12 lines where the registry says 3,003" in done.stderr
    assert not (project / "data/raw").exists()


def test_what_cannot_be_had_is_listed_and_the_rest_is_kept(project: Path) -> None:
    files = archives("de", made_texts(ENGLISH_GERMAN))
    found = pages(files)
    page_of(found, "training-parallel-nc-v9.tgz").content = b"<html>moved</html>"
    page_of(found, "dev.tgz").statuses = [404]
    with serving(found) as server:
        configure(project, "wmt14-en-de", files, server.address(""))
        done = run("download", project)
        assert done.returncode == 2
        assert "Traceback" not in done.stderr
        assert "2 of 5 archives could not be downloaded" in done.stderr
        for words in ("training-parallel-nc-v9.tgz (", "dev.tgz (", "404", "by hand"):
            assert words in done.stderr
        names = {path.name for path in (project / "corpora/downloads").iterdir()}
        assert "training-parallel-europarl-v7.tgz" in names
        assert not names & {"training-parallel-nc-v9.tgz", "dev.tgz"}
    # Put there by hand, without any server.
    for file in ("training-parallel-nc-v9.tgz", "dev.tgz"):
        (project / "corpora/downloads" / file).write_bytes(files[file])
    succeed("download", project)


def test_an_archive_that_changes_after_the_download_is_noticed(project: Path) -> None:
    texts = made_texts(ENGLISH_GERMAN)
    files = archives("de", texts)
    with serving(pages(files)) as server:
        configure(project, "wmt14-en-de", files, server.address(""))
        succeed("download", project)
        texts["commoncrawl"][0][7] = "Something else."
        archive = project / "corpora/downloads/training-parallel-commoncrawl.tgz"
        archive.write_bytes(archives("de", texts)["training-parallel-commoncrawl.tgz"])
        done = run("prepare", project)
        assert done.returncode == 2
        assert "is not what the download stage read" in done.stderr
        assert not (project / "data/clean").exists()
        done = run("download", project)
    assert done.returncode == 2
    assert "training-parallel-commoncrawl.tgz has sha256" in done.stderr or (
        "training-parallel-commoncrawl.tgz has" in done.stderr and "instead of" in done.stderr
    )


def test_a_killed_download_goes_on_where_it_was(project: Path) -> None:
    big = os.urandom(6_000_000)
    files = archives("de", made_texts(ENGLISH_GERMAN))
    files["training-parallel-commoncrawl.tgz"] = tar(
        {
            "noise": big,
            "commoncrawl.de-en.de": b"eins\nzwei\n",
            "commoncrawl.de-en.en": b"one\ntwo\n",
        },
        "w:gz",
    )
    found = pages(files)
    slow = page_of(found, "training-parallel-commoncrawl.tgz")
    slow.block, slow.pause = 1 << 15, 0.02
    path = next(path for path in found if path.endswith("commoncrawl.tgz"))
    partial = project / "corpora/downloads/training-parallel-commoncrawl.tgz.partial"
    with serving(found) as server:
        configure(project, "wmt14-en-de", files, server.address(""))
        for limit in (1_500_000, 3_500_000):
            process = subprocess.Popen(command("download"), cwd=project, env=environment())
            deadline = time.monotonic() + 60
            while not partial.exists() or partial.stat().st_size < limit:
                assert time.monotonic() < deadline
                time.sleep(0.01)
            process.send_signal(signal.SIGKILL)
            process.wait()
            assert not partial.with_suffix("").exists()
        slow.pause = 0.0
        succeed("download", project)
        starts = [request.start for request in server.asked(path)]
    content = files["training-parallel-commoncrawl.tgz"]
    assert partial.with_suffix("").read_bytes() == content
    assert starts[0] == 0
    assert starts[1] >= 1_500_000
    assert starts[2] >= 3_500_000
    assert not (project / "data/.raw.partial").exists()


# --- real text -----------------------------------------------------------------------------------


@pytest.fixture
def real() -> dict[str, bytes]:
    """The pieces of the true archives, and the others made to go with them."""
    mirror = SHARED / "statmt_mirror"
    if not mirror.is_dir():
        pytest.skip("no pieces of the true archives here (../shared/data/statmt_mirror)")
    files = archives("fr", made_texts(ENGLISH_FRENCH)) | archives("de", made_texts(ENGLISH_GERMAN))
    files["training-parallel-europarl-v7.tgz"] = (
        mirror / "wmt13/training-parallel-europarl-v7.tgz"
    ).read_bytes()
    files["training-giga-fren.tar"] = (mirror / "wmt10/training-giga-fren.tar").read_bytes()
    files["test-full.tgz"] = (mirror / "wmt14/test-full.tgz").read_bytes()
    return files


def test_newstest2014_is_the_plain_text_line_by_line(project: Path, real: dict[str, bytes]) -> None:
    needed = set(archives("de", made_texts(ENGLISH_GERMAN)))
    files = {file: content for file, content in real.items() if file in needed}
    with serving(pages(files)) as server:
        configure(project, "wmt14-en-de", files, server.address(""), prepare__normalise=[])
        registry = yaml.safe_load((project / "registry/wmt14.yaml").read_text())
        registry["datasets"]["wmt14-en-de"]["test"][0]["lines"] = 3003
        registry["datasets"]["wmt14-en-de"]["valid"][0]["lines"] = HELD_OUT
        (project / "registry/wmt14.yaml").write_text(yaml.safe_dump(registry))
        succeed("download", project)
    succeed("prepare", project)
    for side, language in zip(SIDES, ("en", "de"), strict=True):
        with gzip.open(SHARED / f"newstest/newstest2014.{language}.gz", "rt", "utf-8") as stream:
            plain = stream.read().removesuffix("\n").split("\n")
        found = lines_of(project / f"data/clean/test.{side}.txt")
        assert len(found) == 3003
        assert found == plain
    metrics = read(project / "metrics/prepare.json")
    assert metrics["train"]["corpora"]["europarl-v7"]["read"] == 20_000
    assert [metrics[split]["kept"] for split in SPLITS[1:]] == [HELD_OUT, 3003]
