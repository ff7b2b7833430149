"""The stage attention: which sentences are shown, what is written, and what a model lacks."""

from __future__ import annotations

import csv
import dataclasses
import io
import json
import shutil
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import save_file

from pipeline import attention
from seq2sweep import config as configuration
from seq2sweep import project_files
from seq2sweep.config import Config
from seq2sweep.data.bitext import Bitext
from seq2sweep.data.vocabulary import Vocabulary
from seq2sweep.decode.receipt import receipt
from seq2sweep.errors import UserError
from seq2sweep.evaluate.attention import attention_maps, head_numbers
from seq2sweep.evaluate.evaluation import Data
from seq2sweep.evaluate.translator import Translator
from seq2sweep.model import building
from seq2sweep.report.attention import attention_page
from seq2sweep.stages import stage
from seq2sweep.storage.atomic import sha256
from seq2sweep.tracking import relay_thread
from seq2sweep.tracking.sweep_runs import head_metrics
from tests.conftest import Corpus
from tests.report.attention.test_attention_page import Page

BYTENET = {"model.architecture": "bytenet", "model.layers": 1, "model.d_model": 32}


class Run:
    """Stands in for a run of the outbox, and keeps what it is given."""

    def __init__(self, *given: Any, **more: Any) -> None:
        self.given: dict[str, Any] = {"made": [(given, more)]}
        self.files: dict[str, str] = {}

    def __enter__(self) -> Run:
        return self

    def __exit__(self, *error: object) -> None:
        pass

    def artifact(self, path: Path) -> None:
        for file in path.rglob("*") if path.is_dir() else [path]:
            self.files[file.relative_to(path.parent).as_posix()] = file.read_text("utf-8")

    def __getattr__(self, name: str) -> Any:
        return lambda *args, **more: self.given.setdefault(name, []).append((args, more))


@pytest.fixture
def runs(monkeypatch: pytest.MonkeyPatch) -> list[Run]:
    """The runs that a stage records, without MLflow."""
    found: list[Run] = []

    def open_run(*given: Any, **more: Any) -> Run:
        found.append(Run(*given, **more))
        return found[-1]

    relay = Run()
    relay.root, relay.run_id = Path("outbox"), lambda run: "an id"  # type: ignore[attr-defined]
    monkeypatch.setattr(relay_thread, "Recorder", open_run)
    monkeypatch.setattr(relay_thread, "RelayThread", lambda *given: relay)
    return found


def trained(corpus: Corpus, config: Config) -> None:
    """The working folder as the stages before leave it, with random weights."""
    for place, name in ((project_files.CLEAN, "clean"), (project_files.ENCODED, "encoded")):
        shutil.copytree(getattr(corpus, name), place)
    shutil.copytree(corpus.vocabulary, project_files.VOCABULARY)
    (project_files.MODEL / "checkpoints").mkdir(parents=True)
    entries = []
    for step in (4, 8):
        torch.manual_seed(step)
        model = building.build(config.model, corpus.size)
        file = project_files.MODEL / "checkpoints" / f"{step}.safetensors"
        save_file({name: p.detach() for name, p in model.named_parameters()}, file)
        entries.append({"step": step, "file": file.name, "sha256": sha256(file), "valid_loss": 1.0})
    lineage = {"data.vocabulary": Vocabulary.open(project_files.VOCABULARY).fingerprint}
    stage.write_json(
        project_files.MODEL / "receipt.json", receipt("a-run", entries, config, lineage, {})
    )


@pytest.fixture
def config(tiny_config: Config) -> Config:
    changes = {
        "evaluate.beam": 2,
        "evaluate.max_extra_tokens": 4,
        "attention.sentences": 4,
        "attention.measured": 10,
    }
    return configuration.with_changes(tiny_config, changes)


@pytest.fixture
def project(
    tmp_path: Path, config: Config, tiny_corpus: Corpus, monkeypatch: pytest.MonkeyPatch
) -> Path:
    monkeypatch.chdir(tmp_path)
    trained(tiny_corpus, config)
    return tmp_path


