"""Exports of every kind of model: what is written says what the model says, else it is refused."""

from __future__ import annotations

import copy
import dataclasses
import importlib.util
import json
import re
import shutil
import subprocess
import sys
import threading
from argparse import Namespace
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors import SafetensorError

from seq2sweep import config as configuration
from seq2sweep import console
from seq2sweep.cli import main
from seq2sweep.commands import trained
from seq2sweep.config import Config, TransformerConfig
from seq2sweep.data import utf8
from seq2sweep.data.vocabulary import EOS, Vocabulary
from seq2sweep.data.word_piece import dump
from seq2sweep.decode import ctranslate
from seq2sweep.errors import OperationalError, UserError, ending
from seq2sweep.evaluate.translator import Translator
from seq2sweep.export import agreement, exporting, to_marian, to_onnx
from seq2sweep.export.agreement import Agreement
from seq2sweep.export.protocol import Format
from seq2sweep.export.to_ctranslate2 import Ctranslate2
from seq2sweep.export.to_safetensors import Safetensors
from seq2sweep.model.architecture.transformer import Transformer
from seq2sweep.model.layers import sinusoids

from ..conftest import Corpus
from .made_up_models import KINDS, PAPER, translator

PACKAGES = {"ctranslate2": "ctranslate2", "marian": "transformers", "onnx": "onnxscript"}
MIXERS = {kind for kind in KINDS if kind.startswith(("encoder ", "decoder "))}
OTHERS = {"recurrent", "recurrent of before", "convolutional", "bytenet", "trees"} | MIXERS
REFUSED = {
    "ctranslate2": OTHERS | {"additive", "narrow keys", "wide values", "all at once"},
    "marian": OTHERS
    | {"additive", "narrow keys", "wide values", "pre-norm", "learned positions", "swiglu"}
    | {"rmsnorm", "all at once"},
    "onnx": OTHERS,
    "safetensors": set[str](),
}
"""Kinds of model that a format cannot hold: the table of docs/export.md."""


def installed(name: str) -> None:
    if (package := PACKAGES.get(name)) and importlib.util.find_spec(package) is None:
        pytest.skip(f"{package} is not installed (the extra {name})")


@pytest.fixture
def made(
    tmp_path: Path, tiny_config: Config, tiny_corpus: Corpus
) -> Callable[..., tuple[Translator, tuple[list[str], list[str]]]]:
    """A model of a kind, and sentences to check its export with; greedy: random weights have many
    hypotheses that are nearly as good."""

    def make(kind: str = PAPER, **changes: Any) -> tuple[Translator, tuple[list[str], list[str]]]:
        values = {"evaluate.beam": 1} | changes
        config = configuration.with_changes(tiny_config, values)
        opened = translator(tmp_path, config, tiny_corpus, kind)
        source, target = agreement.sentences(None, tiny_corpus.clean)
        return opened, (source, ["(TOP (S (XX x)))"] * len(source) if kind == "trees" else target)

    return make


@pytest.mark.parametrize("kind", KINDS)
def test_what_a_format_cannot_hold_is_one_line(kind: str, made: Any, tmp_path: Path) -> None:
    model, pairs = made(kind)
    for name, form in exporting.FORMATS.items():
        reason = form().refuses(model)
        assert (reason is not None) == (kind in REFUSED[name]), name
        if reason is not None:
            with pytest.raises(UserError) as refused:
                exporting.export(model, form(), tmp_path / "no", *pairs)
            assert str(refused.value) == reason
            assert "\n" not in reason
            assert not (tmp_path / "no").exists()


class Deepshallow(Transformer):
    """Of a researcher's own: all but one of its layers are the encoder's."""

    def __init__(self, config: TransformerConfig, vocabulary_size: int) -> None:
        super().__init__(dataclasses.replace(config, architecture="deepshallow"), vocabulary_size)  # type: ignore[arg-type]
        self.decoder = self.decoder[:1]


@pytest.fixture
def own(made: Any) -> tuple[Translator, tuple[list[str], list[str]]]:
    model, pairs = made(**{"model.layers": 2})
    model.model = Deepshallow(model.model.config, model.model.vocabulary_size).eval()
    return model, pairs


