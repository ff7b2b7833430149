"""Who may import whom: imports point downwards, and each big dependency has one home."""

from __future__ import annotations

import ast
import re
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
import yaml

from seq2sweep import config as configuration
from seq2sweep import presets
from seq2sweep.code_fingerprint import imports

ROOT = Path(__file__).parents[1]

# A module may import from its own layer and from those of a lower number.
LAYERS = {
    "phrasebook": 0,
    "seq2sweep": 0,
    "seq2sweep.errors": 1,
    "seq2sweep.cgroups": 1,
    "seq2sweep.console": 2,
    "seq2sweep.paths": 2,
    "seq2sweep.project_files": 1,
    "seq2sweep.yaml_text": 1,
    "seq2sweep.health": 2,
    "seq2sweep.redaction": 2,
    "seq2sweep.ports": 2,
    "seq2sweep.hardware": 2,
    "seq2sweep.parallel": 2,
    "seq2sweep.git_command": 2,
    "seq2sweep.code_fingerprint": 2,
    "seq2sweep.config": 3,
    "seq2sweep.presets": 4,
    "seq2sweep.storage": 4,
    "seq2sweep.data": 5,
    "seq2sweep.model": 6,
    "seq2sweep.train": 7,
    "seq2sweep.runs": 8,
    "seq2sweep.decode": 9,
    "seq2sweep.evaluate": 10,
    "seq2sweep.sweep": 11,
    "seq2sweep.export": 11,
    "seq2sweep.table1": 11,
    "seq2sweep.cluster": 13,
    "seq2sweep.report": 12,
    "seq2sweep.serving": 13,
    "seq2sweep.tracking": 13,
    "seq2sweep.jobs": 14,
    "seq2sweep.planning": 15,
    "seq2sweep.compare": 15,
    "seq2sweep.reproduce": 15,
    "seq2sweep.stages": 16,
    "seq2sweep.commands": 16,
    "seq2sweep.cli": 17,
    "pipeline": 17,
}
CORE = {name for name, layer in LAYERS.items() if layer <= LAYERS["seq2sweep.evaluate"]}
# presets are configurations only, and the data layer needs none of them.
NEVER_TOGETHER = [{"seq2sweep.data", "seq2sweep.presets"}]
HOMES = {
    "ray": "seq2sweep.cluster",
    "optuna": "seq2sweep.sweep",
    "mlflow": "seq2sweep.tracking",
    "obstore": "seq2sweep.storage",
}
CORE_MAY_USE = {
    "boto3",
    # What boto3 is made of.
    "botocore",
    "ctranslate2",
    "fsspec",
    "numpy",
    "obstore",
    # Parquet and Arrow files of one's own; MLflow brings it.
    "pyarrow",
    "regex",
    "requests",
    "sacrebleu",
    "sacremoses",
    "safetensors",
    "sentencepiece",
    "torch",
    "tqdm",
    # What compiles the kernel of the loss; torch brings it where there are GPUs.
    "triton",
    "urllib3",
    "yaml",
}
REPORT_NEVER_USES = {"ray", "mlflow", "torch", "dvc"}


def layer_of(name: str) -> str | None:
    """The longest known layer that a dotted name lies in; None outside of the project."""
    parts = name.split(".")
    for length in range(len(parts), 0, -1):
        prefix = ".".join(parts[:length])
        if prefix in LAYERS:
            return prefix
    return None