def written() -> dict[str, Any]:
    found: dict[str, Any] = json.loads(
        (project_files.METRICS / "attention.json").read_text("utf-8")
    )
    return found


def shown() -> dict[str, Any]:
    """What the page holds."""
    found: dict[str, Any] = json.loads(Page(attention.PAGE.read_text("utf-8")).scripts[0])
    return found


def test_private_sentences_stay_here(project: Path, config: Config, runs: list[Run]) -> None:
    """The run gets numbers alone, where a licence keeps the text from others."""
    attention.PAGE.parent.mkdir(exist_ok=True)
    attention.PAGE.write_text("sentences")
    numbers = {"of_heads": [], "alignment": None}
    stage.write_json(project_files.METRICS / "attention.json", numbers)
    kept = []
    for dataset in ("phrasebook", "ptb"):
        data = dataclasses.replace(config.data, dataset=dataset)
        run: Any = Run()
        attention.record(dataclasses.replace(config, data=data), run, numbers)
        kept.append(sorted(run.files))
    assert kept[0] == ["attention.json", "attention/heads.csv", "attention/index.html"]
    assert kept[1] == ["attention.json", "attention/heads.csv"]


def test_heads_are_measured_on_references_and_shown_on_translations(
    project: Path, config: Config, runs: list[Run]
) -> None:
    attention.work(config)
    found, bitext = written(), Bitext.open(project_files.ENCODED, "test")
    translator = Translator(project_files.MODEL, project_files.VOCABULARY, config.evaluate)
    model, vocabulary = translator.model, translator.vocabulary
    # 40 test sentences, all of them short: each fourth.
    pairs = [head_numbers.pair(bitext, i) for i in range(0, 40, 4)]
    expected = head_numbers.measure(model, vocabulary, pairs)
    assert found["of_heads"] == expected
    assert found | head_numbers.summary(expected) == found
    assert (found["measured"], found["heads"], found["checkpoints"]) == (10, 6, [4, 8])
    assert (found["reason"], found["alignment"]) == (None, None)
    lines = project_files.CLEAN / "test.source.txt"
    sources = lines.read_text("utf-8").splitlines()
    longest = max(
        range(40), key=lambda i: (bitext.source_lengths[i] + bitext.target_lengths[i], -i)
    )
    places = [*dict.fromkeys([0, longest, *range(40)])][:4]
    assert found["sentences"] == [place + 1 for place in places]
    page = shown()
    wanted = attention_maps.pairs(translator, [sources[i] for i in places])
    for one, pair in zip(page["pairs"], wanted, strict=True):
        assert one["source"]["tokens"] == vocabulary.tokens(pair.source)
        assert one["predicted"]["tokens"] == vocabulary.tokens(pair.target)
    assert page["start"] == {"joined": True}


def test_what_mlflow_gets(project: Path, config: Config, runs: list[Run]) -> None:
    attention.work(config)
    found = written()
    (run,) = runs
    (_, title), more = run.given["made"][0]
    assert (title, more["kind"], more["parent"]) == (
        "attention, 10 sentences",
        "attention",
        "a-run",
    )
    assert set(run.files) == {"attention/index.html", "attention/heads.csv", "attention.json"}
    assert run.files["attention/index.html"] == attention.PAGE.read_text("utf-8")
    few = head_metrics(found)
    assert [*few] == [
        "heads/cross_attention_entropy",
        "heads/positional",
        "heads/loss_without",
        "heads/removable",
    ]
    assert few["heads/positional"] == found["positional"]
    assert run.given["log"] == [((few,), {}), ((few,), {"on_parent": True})]
    table = list(csv.DictReader(io.StringIO(run.files["attention/heads.csv"])))
    assert len(table) == found["heads"]
    for row, entry in zip(table, found["of_heads"], strict=True):
        assert row["head"] == str(entry["head"] + 1)
        assert float(row["loss_without"]) == entry["loss_without"]
        assert row["diagonal"] == ("" if entry["diagonal"] is None else str(entry["diagonal"]))
    assert [row["layer"] for row in table][::2] == [
        *("Encoder layer 1", "Decoder layer 1", "Decoder to source layer 1")
    ]