@pytest.mark.parametrize("name", PACKAGES)
def test_an_architecture_that_derives_from_the_transformer_is_refused_by_its_name(
    name: str, own: tuple[Translator, tuple[list[str], list[str]]], tmp_path: Path
) -> None:
    model, pairs = own
    said = r"has no model\.architecture deepshallow: choose --format safetensors, which holds every"
    with pytest.raises(UserError, match=said):
        exporting.export(model, exporting.FORMATS[name](), tmp_path / "no", *pairs)
    assert not (tmp_path / "no").exists()
    assert Safetensors().refuses(model) is None


def test_ctranslate2_does_not_translate_by_what_derives_from_the_transformer(
    own: tuple[Translator, tuple[list[str], list[str]]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """With as many layers it would, by other sums than the model's."""
    monkeypatch.setattr(trained, "_named", lambda name: own[0])
    assert trained.opened_together(Namespace(members=["own"], engine="own")) is own[0]
    assert trained.opened_together(Namespace(members=["own"])) is own[0]
    said = "CTranslate2 has no model.architecture deepshallow: leave out --engine"
    with pytest.raises(UserError, match=f"^{re.escape(said)}$"):
        trained.opened_together(Namespace(members=["own"], engine="ctranslate2"))


def agreed(name: str, kind: str, made: Any, folder: Path, quantize: str | None = None) -> Agreement:
    installed(name)
    model, pairs = made(kind)
    found = exporting.export(model, exporting.chosen(name, quantize), folder, *pairs)
    assert found.sentences == 40
    assert [path.name for path in folder.parent.glob(".*")] == []
    return found


@pytest.mark.parametrize("kind", [k for k in KINDS if k not in REFUSED["ctranslate2"]])
def test_ctranslate2_says_the_same(kind: str, made: Any, tmp_path: Path) -> None:
    found = agreed("ctranslate2", kind, made, tmp_path / "exported")
    assert found.same >= 38
    assert found.logits is not None
    assert found.logits < 3e-6


@pytest.mark.parametrize("kind", [k for k in KINDS if k not in REFUSED["marian"]])
def test_marian_says_the_same(kind: str, made: Any, tmp_path: Path) -> None:
    found = agreed("marian", kind, made, tmp_path / "exported")
    assert found.same == 40
    assert found.logits is not None
    assert found.logits < 3e-6


@pytest.mark.parametrize("stopping", ["exact", "own_length"])
def test_marian_says_the_same_with_a_beam(stopping: str, made: Any, tmp_path: Path) -> None:
    """Of a model whose longer hypotheses may win, and end before they are cut."""
    installed("marian")
    changes = {"evaluate.beam": 4, "evaluate.alpha": 1.0, "evaluate.length_penalty": "power"}
    model, pairs = made("untied", **changes, **{"evaluate.stopping": stopping})
    model.config = dataclasses.replace(model.config, max_extra_tokens=40)
    with torch.no_grad():  # unit 0 is a constant, by which EOS is as probable everywhere
        norm = model.model.decoder[-1].feed_forward_residual.norm
        norm.weight[0], norm.bias[0] = 0, 5
        model.model.projection.weight[:, 0] = 0
        model.model.projection.weight[EOS] *= 0.3
        model.model.projection.weight[EOS, 0] = 0.8
    said = [best[0] for best in model.translate(pairs[0])]
    exact = dataclasses.replace(model.config, stopping="exact")
    others = [best[0] for best in model.translate(pairs[0], config=exact)]
    assert {one.pieces[-1] for one in (*said, *others)} == {EOS}
    same = sum(a.text == b.text for a, b in zip(said, others, strict=True))
    assert (same == 40) == (stopping == "exact")
    assert exporting.export(model, to_marian.Marian(), tmp_path / "exported", *pairs).same == 40
    written = json.loads((tmp_path / "exported" / "generation_config.json").read_text())
    assert written["early_stopping"] == "never"


@pytest.mark.parametrize("name", ["marian", "onnx"])
def test_the_shortest_limits_are_exported(name: str, made: Any, tmp_path: Path) -> None:
    installed(name)
    model, pairs = made()
    model.config = dataclasses.replace(model.config, max_input_tokens=1, max_extra_tokens=0)
    found = exporting.export(model, exporting.FORMATS[name](), tmp_path / "exported", *pairs)
    assert found.same == 40


@pytest.mark.parametrize("kind", KINDS)
def test_safetensors_says_the_same(kind: str, made: Any, tmp_path: Path) -> None:
    assert agreed("safetensors", kind, made, tmp_path / "exported").same == 40


@dataclass(frozen=True)
class Exported:
    """A model, its export, and the sentences and references that this was checked with."""

    model: Translator
    folder: Path
    found: Agreement
    pairs: tuple[list[str], list[str]]


@pytest.fixture(scope="module")
def paper_onnx(
    tmp_path_factory: pytest.TempPathFactory, tiny_config: Config, tiny_corpus: Corpus
) -> Exported:
    """Made once: an export to ONNX takes seconds."""
    installed("onnx")
    folder = tmp_path_factory.mktemp("paper_onnx")
    config = configuration.with_changes(tiny_config, {"evaluate.beam": 4})
    model = translator(folder, config, tiny_corpus)
    pairs = agreement.sentences(None, tiny_corpus.clean)
    found = exporting.export(model, to_onnx.Onnx(), folder / "exported", *pairs)
    return Exported(model, folder / "exported", found, pairs)


def assert_same_in_onnx(one: Exported) -> None:
    assert one.found.same == 40
    assert one.found.logits is not None
    assert one.found.logits < 3e-6
    lines = [*one.pairs[0], "", "alpha"]
    ours = [best[0].text for best in one.model.translate(lines)]
    assert by(["-I", "exported/translate.py"], lines, one.folder.parent) == ours


def test_onnx_says_the_same_and_so_does_the_program_beside_it(paper_onnx: Exported) -> None:
    assert_same_in_onnx(paper_onnx)


@pytest.mark.thorough
@pytest.mark.parametrize("kind", [k for k in KINDS if k not in REFUSED["onnx"] | {PAPER}])
def test_onnx_says_the_same_of_other_kinds(kind: str, made: Any, tmp_path: Path) -> None:
    """Where there is little time, of all these at once by the next test."""
    installed("onnx")
    model, pairs = made(kind, **{"evaluate.beam": 4})
    found = exporting.export(model, to_onnx.Onnx(), tmp_path / "exported", *pairs)
    assert_same_in_onnx(Exported(model, tmp_path / "exported", found, pairs))


@pytest.mark.parametrize("kind", [pytest.param("word_piece", marks=pytest.mark.thorough), "bytes"])
def test_the_program_beside_it_takes_tokens_of_other_vocabularies(
    kind: str, tiny_config: Config, tiny_corpus: Corpus, tmp_path: Path
) -> None:
    installed("onnx")
    pieces = Vocabulary.open(tiny_corpus.vocabulary)
    own = {"word_piece": dump(pieces.tokens(range(len(pieces)))), "bytes": utf8.MODEL}[kind]
    (tmp_path / "own").mkdir()
    Vocabulary(own).write(tmp_path / "own")
    corpus = dataclasses.replace(tiny_corpus, vocabulary=tmp_path / "own")
    config = configuration.with_changes(tiny_config, {"evaluate.beam": 4})
    model = translator(tmp_path, config, corpus, "all at once")
    source, target = agreement.sentences(None, tiny_corpus.clean)
    found = exporting.export(model, to_onnx.Onnx(), tmp_path / "exported", source, target)
    assert found.same == 40
    assert found.logits is not None
    assert found.logits < 3e-6
    lines = [*source, "alpha"]
    given = [" ".join(map(str, ids[:-1])) for ids in model.vocabulary.encode(lines)]
    said = by(["-I", "exported/translate.py"], [*given, ""], tmp_path)
    assert said.pop() == ""
    decoded = model.vocabulary.decode([[*map(int, line.split())] for line in said])
    assert decoded == [best[0].text for best in model.translate(lines)]
    size = len(model.vocabulary)
    refused = subprocess.run(
        [sys.executable, "-I", "exported/translate.py"], input=f"4\n{size}\n", cwd=tmp_path,
        capture_output=True, text=True, encoding="utf-8",
    )  # fmt: skip
    assert (refused.returncode, refused.stdout) == (1, "")
    assert refused.stderr.startswith("line 2 must be token ids below ")
    assert refused.stderr.count("\n") == 1


@pytest.mark.parametrize("quantize", ["int8", "int8_float32", "bfloat16"])
def test_weights_are_stored_smaller(quantize: str, made: Any, tmp_path: Path) -> None:
    installed("ctranslate2")
    model, _ = made()
    before = {name: one.clone() for name, one in model.model.named_parameters()}
    sizes = []
    for kind in (None, quantize):
        exporting.chosen("ctranslate2", kind).write(model, tmp_path / f"{kind}")
        sizes.append((tmp_path / f"{kind}" / "model.bin").stat().st_size)
    assert sizes[1] < 0.75 * sizes[0]
    for name, one in model.model.named_parameters():
        assert torch.equal(one, before[name]), "the model itself was rounded"


# --- a wrong conversion ---------------------------------------------------------------------------


def units_stay(d_model: int) -> torch.Tensor:
    return torch.arange(d_model)


def no_positions(length: int, d_model: int) -> torch.Tensor:
    return torch.zeros(length, d_model)


def shifted(length: int, d_model: int) -> torch.Tensor:
    return sinusoids(length + 1, d_model)[1:]


@pytest.mark.parametrize(
    ("name", "quantize", "module", "part", "wrong"),
    [
        ("marian", None, to_marian, "order", units_stay),
        ("ctranslate2", None, ctranslate, "sinusoids", shifted),
        ("ctranslate2", "int8", ctranslate, "sinusoids", no_positions),
        ("ctranslate2", "bfloat16", ctranslate, "sinusoids", shifted),
    ],
)
def test_a_wrong_conversion_is_caught(
    name: str, quantize: str | None, module: Any, part: str, wrong: Any, made: Any, tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    installed(name)
    model, pairs = made()
    monkeypatch.setattr(module, part, wrong)
    with pytest.raises(
        OperationalError,
        match=r"does not say what the model says .* 40 the same.*; log\S+ may differ by",
    ):
        exporting.export(model, exporting.chosen(name, quantize), tmp_path / "exported", *pairs)
    assert [path.name for path in tmp_path.iterdir() if "exported" in path.name] == []


def test_a_wrong_conversion_to_onnx_is_caught(paper_onnx: Exported, tmp_path: Path) -> None:
    """Positions that begin one later, put into graphs that are right."""
    onnx = importlib.import_module("onnx")
    model = paper_onnx.model
    right = to_onnx._table(model.model.source_positions, to_onnx.EXAMPLE).numpy()

    class Shifted(to_onnx.Onnx):
        def write(self, translator: Translator, folder: Path) -> None:
            shutil.copytree(paper_onnx.folder, folder, dirs_exist_ok=True)
            for file in (folder / "encoder.onnx", folder / "decoder.onnx"):
                graph = onnx.load(file)
                (table,) = [one for one in graph.graph.initializer if "table" in one.name]
                rows = onnx.numpy_helper.to_array(table)
                assert (rows[: len(right)] == right).all()
                table.CopyFrom(onnx.numpy_helper.from_array(np.roll(rows, -1, 0), table.name))
                onnx.save(graph, file)

    with pytest.raises(
        OperationalError,
        match=r"does not say what the model says .* 40 the same.*; log\S+ may differ by",
    ):
        exporting.export(model, Shifted(), tmp_path / "exported", *paper_onnx.pairs)
    assert [path.name for path in tmp_path.iterdir() if "exported" in path.name] == []


def test_weights_that_are_lost_are_caught(made: Any, tmp_path: Path) -> None:
    """By translations alone, as of formats that show no logits."""
    model, pairs = made()

    class Forgetful(Safetensors):
        def write(self, translator: Translator, folder: Path) -> None:
            other = copy.deepcopy(translator.model)
            other.encoder[0].feed_forward.outer.bias.data.zero_()
            spoilt = copy.copy(translator)
            spoilt.model = other
            super().write(spoilt, folder)

    with pytest.raises(OperationalError, match="at least 100% must be the same"):
        exporting.export(model, Forgetful(), tmp_path / "exported", *pairs)
    assert not (tmp_path / "exported").exists()


@pytest.mark.parametrize("form", [Safetensors, to_marian.Marian])
def test_a_full_disk_is_one_line(
    made: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, form: type[Format]
) -> None:
    def full(model: Any, *given: Any, **named: Any) -> None:
        raise SafetensorError("I/O error: No space left on device (os error 28)")

    monkeypatch.setattr(Translator, "save", full)
    if form is to_marian.Marian:
        marian = pytest.importorskip("transformers").MarianMTModel
        monkeypatch.setattr(marian, "save_pretrained", full)
    model, pairs = made()
    folder = tmp_path / "full" / "exported"
    with pytest.raises(OSError, match="No space left") as caught:
        exporting.export(model, form(), folder, *pairs)
    line, status = ending(caught.value)
    assert line == f"No space left on device: {folder}; make room there and run it again"
    assert status == 1
    assert list(folder.parent.iterdir()) == []


def test_two_exports_to_a_folder_do_not_mix(made: Any, tmp_path: Path) -> None:
    """The second is refused while the first writes, and finds the first's folder after that."""
    model, pairs = made()
    folder = tmp_path / "new" / "exported"

    class Met(Safetensors):
        def write(self, translator: Translator, beside: Path) -> None:
            super().write(translator, beside)
            with pytest.raises(UserError, match=r"another process is writing .*exported: wait"):
                exporting.export(model, Safetensors(), folder, *pairs)

    assert exporting.export(model, Met(), folder, *pairs).same == 40
    with pytest.raises(UserError, match="exported exists: name a folder that does not"):
        exporting.export(model, Safetensors(), folder, *pairs)
    assert [path.name for path in folder.parent.iterdir()] == ["exported"]


def test_a_folder_that_comes_meanwhile_stays(made: Any, tmp_path: Path) -> None:
    model, pairs = made()
    folder = tmp_path / "exported"

    class Slow(Safetensors):
        def write(self, translator: Translator, beside: Path) -> None:
            super().write(translator, beside)
            folder.mkdir()
            (folder / "notes").write_text("mine")

    with pytest.raises(UserError, match="exported exists: name a folder that does not"):
        exporting.export(model, Slow(), folder, *pairs)
    assert [path.name for path in tmp_path.rglob("*") if path.parent == folder] == ["notes"]
    assert not list(tmp_path.glob(".*.partial"))


# --- the command ----------------------------------------------------------------------------------


def command(tmp_path: Path, corpus: Corpus, *options: str) -> list[str]:
    check = [str(corpus.clean / f"test.{side}.txt") for side in ("source", "target")]
    trained = ["--weights", str(tmp_path / "weights")]
    trained += ["--vocabulary", str(tmp_path / "vocabulary"), "--check", *check]
    return ["export", "exported", *options, *trained]


PENALTY = (
    "both searched by log P / length ** 0.6, as CTranslate2 float32 does, which does not know the "
    "paper's penalty"
)
STOPPING = "both searched by evaluate.stopping exact: MarianMT does not know own_length"
PRECISION = "this program searched in float32 for it, not in bf16"


@pytest.fixture
def project(tmp_path: Path, tiny_config: Config, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    config = configuration.with_changes(tiny_config, {"evaluate.beam": 1})
    Path("params.yaml").write_text(configuration.dump(config), encoding="utf-8")


@pytest.mark.usefixtures("project")
def test_the_command_says_how_many_are_the_same(
    made: Any, tmp_path: Path, tiny_corpus: Corpus, capsys: pytest.CaptureFixture[str]
) -> None:
    made()
    assert main(command(tmp_path, tiny_corpus, "--format", "safetensors")) == 0
    said = capsys.readouterr().out
    assert re.fullmatch(
        r"exported holds the model for safetensors: 40 of 40 the same, BLEU (\S+) = \1\n", said
    )
    again = ["translate", "--model", "exported", str(tiny_corpus.clean / "test.source.txt")]
    assert main(again) == 0
    assert len(capsys.readouterr().out.splitlines()) == 40
    assert main(command(tmp_path, tiny_corpus, "--format", "safetensors")) == 2
    assert "exported exists: name a folder that does not" in capsys.readouterr().err


@pytest.mark.usefixtures("project")
def test_an_export_that_takes_long_is_not_silent(
    made: Any, tmp_path: Path, tiny_corpus: Corpus, capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    made()
    say, told, export = console.say, threading.Event(), exporting.export

    def heard(*given: Any, **more: Any) -> None:
        say(*given, **more)
        told.set()

    def slow(*given: Any) -> Agreement:
        assert told.wait(5)
        return export(*given)

    monkeypatch.setattr(console, "SILENT_SECONDS", 0.02)
    monkeypatch.setattr(console, "say", heard)
    monkeypatch.setattr(exporting, "export", slow)
    assert main(command(tmp_path, tiny_corpus, "--format", "safetensors")) == 0
    shown = capsys.readouterr()
    assert re.search(r"export, \d+s\n", shown.err)
    assert len(shown.out.splitlines()) == 1


@pytest.mark.usefixtures("project")
@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({}, [PENALTY]),
        ({"evaluate.length_penalty": "power", "evaluate.precision": "bf16"}, [PRECISION]),
        ({"evaluate.precision": "bf16"}, [PENALTY, PRECISION]),
    ],
)
def test_the_command_says_which_search_was_compared(
    changes: dict[str, Any], said: list[str], made: Any, tmp_path: Path, tiny_config: Config,
    tiny_corpus: Corpus, capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    installed("ctranslate2")
    made()
    config = configuration.with_changes(tiny_config, {"evaluate.beam": 1} | changes)
    Path("params.yaml").write_text(configuration.dump(config), encoding="utf-8")
    assert main(command(tmp_path, tiny_corpus)) == 0
    _, *notes = capsys.readouterr().out.splitlines()
    assert notes == said


@pytest.mark.usefixtures("project")
@pytest.mark.parametrize(("beam", "said"), [(1, []), (2, [STOPPING])])
def test_the_command_says_by_which_stopping_it_compared(
    beam: int, said: list[str], made: Any, tmp_path: Path, tiny_config: Config,
    tiny_corpus: Corpus, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    made()
    changes = {"evaluate.length_penalty": "power", "evaluate.stopping": "own_length"}
    config = configuration.with_changes(tiny_config, {"evaluate.beam": beam} | changes)
    Path("params.yaml").write_text(configuration.dump(config), encoding="utf-8")
    found = Agreement(40, 40, "bleu", 1.0, 1.0, 0.0)
    monkeypatch.setattr(exporting, "export", lambda *given: found)
    assert main(command(tmp_path, tiny_corpus, "--format", "marian")) == 0
    _, *notes = capsys.readouterr().out.splitlines()
    assert notes == said


@pytest.mark.usefixtures("project")
def test_a_failed_check_is_status_1_and_one_line(
    made: Any, tmp_path: Path, tiny_corpus: Corpus, capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    made()
    monkeypatch.setattr(agreement, "problem", lambda found, form: "it differs")
    assert main(command(tmp_path, tiny_corpus, "--format", "safetensors")) == 1
    error = [line for line in capsys.readouterr().err.splitlines() if "sentences" not in line]
    assert len(error) == 1
    assert error[0].endswith("it differs): exported is not written")
    assert not Path("exported").exists()


@pytest.mark.usefixtures("project")
@pytest.mark.parametrize(
    ("options", "problem"),
    [
        (["--format", "marian", "--quantize", "int8"], "--quantize goes with --format ctranslate2"),
        (["--model", "weights"], "--model and --weights name two models: give one of them"),
        (["--check", "params.yaml", "nowhere"], "nowhere is missing"),
    ],
)
def test_a_mistake_is_status_2_and_one_line(
    options: list[str], problem: str, made: Any, tmp_path: Path, tiny_corpus: Corpus,
    capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    made()
    assert main([*command(tmp_path, tiny_corpus), *options]) == 2
    (error,) = capsys.readouterr().err.splitlines()
    assert problem in error


@pytest.mark.usefixtures("project")
def test_references_that_are_no_trees_are_told_by_their_file(
    made: Any, tmp_path: Path, tiny_corpus: Corpus, capsys: pytest.CaptureFixture[str]
) -> None:
    made("trees")
    assert main(command(tmp_path, tiny_corpus, "--format", "safetensors")) == 2
    (error,) = capsys.readouterr().err.splitlines()
    assert re.search(r"test\.target\.txt line 1: '.*' outside of any tree", error)


@pytest.mark.parametrize("name", ["marian", "onnx"])
def test_a_missing_package_is_one_line(
    name: str, made: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, {"marian": "transformers", "onnx": "onnx"}[name], None)
    model, pairs = made()
    with pytest.raises(UserError, match=rf"is not installed: pip install .*\[{name}\]"):
        exporting.export(model, exporting.FORMATS[name](), tmp_path / "exported", *pairs)
    assert not (tmp_path / "exported").exists()


# --- what others get ------------------------------------------------------------------------------

BY_TRANSFORMERS = """
import sys
from transformers import MarianMTModel, MarianTokenizer
tokenizer = MarianTokenizer.from_pretrained("exported")
model = MarianMTModel.from_pretrained("exported")
lines = sys.stdin.read().splitlines()
for line in lines:
    encoded = tokenizer(line, return_tensors="pt")
    found = model.generate(**encoded, max_new_tokens=encoded.input_ids.size(1) + 5)
    print(tokenizer.decode(found[0], skip_special_tokens=True))
assert model.prepare_decoder_input_ids_from_labels(encoded.input_ids)[0, 0] == 1
assert "seq2sweep" not in sys.modules
"""


def by(program: list[str], lines: list[str], folder: Path) -> list[str]:
    done = subprocess.run(
        [sys.executable, *program], input="\n".join(lines) + "\n", cwd=folder, check=True,
        capture_output=True, text=True, encoding="utf-8",
    )  # fmt: skip
    return done.stdout.splitlines()


def test_transformers_alone_say_the_same_in_a_process_of_their_own(
    made: Any, tmp_path: Path
) -> None:
    installed("marian")
    model, (source, _) = made()
    to_marian.Marian().write(model, tmp_path / "exported")
    ours = [best[0].text for best in model.translate(source)]
    said = by(["-c", BY_TRANSFORMERS], source, tmp_path)
    assert said == ours


def test_texts_that_marians_tokenizer_takes_for_more_are_documented(
    made: Any, tmp_path: Path
) -> None:
    installed("marian")
    model, _ = made()
    to_marian.Marian().write(model, tmp_path / "exported")
    transformers = importlib.import_module("transformers")
    tokens = transformers.MarianTokenizer.from_pretrained(tmp_path / "exported")
    [alone] = model.vocabulary.encode(["alpha"])
    assert tokens("alpha").input_ids == alone
    assert tokens("alpha</s>").input_ids == [*alone, EOS]
    assert tokens(">>quote<< alpha").input_ids == [tokens.unk_token_id, *alone]


def test_the_documented_call_of_ctranslate2_cuts_no_long_sentence(
    made: Any, tmp_path: Path
) -> None:
    installed("ctranslate2")
    model, _ = made("untied")
    with torch.no_grad():
        model.model.projection.weight[EOS] = 0  # so that it comes to no end before it is cut
    Ctranslate2().write(model, tmp_path / "FOLDER")
    line = " ".join(["alpha beta"] * 120)
    documented = (Path(__file__).parents[2] / "docs/export.md").read_text(encoding="utf-8")
    program = re.findall(r"^    (import ctranslate2(?:.*\n)+?)\n", documented, re.MULTILINE)[0]
    program = program.replace("\n    ", "\n").replace("A sentence.", line)
    program = program.replace(
        "pieces.decode(found[0].hypotheses[0])", "len(found[0].hypotheses[0])"
    )
    [tokens] = model.vocabulary.encode([line])
    assert by(["-c", program], [], tmp_path) == [str(len(tokens) - 1 + 50)]


def test_a_vocabulary_that_is_not_of_sentence_pieces(made: Any, tmp_path: Path) -> None:
    model, _ = made()
    tokens = model.vocabulary.tokens(range(len(model.vocabulary)))
    model.vocabulary = Vocabulary(dump(tokens))
    assert "knows SentencePiece only" in str(to_marian.Marian().refuses(model))
    for other in (to_onnx.Onnx(), Safetensors(), Ctranslate2()):
        assert other.refuses(model) is None