def violations(text: str, module: str, is_package: bool = False) -> list[str]:
    """What a module's imports do against the rules of this file."""
    own = layer_of(module)
    assert own is not None, f"{module} lies in no layer: add it to LAYERS"
    if own == "seq2sweep" and module != "seq2sweep":
        return [f"{module} lies in no layer: add it to LAYERS"]
    found = []
    for line, name in imports(text, module, is_package):
        where = f"{module} line {line} imports {name}"
        top = name.split(".")[0]
        other = layer_of(name)
        if other is not None:
            same_height = LAYERS[other] == LAYERS[own] and other != own
            cli_and_stages = {own, other} == {"seq2sweep.cli", "pipeline"}
            if LAYERS[other] > LAYERS[own] or (same_height and not cli_and_stages):
                found.append(f"{where}: imports point downwards only")
            if {own, other} in NEVER_TOGETHER:
                found.append(f"{where}: not from there")
        elif top in HOMES and own != HOMES[top]:
            found.append(f"{where}: only {HOMES[top]} imports {top}")
        elif own in CORE and top not in CORE_MAY_USE | sys.stdlib_module_names:
            found.append(f"{where}: the core runs without {top}")
        elif own == "seq2sweep.report" and top in REPORT_NEVER_USES:
            found.append(f"{where}: the report runs without {top}")
        elif top == "dvc":
            found.append(f"{where}: DVC calls the stages, nothing calls it")
    return found


def modules() -> list[tuple[str, Path]]:
    """Dotted name and file of every module of the library and of the pipeline."""
    found = []
    for base, folder in (
        (ROOT / "src", "phrasebook"),
        (ROOT / "src", "seq2sweep"),
        (ROOT, "pipeline"),
    ):
        for path in sorted((base / folder).rglob("*.py")):
            parts = path.relative_to(base).with_suffix("").parts
            found.append((".".join(parts).removesuffix(".__init__"), path))
    return found


MODULES = modules()
TEXTS = {module: path.read_text(encoding="utf-8") for module, path in MODULES}


def test_imports_keep_to_the_layers() -> None:
    found = []
    for module, path in MODULES:
        found += violations(TEXTS[module], module, path.name == "__init__.py")
    assert found == []


def test_modules_were_found() -> None:
    names = {module for module, _ in MODULES}
    assert {"seq2sweep", "seq2sweep.config", "seq2sweep.data.batching", "pipeline.train"} <= names


@pytest.mark.parametrize(
    ("module", "text", "rule"),
    [
        ("seq2sweep.train.loop", "import ray", "only seq2sweep.cluster imports ray"),
        ("seq2sweep.train.loop", "def f():\n    import ray.train", "line 2 imports ray.train"),
        ("seq2sweep.data.clean", "from mlflow import log_metric", "only seq2sweep.tracking"),
        ("pipeline.train", "import ray", "only seq2sweep.cluster imports ray"),
        ("seq2sweep.report.pareto", "import optuna", "only seq2sweep.sweep imports optuna"),
        ("seq2sweep.cli", "import mlflow", "only seq2sweep.tracking imports mlflow"),
        ("seq2sweep.runs.layout", "import obstore", "only seq2sweep.storage imports obstore"),
        (
            "seq2sweep.cluster.train_driver",
            "import mlflow",
            "only seq2sweep.tracking imports mlflow",
        ),
        ("seq2sweep.model.layers", "import dvc.api", "runs without dvc"),
        ("seq2sweep.jobs.dvc_stages", "from dvc.repo import Repo", "nothing calls it"),
        ("seq2sweep.model.layers", "import pandas", "runs without pandas"),
        ("seq2sweep.model.layers", "from seq2sweep.train import loop", "downwards"),
        ("seq2sweep.data.clean", "from seq2sweep import model", "downwards"),
        ("seq2sweep.data.clean", "from seq2sweep import presets", "not from there"),
        ("seq2sweep.data.clean", "from ..model import layers", "downwards"),
        ("seq2sweep.config", "from seq2sweep import presets", "downwards"),
        ("seq2sweep.evaluate.bleu", "import pipeline.train", "downwards"),
        ("seq2sweep.cluster.train_driver", "from seq2sweep.tracking import relay", "downwards"),
        ("seq2sweep.storage.lease", "from seq2sweep.runs import layout", "downwards"),
        ("seq2sweep.runs.run_store", "from seq2sweep.cluster import session", "downwards"),
        ("phrasebook.grammar", "from seq2sweep import errors", "downwards"),
        ("seq2sweep.tracking.relay", "import seq2sweep.cluster", "downwards"),
        ("seq2sweep.report.page", "from seq2sweep.cluster import run", "downwards"),
        ("seq2sweep.report.page", "import torch", "the report runs without torch"),
        ("seq2sweep.data.clean", "import importlib as i\ni.import_module('ray')", "line 2"),
        ("seq2sweep.data.clean", "__import__('mlflow')", "only seq2sweep.tracking"),
        ("seq2sweep.utils", "", "lies in no layer"),
    ],
)
def test_a_planted_violation_is_caught(module: str, text: str, rule: str) -> None:
    found = violations(text, module)
    assert len(found) == 1
    assert rule in found[0]


