"""A kind of a part of the model is a file: named in params.yaml, and part of an identity there."""

from __future__ import annotations

import dataclasses
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any, ClassVar, Literal

import pytest

from seq2sweep import code_fingerprint, presets
from seq2sweep import config as configuration
from seq2sweep.config import Config, TransformerConfig, kinds_of_parts, loading
from seq2sweep.config.architectures import TARGET_SYMBOLS
from seq2sweep.config.fields import field
from seq2sweep.errors import UserError
from seq2sweep.jobs import dvc_stages

BASE = presets.load("phrasebook").config
GATED = {"model.feed_forward": "swiglu"}
SWEPT = configuration.with_changes(BASE, {"sweep.space": {"model.feed_forward": ["swiglu"]}})
ROOT = Path(__file__).parents[2]


@pytest.fixture
def model(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A copy of the folder of the model, in which a file can be edited."""
    folder = tmp_path / "seq2sweep" / "model"
    shutil.copytree(kinds_of_parts.MODEL, folder, ignore=shutil.ignore_patterns("__pycache__"))
    monkeypatch.setattr(kinds_of_parts, "MODEL", folder)
    return folder


def test_kinds_are_named_as_their_files(model: Path) -> None:
    with pytest.raises(UserError, match=r"one of relu, swiglu, did you mean swiglu\?, not"):
        configuration.with_changes(BASE, {"model.feed_forward": "swiglo"})
    (model / "feed_forward" / "geglu.py").write_text("class FeedForward: ...\n", encoding="utf-8")
    changed = configuration.with_changes(BASE, {"model.feed_forward": "geglu"})
    assert changed.model.feed_forward == "geglu"


def test_a_new_kind_changes_the_identity_of_those_that_name_it(model: Path) -> None:
    base, gated = BASE, configuration.with_changes(BASE, GATED)

    def identities() -> list[str]:
        """Of the base, of a variant, and of what DVC has of a sweep over it."""
        return [
            configuration.fingerprint(base, "model", "train", of_result=True),
            configuration.fingerprint(gated, "model", "train", of_result=True),
            str(configuration.code_of_kinds(SWEPT, "model", "sweep")),
        ]

    before = identities()
    file = model / "feed_forward" / "swiglu.py"
    (model / "feed_forward" / "geglu.py").write_text("class FeedForward: ...\n", encoding="utf-8")
    file.write_text(file.read_text(encoding="utf-8") + "\n# a comment\n", encoding="utf-8")
    assert identities() == before
    file.write_text(file.read_text(encoding="utf-8").replace("F.silu", "F.gelu"), encoding="utf-8")
    now = identities()
    assert [a == b for a, b in zip(before, now, strict=True)] == [True, False, False]


def test_a_default_that_no_training_imports_is_named_as_other_kinds_are(model: Path) -> None:
    """As of a new folder of kinds, which only `model/components.py` finds, by its name."""
    changes = {"sweep.space": {"model.feed_forward": ["relu", "swiglu"]}}
    swept = configuration.with_changes(BASE, changes)
    (relu, swiglu) = (f"seq2sweep.model.feed_forward.{kind}" for kind in ("relu", "swiglu"))
    assert "model.feed_forward" not in configuration.identity(BASE)
    assert [*configuration.code_of_kinds(swept)] == [swiglu]
    components = model / "components.py"
    text = components.read_text("utf-8").replace("model.feed_forward import", "model import")
    components.write_text(text, "utf-8")
    kinds_of_parts._shared.cache_clear()
    file, seen = model / "feed_forward" / "relu.py", []
    for end in ("", "\nOTHER = 2\n"):
        file.write_text(file.read_text("utf-8") + end, "utf-8")
        seen.append(configuration.identity(BASE)["model.feed_forward"])
        assert seen[-1] == f"relu {kinds_of_parts.code('feed_forward', 'relu')[:8]}"
        assert [*configuration.code_of_kinds(BASE, "model")] == [relu]
        assert [*configuration.code_of_kinds(swept)] == [relu, swiglu]
    assert seen[0] != seen[1]


def test_dvc_runs_stages_again_for_the_kinds_that_params_name(tmp_path: Path) -> None:
    (tmp_path / "pipeline").symlink_to(ROOT / "pipeline")
    (tmp_path / "dvc.yaml").write_text((ROOT / "dvc.yaml").read_text(encoding="utf-8"))
    module = "seq2sweep.model.feed_forward.swiglu"

    def having() -> set[str]:
        every = ("prepare", "encode", "train", "evaluate", "sweep", "report")
        return {stage for stage in every if module in dvc_stages.code(tmp_path, stage)}

    params = tmp_path / "params.yaml"
    params.write_text(configuration.dump(BASE), encoding="utf-8")
    assert having() == set()
    assert "seq2sweep.model.feed_forward.relu" in dvc_stages.code(tmp_path, "train")
    params.write_text(configuration.dump(SWEPT), encoding="utf-8")
    assert having() == {"sweep"}
    params.write_text(configuration.dump(configuration.with_changes(BASE, GATED)), encoding="utf-8")
    assert having() == {"train", "evaluate", "sweep"}


def test_what_a_kind_reads_beside_it_is_its_code(model: Path) -> None:
    """As the source of a kernel, which it compiles."""
    file, kernel = (model / "feed_forward" / name for name in ("geglu.py", "geglu.cu"))
    kernel.write_text("1", encoding="utf-8")
    file.write_text("SOURCE = __file__[:-3] + '.cu'\n", encoding="utf-8")
    (model / "feed_forward" / "alone.py").write_text("RATE = 1\n", encoding="utf-8")

    def codes() -> list[str]:
        return [kinds_of_parts.code("feed_forward", kind) for kind in ("geglu", "alone", "swiglu")]

    before = codes()
    kernel.write_text("2", encoding="utf-8")
    assert [a == b for a, b in zip(before, codes(), strict=True)] == [False, True, True]


def test_a_kind_may_be_named_in_any_letters(model: Path) -> None:
    for name in ("géglu", "geglu.v2"):
        file = model / "feed_forward" / f"{name}.py"
        file.write_bytes("# -*- coding: latin-1 -*-\nNAME = 'é'\n".encode("latin-1"))
    # A file that Python cannot import is no kind.
    assert kinds_of_parts.names("feed_forward") == ("géglu", "relu", "swiglu")
    for changes in (
        {"model.feed_forward": "géglu"},
        {"sweep.space": {"model.feed_forward": ["géglu"]}},
    ):
        config = configuration.with_changes(BASE, changes)
        named = configuration.code_of_kinds(config, "model", "sweep")
        assert "seq2sweep.model.feed_forward.géglu" in named


def test_no_key_of_the_model_is_called_as_one_of_training() -> None:
    """Tables have them by their last name."""
    every = [key.rpartition(".") for key in configuration.DEFAULTS]
    of_training = {name for section, _, name in every if section == "train"}
    assert not [name for section, _, name in every if section == "model" and name in of_training]


def test_a_kind_that_is_no_python_is_named(model: Path) -> None:
    (model / "feed_forward" / "swiglu.py").write_text("def (", encoding="utf-8")
    with pytest.raises(UserError, match=r"swiglu\.py line 1 is not valid Python .*: fix it"):
        configuration.identity(configuration.with_changes(BASE, GATED))


def test_architectures_are_named_by_the_rows_of_table_2() -> None:
    def named(rows: list[str]) -> list[str]:
        changes = {"sweep.method": "table2", "sweep.budget": "flops", "sweep.scheduler": "none"}
        changes |= {"sweep.space": {}, "sweep.rows": rows}
        config = configuration.with_changes(BASE, changes)
        assert configuration.code_of_kinds(config, "model") == {}
        return [m.rpartition(".")[2] for m in configuration.code_of_kinds(config, "model", "sweep")]

    assert sorted(named(["all"])) == ["bytenet", "convolutional", "recurrent"]
    assert named(["bytenet"]) == ["bytenet"]


@dataclasses.dataclass(frozen=True, kw_only=True)
class MineConfig:
    """A model of one's own, one of whose keys is called as another thing of the Transformer."""

    PUBLISHED_OPTIMIZER: ClassVar[str] = "adam"

    architecture: Literal["mine"] = field("the model", kinds="architecture")
    layers: int = field("N", at_least=1)
    d_model: int = field("width", at_least=1)
    attention: str = field("of scores", kinds="score", default="cosine")
    cell: str = field("of the recurrence", kinds="cell", default="gru")
    dropout: float = field("share")
    tie_embeddings: bool = field("one matrix")
    target_symbols: int = TARGET_SYMBOLS


@dataclasses.dataclass(frozen=True, kw_only=True)
class WithMine(Config):
    model: TransformerConfig | MineConfig = field("THE MODEL")


@pytest.fixture
def mine(model: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The folder of the model, with files of such a one."""
    for name in ("architecture/mine", "score/cosine", "score/sum", "cell/gru", "cell/lstm"):
        file = model / f"{name}.py"
        file.parent.mkdir(exist_ok=True)
        file.write_text("RATE = 1\n", "utf-8")
    monkeypatch.setattr(loading, "Config", WithMine)
    loading.architectures.cache_clear()
    yield model
    loading.architectures.cache_clear()


def kinds_of(config: Config, *sections: str) -> set[str]:
    """As `folder.kind`."""
    found = configuration.code_of_kinds(config, *sections)
    return {name.removeprefix("seq2sweep.model.") for name in found}


@pytest.mark.usefixtures("mine")
def test_a_key_that_several_architectures_have_is_of_each_ones_kinds() -> None:
    """DVC says that a stage is up to date by this, when a kind's file is edited."""
    base = configuration.with_changes(
        configuration.parse(configuration.dump(BASE)),
        {"model.architecture": "mine", "model.attention": "cosine"},
    )
    own = {"architecture.mine", "score.cosine", "cell.gru"}
    assert kinds_of(base, "model") == own
    assert kinds_of(configuration.with_changes(base, {"model.attention": "sum"}), "model") == (
        own - {"score.cosine"} | {"score.sum"}
    )


@pytest.mark.usefixtures("mine")
@pytest.mark.parametrize(
    "named",
    [
        {"sweep.space": {"model.architecture": ["mine"]}},
        {"sweep.space": {"model.layers, model.architecture": [[2, "mine"]]}},
        {"sweep.base": {"model.architecture": "mine", "model.attention": "cosine"}},
        {"sweep.method": "table2", "sweep.budget": "flops", "sweep.rows": ["all"],
         "sweep.scheduler": "none", "sweep.space": {}},
    ],
)  # fmt: skip
def test_what_an_architecture_that_only_a_sweep_names_is_made_of_is_its_code(
    named: dict[str, Any],
) -> None:
    before = configuration.parse(configuration.dump(BASE))
    config = configuration.with_changes(before, named)
    assert kinds_of(config, "model") == set()
    assert kinds_of(config, "model", "sweep") == {"architecture.mine", "score.cosine", "cell.gru"}
    assert kinds_of(before, "model", "sweep") == set()


@pytest.mark.parametrize(
    ("hint", "default", "told"),
    [
        (str | None, None, "so its type must be str, not str | None: a kind is one name"),
        (tuple[str, ...], ("relu",), "so its type must be str, not tuple[str, ...]: a kind is"),
        (Literal["relu", None], None, "so its type must be str, not Literal['relu', None]: a"),
        (Literal["relu", "swiglu"], "relu", None),
        (str, "swiglu", None),
        (str, "swiglo", "the default of model.gate must be one of relu, swiglu, did you mean swig"),
    ],
)
@pytest.mark.parametrize("given", [False, True])
def test_a_field_that_names_a_kind_is_a_text(
    hint: Any, default: Any, told: str | None, given: bool
) -> None:
    """A mistake in the code, told where params.yaml is read, whether it has the key or not."""
    gate = field("the gate", kinds="feed_forward", default=default)
    own = dataclasses.make_dataclass("Own", [("gate", hint, gate)], frozen=True)
    values = {"gate": default} if given else {}
    if told is None:
        assert configuration.section(own, values, "model.").gate == default
        return
    with pytest.raises(UserError) as caught:
        configuration.section(own, values, "model.")
    assert told.removeprefix("the default of " * given) in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_recurrent_mixer_is_no_recurrent_model() -> None:
    space = {"model.encoder_mixer, model.layers": [["recurrent", 2]]}
    config = configuration.with_changes(BASE, {"sweep.space": space})
    assert [*configuration.code_of_kinds(config, "sweep")] == ["seq2sweep.model.mixer.recurrent"]


def test_what_a_kind_takes_from_another_is_its_code(model: Path) -> None:
    """ByteNet's convolutions are summed by a function of the convolutional mixer."""
    config = configuration.with_changes(BASE, {"model.architecture": "bytenet"})
    before = configuration.identity(config, "model")["model.architecture"]
    file = model / "mixer" / "convolutional.py"
    text = file.read_text(encoding="utf-8")
    file.write_text(text.replace("own = kernel - 1 if", "own = kernel - 2 if"), encoding="utf-8")
    assert configuration.identity(config, "model")["model.architecture"] != before


@pytest.mark.parametrize(
    ("statement", "changed"),
    [
        ("from seq2sweep.model.gates import gate", ["gates.py", "curves.py"]),
        ("from seq2sweep.model import gates", ["gates.py", "curves.py"]),
        ("from ..gates import gate", ["gates.py", "curves.py"]),
        ("from .swiglu import FeedForward", ["feed_forward/swiglu.py"]),
        ("from . import swiglu", ["feed_forward/swiglu.py"]),
    ],
)
def test_what_a_kind_takes_from_a_module_beside_it_is_its_code(
    statement: str, changed: list[str], model: Path
) -> None:
    """A module that the defaults import is not: it is part of the code of all trainings."""
    (model / "curves.py").write_text("from seq2sweep.model import dropout\nRATE = 1\n", "utf-8")
    (model / "gates.py").write_text("from .curves import RATE\ngate = RATE\n", "utf-8")
    imports = f"{statement}\nfrom seq2sweep.model.dropout import dropout\n"
    (model / "feed_forward" / "geglu.py").write_text(imports, "utf-8")
    config = configuration.with_changes(BASE, {"model.feed_forward": "geglu"})
    before = configuration.identity(config, "model")["model.feed_forward"]
    for name in ["dropout.py", *changed]:
        file = model / name
        file.write_text(file.read_text("utf-8") + "\nOTHER = 2\n", "utf-8")
        now = configuration.identity(config, "model")["model.feed_forward"]
        assert (now == before) == (name == "dropout.py"), name
        before = now


@pytest.mark.parametrize(
    "call",
    [
        'components.feed_forward("swiglu")',
        "feed_forward('swiglu')",
        "parts.feed_forward(kind='swiglu')",
    ],
)
@pytest.mark.parametrize("through", [False, True])
def test_a_kind_that_another_gets_by_its_name_is_its_code(
    call: str, through: bool, model: Path
) -> None:
    """As `model/architecture/transformer.py` gets its parts; also in a module beside it. Not what
    all trainings import, and no other function that is called as a part."""
    parts = 'components.norm("layernorm"), x.norm("fro"), components.norm(kind)'
    statements = f"from seq2sweep.model import components\nPARTS = {call}, {parts}\n"
    file = model / "mixer" / "mine.py"
    if through:
        (model / "gates.py").write_text(statements, "utf-8")
        statements = "from seq2sweep.model.gates import PARTS\nMine = PARTS\n"
    file.write_text(statements, "utf-8")
    swiglu = model / "feed_forward" / "swiglu.py"
    swiglu.write_text(swiglu.read_text("utf-8") + '\nOTHER = mixer("mine")\n', "utf-8")
    before = kinds_of_parts.code("mixer", "mine")
    for edited, same in ((swiglu, False), (model / "norm" / "layernorm.py", True)):
        edited.write_text(edited.read_text("utf-8") + "\nMORE = 2\n", "utf-8")
        now = kinds_of_parts.code("mixer", "mine")
        assert (now == before) is same, edited
        before = now


@pytest.mark.parametrize(
    ("before", "after", "same"),
    [
        (
            "from torch.nn.functional import gelu as f",
            "from torch.nn.functional import silu as f",
            0,
        ),
        ("from torch.nn import RMSNorm as f", "from torch.nn import LayerNorm as f", 0),
        ("from math import floor as f", "from math import ceil as f", 0),
        ("from seq2sweep.model.dropout import dropout as f", "from torch import dropout as f", 0),
        ("from seq2sweep.model.f import f", "from torch.nn.functional import f", 0),
        ("from .mine import a as f", "from .mine import b as f", 0),
        ("from torch.nn import functional as f", "import torch.nn.functional as f", 1),
        ("from torch import f, gelu as g", "from torch import silu as g, f", 1),  # of no use
    ],
)
def test_a_kind_means_what_its_names_were_imported_from(
    before: str, after: str, same: int, model: Path
) -> None:
    (model / "feed_forward" / "mine.py").write_text("a, b = 1, 2\n", "utf-8")
    file = model / "feed_forward" / "geglu.py"
    seen = []
    for statement in (before, after):
        file.write_text(f"{statement}\n\n\ndef gate(x):\n    return f(x)\n", "utf-8")
        seen.append(kinds_of_parts.code("feed_forward", "geglu"))
    assert (seen[0] == seen[1]) == bool(same)


def test_a_name_that_another_module_hands_on_is_told_with_where_that_has_it_from(
    model: Path,
) -> None:
    ideas = model.parent / "ideas"
    ideas.mkdir()
    (ideas / "gates.py").write_text("soft, hard = 1, 2\n", "utf-8")
    (ideas / "more.py").write_text("from seq2sweep.ideas import gate as door, other\n", "utf-8")
    file = model / "feed_forward" / "mine.py"
    file.write_text("from seq2sweep.ideas.more import door\nGATE = door\n", "utf-8")
    seen = []
    for gate, other in (("soft", "soft"), ("hard", "soft"), ("hard", "hard")):
        names = f"{gate} as gate, {other} as other"
        (ideas / "__init__.py").write_text(f"from seq2sweep.ideas.gates import {names}\n", "utf-8")
        seen.append(kinds_of_parts.code("feed_forward", "mine"))
    assert seen[0] != seen[1]
    assert seen[1] == seen[2]  # nobody has it from there


def test_what_code_of_all_trainings_imports_too_is_not_told_again(model: Path) -> None:
    """Kinds that were trained before imports counted keep their names."""
    file = model / "feed_forward" / "geglu.py"
    imports = "from torch.nn import functional as F\nfrom seq2sweep.model.products import Linear\n"
    file.write_text(f"{imports}GATES = F.gelu, Linear\n", "utf-8")
    assert kinds_of_parts.code("feed_forward", "geglu") == code_fingerprint.of_code([file])