def test_gold_alignments_are_compared(
    project: Path, config: Config, runs: list[Run], capsys: pytest.CaptureFixture[str]
) -> None:
    """Words of the tiny corpus are aligned one to one, so that gold is the diagonal."""
    folder = project / "texts"
    folder.mkdir()
    lines = (project_files.CLEAN / "test.source.txt").read_text("utf-8").splitlines()
    gold = [" ".join(f"{i}-{i}" for i in range(len(line.split()))) for line in lines]
    (folder / "gold").write_text("\n".join(gold) + "\n")
    named = {"data.folder": str(folder), "attention.alignments": "gold"}
    config = configuration.with_changes(config, named)
    attention.work(config)
    found = written()
    sure = sum(len(line.split()) for line in lines[::4])
    assert found["alignment"]["sentences"] == 10
    assert found["alignment"]["sure"] == found["alignment"]["possible"] == sure
    # By hand, of the heads of the only layer: with so many links as words the rate is 1 - share.
    translator = Translator(project_files.MODEL, project_files.VOCABULARY, config.evaluate)
    bitext, right = Bitext.open(project_files.ENCODED, "test"), [0, 0]
    for i in range(0, 40, 4):
        pair = head_numbers.pair(bitext, i)
        one = attention_maps.maps(translator.model, translator.vocabulary, pair)
        words = len(lines[i].split())
        for head, weights in enumerate(one.by_word("decoder.0.memory_attention")):
            best = weights[:words, :words].argmax(axis=1)
            right[head] += sum(int(j) == k for k, j in enumerate(best))
    rates = [1 - hits / sure for hits in right]
    memory = [e["aer"] for e in found["of_heads"] if e["aer"] is not None]
    assert memory == pytest.approx(rates)
    assert found["alignment"]["best_head"]["aer"] == pytest.approx(min(rates))
    assert runs[0].given["log"][0][0][0]["heads/aer"] == pytest.approx(min(rates))
    assert '<th scope="col">aer</th>' in attention.PAGE.read_text("utf-8")
    assert f"AER of the best {min(rates):.3f} on 10 aligned sentences" in capsys.readouterr().out
    # Of the ten that are measured none, then the first alone.
    none = "no alignment error rate: gold aligns none of the 10 test sentences that are measured"
    for line, said in (("", none), (gold[0], " on 1 aligned sentence\n")):
        (folder / "gold").write_text("\n".join([line, *gold[1:4], *[""] * 36]) + "\n")
        attention.work(config)
        out = capsys.readouterr().out
        assert said in out
        assert ("AER" in out, none in out) == (bool(line), not line)
        assert bool(written()["alignment"]) == bool(line)
    outside = configuration.with_changes(config, {"attention.alignments": "../gold"})
    with pytest.raises(UserError, match=r"attention.alignments names ../gold, which is outside"):
        attention.work(outside)
    # DVC notices nothing behind a link, and the stage download did not see one made after it.
    (folder / "more").symlink_to(project, target_is_directory=True)
    behind = configuration.with_changes(config, {"attention.alignments": "more/texts/gold"})
    with pytest.raises(UserError, match="more is a link to a folder, and changes in it would not"):
        attention.work(behind)
    (folder / "more").unlink()
    (folder / "gold").unlink()
    with pytest.raises(UserError, match="gold is missing"):
        attention.work(config)


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"attention.sentences": 0}, "No attention maps: `attention.sentences` is 0."),
        (BYTENET, "No attention maps: `model.architecture` bytenet has no attention."),
    ],
)
def test_nothing_to_show_is_said_in_both_files(
    changes: dict[str, Any],
    said: str,
    tmp_path: Path,
    config: Config,
    tiny_corpus: Corpus,
    runs: list[Run],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    config = configuration.with_changes(config, changes)
    trained(tiny_corpus, config)
    attention.work(config)
    assert written() == {"reason": said}
    page = attention.PAGE.read_text("utf-8")
    assert said.replace("`", "<code>", 1).replace("`", "</code>") in page
    assert "<script" not in page
    assert runs == []


@pytest.mark.parametrize("architecture", ["recurrent", "convolutional"])
def test_other_architectures_have_maps_of_the_source_alone(
    architecture: str,
    tmp_path: Path,
    config: Config,
    tiny_corpus: Corpus,
    runs: list[Run],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    changes = {"model.architecture": architecture, "model.layers": 2}
    config = configuration.with_changes(config, changes)
    trained(tiny_corpus, config)
    attention.work(config)
    found = written()
    assert found["heads"] >= 1
    assert (found["loss_without"], found["removable"]) == (None, None)
    assert set(head_metrics(found)) == {"heads/cross_attention_entropy", "heads/positional"}
    assert {layer["kind"] for layer in shown()["layers"]} == {"Decoder to source"}


def test_what_a_page_cannot_hold_is_left_out(
    project: Path, config: Config, runs: list[Run], monkeypatch: pytest.MonkeyPatch
) -> None:
    attention.work(config)
    whole = len(attention.PAGE.read_bytes())
    monkeypatch.setattr(attention_page, "MOST_BYTES", whole - 1)
    attention.work(config)
    assert len(attention.PAGE.read_bytes()) < whole
    assert 0 < len(written()["sentences"]) == len(shown()["pairs"]) < 4
    monkeypatch.setattr(attention_page, "MOST_BYTES", 100)
    attention.work(config)
    assert written()["sentences"] == shown()["pairs"] == []


def test_where_every_sentence_is_too_long_to_be_shown_heads_are_measured(
    project: Path, config: Config, runs: list[Run], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(attention, "ROOM", 10)
    attention.work(config)
    found = written()
    assert (found["sentences"], found["measured"], found["heads"]) == ([], 10, 6)
    assert "No sentence is shown" in attention.PAGE.read_text("utf-8")


def test_a_blank_line_is_not_chosen_to_be_shown(
    project: Path, config: Config, runs: list[Run], monkeypatch: pytest.MonkeyPatch
) -> None:
    lines = (project_files.CLEAN / "test.source.txt").read_text("utf-8").splitlines()
    monkeypatch.setattr(Data, "lines", lambda *given: [" ", *lines[1:]])
    attention.work(configuration.with_changes(config, {"attention.sentences": 1}))
    assert written()["sentences"] == [2]


def test_sentences_that_are_too_long_are_not_measured(
    project: Path, config: Config, runs: list[Run], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(head_numbers, "LONGEST", 1)
    attention.work(config)
    assert "each test sentence has over 1 tokens" in written()["reason"]


# --- which sentences -----------------------------------------------------------------------------

LENGTHS = [None, (3, 4), (9, 9), (5, 5), (30, 30), (6, 6), (4, 4), (29, 32)]
TAGS = [["a"], [], ["b"], ["a", "b"], ["c"], ["c"], ["d"], []]


@pytest.mark.parametrize(
    ("count", "expected"),
    [
        # The first that can be shown, the longest, and one for a, b, c (the longest has none), d.
        (1, [1]),
        (2, [1, 7]),
        (3, [1, 7, 3]),
        (4, [1, 7, 3, 4]),
        (5, [1, 7, 3, 4, 6]),
        (6, [1, 7, 3, 4, 6, 2]),
        (99, [1, 7, 3, 4, 6, 2, 5]),
    ],
)
def test_sentences_are_chosen(count: int, expected: list[int]) -> None:
    assert attention.choose(LENGTHS, TAGS, count, lambda n, m: n * m) == expected


def test_the_longest_takes_half_of_the_room(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(attention, "ROOM", 240)
    # Of 240, 120 are for the longest, and 40 for each of three others.
    assert attention.choose(LENGTHS, TAGS, 3, lambda n, m: n * m) == [1, 2, 3]
    # The longest may take 930, each other one 186: of c it is the second that fits.
    monkeypatch.setattr(attention, "ROOM", 1860)
    assert attention.choose(LENGTHS, TAGS, 5, lambda n, m: n * m) == [1, 7, 3, 5, 6]
    monkeypatch.setattr(attention, "ROOM", 10)
    assert attention.choose(LENGTHS, TAGS, 3, lambda n, m: n * m) == []