@pytest.mark.parametrize(
    ("module", "text"),
    [
        ("seq2sweep.train.loop", "import math, torch\nfrom seq2sweep.data.batching import share"),
        ("seq2sweep.cluster.train_driver", "import ray\nfrom seq2sweep.train import loop"),
        ("seq2sweep.tracking.relay", "import mlflow"),
        ("seq2sweep.report.page", "import jinja2\nimport matplotlib.pyplot"),
        (
            "pipeline.encode",
            "from seq2sweep.stages import stage\nfrom seq2sweep.data import bitext",
        ),
        ("seq2sweep.data.clean", "rays = 'import ray'\n# import ray"),
    ],
)
def test_what_is_allowed_is_not_caught(module: str, text: str) -> None:
    assert violations(text, module) == []


# --- private names of Ray -------------------------------------------------------------------------

RAY_INTERNALS = "seq2sweep.cluster.ray_internals"


def private_names_of_ray(text: str) -> set[str]:
    """Dotted names below `ray` that Ray promises nobody: imports, attributes and text."""
    bound: dict[str, str] = {}
    found: set[str] = set()
    tree = ast.parse(text)
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            names = {alias.name: alias.asname for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and not node.level:
            names = {
                f"{node.module}.{alias.name}": alias.asname or alias.name for alias in node.names
            }
        else:
            continue
        found |= set(names)
        bound |= {name: imported for imported, name in names.items() if name}
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and re.fullmatch(r"ray(\.\w+)+", str(node.value)):
            found.add(str(node.value))
        elif isinstance(node, ast.Attribute):
            root, _, rest = ast.unparse(node).partition(".")
            found.add(f"{bound.get(root, root)}.{rest}")
    return {name for name in found if re.match(r"ray\.(.+\.)?(_(?!_)|core\.generated\b)", name)}


def test_private_names_of_ray_have_one_home() -> None:
    found = {
        module: names for module, text in TEXTS.items() if (names := private_names_of_ray(text))
    }
    assert list(found) == [RAY_INTERNALS], found


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("import ray._private.services", "ray._private.services"),
        ("from ray._private import node", "ray._private.node"),
        ("def f():\n    from ray.train.v2._internal import x", "ray.train.v2._internal.x"),
        (
            "from ray.train.torch.config import _TorchBackend",
            "ray.train.torch.config._TorchBackend",
        ),
        ("import ray\nray._raylet.GcsClient()", "ray._raylet.GcsClient"),
        ("import ray as r\nr._private.worker", "ray._private.worker"),
        ("from ray import train\ntrain.v2._internal.x()", "ray.train.v2._internal"),
        ("import importlib as i\ni.import_module('ray._private.node')", "ray._private.node"),
        ("from ray.core.generated import gcs_pb2", "ray.core.generated.gcs_pb2"),
    ],
)
def test_a_private_name_of_ray_is_found(text: str, name: str) -> None:
    assert name in private_names_of_ray(text)


@pytest.mark.parametrize(
    "text",
    [
        "import ray\nray.__version__, ray.train.v2.api",
        "from ray import tune\nclass A(tune.Callback):\n    def _own(self): self._own()",
        "from seq2sweep.cluster import _ray\n'see ray._private'",
    ],
)
def test_no_other_name_is_taken_for_one(text: str) -> None:
    assert private_names_of_ray(text) == set()


def test_no_stage_is_named_after_a_standard_module() -> None:
    stages = {path.stem for path in (ROOT / "pipeline").glob("*.py")}
    assert stages & set(sys.stdlib_module_names) == set()
    assert "prepare" in stages


def test_dvc_runs_stages_that_exist() -> None:
    for name, stage in _stages().items():
        command = re.fullmatch(
            r'env PATH="\$DVC_ROOT/\.venv/bin:\$PATH" python -m pipeline\.(\w+)', stage["cmd"]
        )
        assert command, f"{name}: {stage['cmd']}"
        assert (ROOT / "pipeline" / f"{command.group(1)}.py").is_file(), name


def test_no_parameter_is_hidden_from_the_run_cache() -> None:
    """DVC leaves keys called `size` and `nfiles` inside of a section out of a run's identity."""
    hidden = [
        key
        for key in configuration.flatten(presets.load("phrasebook").config)
        if key.rpartition(".")[2] in ("size", "nfiles")
    ]
    assert "vocabulary.size" in hidden
    for key in hidden:
        sections = [key.rsplit(".", depth)[0] for depth in range(1, key.count(".") + 1)]
        for name, stage in _stages().items():
            params = [entry for entry in stage.get("params", []) if isinstance(entry, str)]
            assert key in params or not set(sections) & set(params), f"{name}: name {key} in full"


def _stages() -> dict[str, dict[str, Any]]:
    stages = yaml.safe_load((ROOT / "dvc.yaml").read_text(encoding="utf-8"))["stages"]
    return dict(stages)


def test_each_stage_depends_on_what_its_code_means() -> None:
    for name, stage in _stages().items():
        files = {
            k: v
            for entry in stage.get("params", [])
            if isinstance(entry, dict)
            for k, v in entry.items()
        }
        if name != "fingerprint":
            assert name in files["code.json"]
        listed = [dep for dep in stage.get("deps", []) if dep.startswith(("src", "pipeline"))]
        assert listed == (["pipeline", "src"] if name == "fingerprint" else [])


# --- size and names -------------------------------------------------------------------------------

LONGEST_FILE = 400
LONGEST_FUNCTION = 60
"""Lines without its docstring."""
MOST_MODULES = 15
OWN = [(module, path) for module, path in MODULES if not module.startswith("phrasebook")]
"""phrasebook is a text as much as it is code: tables of words and of sentences."""


def test_files_and_functions_are_short_and_exceptions_are_named_errors() -> None:
    found = []
    for module, _ in OWN:
        if (lines := len(TEXTS[module].splitlines())) > LONGEST_FILE:
            found.append(f"{module} has {lines} lines")
        for node in ast.walk(ast.parse(TEXTS[module])):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                docstring = ast.get_docstring(node, clean=False) or ""
                lines = (node.end_lineno or 0) - node.lineno + 1 - len(docstring.splitlines())
                if lines > LONGEST_FUNCTION:
                    found.append(f"{module}.{node.name} has {lines} lines")
            elif isinstance(node, ast.ClassDef) and not node.name.endswith("Error"):
                bases = {getattr(base, "id", getattr(base, "attr", "")) for base in node.bases}
                if any(base == "Exception" or base.endswith("Error") for base in bases):
                    found.append(f"{module}.{node.name} does not end in Error")
    assert found == []


def test_folders_hold_few_modules() -> None:
    count = Counter(module.rpartition(".")[0] for module, path in OWN if path.stem != "__init__")
    assert {folder: n for folder, n in count.items() if n > MOST_MODULES} == {}


def test_the_pipeline_is_its_stages() -> None:
    found = {path.stem for path in (ROOT / "pipeline").glob("*.py")} - {"__init__"}
    assert found == set(_stages())


def test_no_module_of_the_library_has_the_name_of_another() -> None:
    # A kind is called as params.yaml has it: there is a recurrent mixer and a recurrent model.
    kinds = {path.parent for _, path in OWN if path.parent.parent.name == "model"}
    library = [
        path.stem
        for module, path in OWN
        if module.startswith("seq2sweep.") and path.parent not in kinds
    ]
    assert {name for name, n in Counter(library).items() if n > 1} <= {"__init__"}
