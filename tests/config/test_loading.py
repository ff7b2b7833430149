"""params.yaml: what is written is read back, and what is wrong is named."""

from __future__ import annotations

import dataclasses
import functools
import re
import subprocess
from pathlib import Path
from typing import Any, Literal

import pytest
import yaml

from seq2sweep import config as configuration
from seq2sweep import presets
from seq2sweep.config.fields import field, must
from seq2sweep.errors import UserError

BASE = configuration.with_changes(
    presets.load("phrasebook").config,
    {"train.steps": 800, "train.checkpoint_every": 100, "train.validate_every": 250},
)
TEXT = configuration.dump(BASE)


def error_of(text: str) -> str:
    with pytest.raises(UserError) as caught:
        configuration.parse(text)
    message = str(caught.value)
    assert "\n" not in message
    assert message.startswith("params.yaml")
    return message


def error_of_change(changes: dict[str, Any]) -> str:
    with pytest.raises(UserError) as caught:
        configuration.with_changes(BASE, changes)
    assert "\n" not in str(caught.value)
    return str(caught.value)


@pytest.mark.parametrize("name", presets.names())
def test_dump_and_parse_are_inverse(name: str) -> None:
    config = presets.load(name).config
    text = configuration.dump(config)
    assert configuration.parse(text) == config
    assert configuration.dump(configuration.parse(text)) == text
    written = configuration.to_dict(config)
    for key, default in configuration.DEFAULTS.items():
        *path, name = key.split(".")
        section = functools.reduce(dict.__getitem__, path, written)
        if section.get(name, "none") == default:
            del section[name]
    # A section of comments alone is none to YAML.
    written = {section: values or None for section, values in written.items()}
    assert yaml.safe_load(text) == written


def test_dump_explains_every_key() -> None:
    for line in TEXT.splitlines():
        assert not line or "#" in line or line.endswith(":") or line.startswith("    "), line
    for section in dataclasses.fields(BASE):
        assert f"\n{section.name}:" in "\n" + TEXT


def test_dump_keeps_texts_that_yaml_reads_as_something_else() -> None:
    awkward = {
        "data.dataset": "wmt14-en-no",
        "data.source": "no",
        "cluster.storage": "1e3",
        "tracking.experiment": "a: b # c",
        "cluster.address": "ray://[::1]:10001",
        "tracking.uri": "null",
        "data.folder": "Übersetzung/💾 ",
        "sweep.space": {"model.dropout": {"low": 1e-5, "high": 0.5, "log": True}},
    }
    config = configuration.with_changes(BASE, awkward)
    assert configuration.parse(configuration.dump(config)) == config
    assert configuration.flatten(config)["data.source"] == "no"


@pytest.mark.parametrize(
    ("wrong", "meant"),
    [
        ("model.d_modell", "model.d_model"),
        ("train.stepps", "train.steps"),
        ("data.phrasebook.sed", "data.phrasebook.seed"),
    ],
)
def test_an_unknown_key_is_named_with_the_one_meant(wrong: str, meant: str) -> None:
    assert f"unknown key {wrong}, did you mean {meant}?" in error_of_change({wrong: 1})
    values = configuration.to_dict(BASE)
    *path, last = wrong.split(".")
    section = values
    for part in path:
        section = section[part]
    section[last] = 1
    assert f"unknown key {wrong}, did you mean {meant}?" in error_of(yaml.safe_dump(values))


def test_an_unknown_key_like_no_other_gets_the_list() -> None:
    values = configuration.to_dict(BASE)
    values["prepare"]["qqqqqqqqqqqqqqqq"] = 1
    message = error_of(yaml.safe_dump(values))
    assert "unknown key prepare.qqqqqqqqqqqqqqqq" in message
    assert "prepare.max_words" in message


@pytest.mark.parametrize(
    ("key", "value", "expected"),
    [
        ("train.steps", "many", "a whole number"),
        ("train.steps", 1.5, "a whole number"),
        ("train.steps", True, "a whole number"),
        ("train.steps", None, "a whole number"),
        ("model.dropout", "much", "a number"),
        ("model.dropout", True, "a number"),
        ("model.dropout", [0.1], "a number"),
        ("model.dropout", float("nan"), "a number"),
        ("train.learning_rate_scale", float("inf"), "a number"),
        ("prepare.lowercase", "yes please", "true or false"),
        ("prepare.lowercase", 1, "true or false"),
        ("data.source", 3, "text"),
        ("data.source", False, "text"),
        ("data.files.train", "train.en", "a list of texts"),
        ("data.files.train", [1, 2], "a list of texts"),
        ("sweep.space", [1], "a mapping"),
        ("sweep.rows", "all", "a list of texts"),
        ("sweep.budget", "step", "did you mean steps?"),
        ("sweep.method", "table_3", "did you mean table3?"),
        ("sweep.objectives", ["bleu", "flop"], "did you mean flops?"),
        ("sweep.objectives", "bleu", "a list, each one of bleu, bleu_paper, chrf, perplexity"),
        ("sweep.objectives", [{}], "a list, each one of bleu, bleu_paper, chrf, perplexity"),
        ("model.positions", "sinusoidle", "did you mean sinusoidal?"),
        ("data.dataset", 7, "text"),
        ("model.norm", 7, "one of post, pre"),
        ("prepare.drop", "ratio", "a list, each one of empty, too_long"),
        ("prepare.drop", ["ratio", "lenght"], "a list, each one of empty, too_long"),
        ("prepare.normalise", [["unicode"]], "a list, each one of invisible"),
        ("download.mirrors", ["https://a"], "a mapping"),
        ("cluster.cpus_per_worker", 1.5, "a whole number"),
        ("sweep.learning_rates", [0.5, True], "a list of numbers, not [0.5, True]"),
        ("sweep.learning_rates", ["1e-1", 10**400], "a list of numbers, not ['1e-1', 1000"),
        ("sweep.learning_rates", "1e-1", "a list of numbers, not '1e-1'"),
    ],
)
def test_a_value_of_the_wrong_type_is_named(key: str, value: Any, expected: str) -> None:
    message = error_of_change({key: value})
    assert f"{key} must be " in message
    assert expected in message


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("train.steps", 0),
        ("train.steps", 10**15 + 1),
        ("prepare.max_words", 0),
        ("prepare.max_ratio", 0.5),
        ("data.phrasebook.train", -1),
        ("data.phrasebook.seed", -1),
        ("model.dropout", 1.0),
        ("model.dropout", -0.1),
        ("model.d_model", 33),
        ("model.layers", 10_001),
        ("train.label_smoothing", 1.0),
        ("train.learning_rate_scale", 0),
        ("vocabulary.size", 15),
        ("vocabulary.size", 1_000_001),
        ("vocabulary.character_coverage", 0.97),
        ("vocabulary.character_coverage", 1.1),
        ("evaluate.average_checkpoints", BASE.train.keep_checkpoints + 1),
        ("evaluate.alpha", -1),
        ("sweep.reduction_factor", 1),
        ("sweep.seeds", 0),
        ("sweep.seeds", 2**31),
        ("sweep.cpus_per_trial", 0),
        ("sweep.cpus_per_trial", 0.00009),
        ("sweep.gpus_per_trial", 0.00009),
        ("sweep.gpus_per_trial", 1.5),
        ("sweep.gpus_per_trial", 2),
        ("cluster.gpus_per_worker", 2),
        ("cluster.hang_seconds", 10**9 + 1),
        ("sweep.workers_per_trial", 0),
        ("cluster.workers", 0),
        ("cluster.cpus_per_worker", 0),
        ("cluster.max_failures", -1),
        ("tracking.experiment", ""),
        ("tracking.experiment", " "),
    ],
)
def test_a_value_out_of_range_is_named(key: str, value: Any) -> None:
    message = error_of_change({key: value})
    assert f"{key} must be " in message
    assert repr(value) in message


def test_a_name_that_mlflow_would_refuse_is_refused_before() -> None:
    expected = "tracking.experiment must be a name of 1 to 500 characters, not 'xxx"
    assert expected in error_of_change({"tracking.experiment": "x" * 501})


def test_edges_of_ranges_are_allowed() -> None:
    edges = {
        "model.dropout": 0.0,
        "prepare.max_ratio": 1,
        "vocabulary.size": 16,
        "vocabulary.character_coverage": 1,
        "evaluate.alpha": 0,
        "train.steps": 10**15,
        "cluster.cpus_per_worker": 1,
        "cluster.hang_seconds": 10**9,
        "sweep.cpus_per_trial": 0.0001,
        "sweep.gpus_per_trial": 0.0001,
        "train.learning_rate_scale": "1e-4",  # YAML 1.1 reads 1e-4 as text
        "sweep.learning_rates": ["5e-1", 1, 2.0],
        "tracking.experiment": "x" * 500,
    }
    config = configuration.with_changes(BASE, edges)
    assert config.train.learning_rate_scale == 1e-4
    assert config.sweep.learning_rates == (0.5, 1.0, 2.0)
    assert {type(rate) for rate in config.sweep.learning_rates} == {float}
    assert isinstance(config.prepare.max_ratio, float)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (
            {"train.keep_every": 150},
            "train.keep_every must be 0 or a multiple of train.checkpoint_every (100), not 150",
        ),
        (
            {"train.keep_best": 1},  # a checkpoint every 100 steps, a validation every 250
            "train.checkpoint_every must be a multiple of train.validate_every (250) for "
            "train.keep_best, not 100",
        ),
        (
            {"evaluate.checkpoints": "best"},
            "evaluate.average_checkpoints must be at most train.keep_best (0), not 5",
        ),
        (
            {"train.validate_every": 50, "train.keep_best": 4, "evaluate.checkpoints": "best"},
            "evaluate.average_checkpoints must be at most train.keep_best (4), not 5",
        ),
    ],
)
def test_what_is_kept_must_be_there_and_enough(changes: dict[str, Any], message: str) -> None:
    assert message in error_of_change(changes)


@pytest.mark.parametrize(
    ("changes", "kept", "shown"),
    [
        ({}, {400, 500, 600, 700, 800}, "400, 500, 600, 700, 800"),
        ({"train.steps": 750}, {400, 500, 600, 700, 750}, "400, 500, 600, 700, 750"),
        ({"train.steps": 50}, {50}, "50"),
        (
            {"train.keep_every": 300},
            {300, 400, 500, 600, 700, 800},
            "400, 500, 600, 700, 800; multiples of 300",
        ),
        (
            {"train.steps": 450, "train.validate_every": 100, "train.keep_best": 1},
            {100, 200, 300, 400, 450},
            "100, 200, 300, 400, 450; multiples of 100",
        ),
    ],
)
def test_named_checkpoints_are_among_those_kept(
    changes: dict[str, Any], kept: set[int], shown: str
) -> None:
    for step in range(0, 1000, 50):
        named = changes | {"evaluate.checkpoint_steps": [step]}
        if step in kept:
            configuration.with_changes(BASE, named)
        else:
            assert f"among the steps that training keeps ({shown})" in error_of_change(named)


@pytest.mark.parametrize("value", ["atuo", "Auto", "4000", 0, -1, 1.5, True, None, ["auto"], {}])
def test_tokens_a_pass_are_a_number_or_auto(value: Any) -> None:
    changes = {"train.tokens_per_pass": value}
    message = error_of_change(changes)
    assert "\n" not in message
    assert "train.tokens_per_pass must be " in message
    assert " or auto" in message or ", or auto" in message
    assert ("did you mean auto" in message) == (value in ("atuo", "Auto"))


def test_tokens_a_pass_may_be_found_where_it_runs() -> None:
    auto = configuration.with_changes(BASE, {"train.tokens_per_pass": "auto"})
    assert auto.train.tokens_per_pass == "auto"
    assert configuration.parse(configuration.dump(auto)) == auto
    assert configuration.identity(auto, "train")["train.tokens_per_pass"] == "auto"
    assert auto.sized(None) == auto
    assert auto.sized(700).train.pass_tokens == 700
    assert auto.sized(BASE.train.pass_tokens) == BASE == BASE.sized(700)
    with pytest.raises(ValueError, match="nobody has said"):
        print(auto.train.pass_tokens)


@dataclasses.dataclass(frozen=True)
class Own:
    """A section with keys of a researcher's own."""

    scale: float | Literal["auto"] = field("x", default="auto")
    layers: tuple[int, ...] | Literal["all"] = field("x", default="all")
    places: tuple[Literal["first", "last"], ...] | Literal["all"] = field("x", default="all")
    rate: float | None = field("x", default=None)


@pytest.mark.parametrize(
    ("key", "value", "read"),
    [
        ("scale", 10000, 10000.0),
        ("scale", "1e-4", 1e-4),
        ("scale", "auto", "auto"),
        ("layers", [1, 2], (1, 2)),
        ("layers", "all", "all"),
        ("places", ["last"], ("last",)),
        ("rate", 2, 2.0),
        ("rate", None, None),
    ],
)
def test_a_value_beside_a_word_is_read_as_one_without_it(key: str, value: Any, read: Any) -> None:
    found = getattr(configuration.section(Own, {key: value}, "own."), key)
    assert (found, type(found)) == (read, type(read))


@pytest.mark.parametrize(
    ("key", "value", "expected"),
    [
        ("scale", "atuo", "a number or auto, did you mean auto?, not 'atuo'"),
        ("scale", True, "a number or auto, not True"),
        ("layers", "al", "a list of whole numbers or all, did you mean all?, not 'al'"),
        ("layers", [1, 2.5], "a list of whole numbers or all, not [1, 2.5]"),
        ("places", ["frist"], "a list, each one of first, last, did you mean first?, not"),
        ("rate", "auto", "a number, not 'auto'"),
    ],
)
def test_what_a_value_beside_a_word_must_be_is_said(key: str, value: Any, expected: str) -> None:
    with pytest.raises(UserError) as caught:
        configuration.section(Own, {key: value}, "own.")
    assert str(caught.value).startswith(f"params.yaml: own.{key} must be {expected}")


def test_learned_positions_allow_an_odd_width() -> None:
    odd = {"model.d_model": 33, "model.positions": "learned"}
    assert configuration.with_changes(BASE, odd).model.d_model == 33


@pytest.mark.parametrize("key", ["model.heads", "tracking.uri", "data.files.test"])
def test_a_missing_key_is_named(key: str) -> None:
    values = configuration.to_dict(BASE)
    *path, last = key.split(".")
    section = values
    for part in path:
        section = section[part]
    del section[last]
    assert f"missing key {key} " in error_of(yaml.safe_dump(values))


def test_a_missing_section_is_named() -> None:
    values = configuration.to_dict(BASE)
    del values["model"]
    assert "missing key model " in error_of(yaml.safe_dump(values))
    values["model"] = 3
    assert "model must be a section" in error_of(yaml.safe_dump(values))


@pytest.mark.parametrize("text", ["", "3", "- a", "model: [", "a: b: c", "\tmodel: 1", "{1: 2}"])
def test_what_is_not_a_mapping_of_sections_is_refused(text: str) -> None:
    error_of(text)


def test_yaml_tags_build_no_objects() -> None:
    error_of("model: !!python/object/apply:os.getcwd []")


def test_load_names_the_file(tmp_path: Path) -> None:
    path = tmp_path / "params.yaml"
    with pytest.raises(UserError, match=r"params\.yaml is missing: run `seq2sweep preset"):
        configuration.load(path)
    path.write_bytes(b"model: \xff")
    with pytest.raises(UserError, match=r"params\.yaml is not UTF-8"):
        configuration.load(path)
    path.write_text(TEXT, encoding="utf-8")
    assert configuration.load(path) == BASE


def test_with_changes_changes_nothing_else() -> None:
    changed = configuration.with_changes(BASE, {"model.heads": 8, "sweep.space": {"a.b": [1]}})
    before, after = configuration.flatten(BASE), configuration.flatten(changed)
    assert {key for key in before if before[key] != after[key]} == {"model.heads", "sweep.space"}
    assert BASE.model.heads != 8


def test_flatten_takes_sections() -> None:
    assert set(configuration.flatten(BASE, "download")) == {
        "download.folder",
        "download.mirrors",
        "download.parallel",
    }
    assert configuration.flatten(BASE)["sweep.base"] == dict(BASE.sweep.base)


@pytest.mark.parametrize(
    ("mirrors", "message"),
    [
        ({"https://a.org/": 7}, "a mapping of addresses"),
        ({"https://a.org/": "/cache"}, "a mapping of addresses"),
        ({"a.org": "https://b.org/"}, "a mapping of addresses"),
        ({"https://a.org/": "http://[::1/"}, "a mapping of addresses"),
        ({"https://a.org/": "file:///cache"}, "file:///cache must end in / as https://a.org/ does"),
        ({"https://a.org/": "https://me:secret@b.org/"}, "holds a user or password"),
    ],
)
def test_mirrors_are_addresses_without_secrets(mirrors: dict[str, Any], message: str) -> None:
    found = error_of_change({"download.mirrors": mirrors})
    assert message in found
    assert "secret" not in found


def test_mirrors_may_be_files_and_buckets() -> None:
    mirrors = {"https://a.org/": "file:///a/b@c/", "https://b.org/": "s3://bucket/x/"}
    config = configuration.with_changes(BASE, {"download.mirrors": mirrors})
    assert configuration.parse(configuration.dump(config)) == config


def test_word_pieces_have_no_bytes_to_fall_back_on() -> None:
    message = error_of_change({"vocabulary.kind": "word_piece", "vocabulary.byte_fallback": True})
    assert "vocabulary.byte_fallback must be false for kind word_piece" in message


def test_fingerprint_is_equal_exactly_when_the_values_are() -> None:
    same = configuration.parse(configuration.dump(BASE))
    other = configuration.with_changes(BASE, {"train.seed": BASE.train.seed + 1})
    assert configuration.fingerprint(same) == configuration.fingerprint(BASE)
    assert configuration.fingerprint(other) != configuration.fingerprint(BASE)
    assert configuration.fingerprint(other, "model", "data") == configuration.fingerprint(
        BASE, "model", "data"
    )
    assert configuration.fingerprint(BASE, "model") != configuration.fingerprint(BASE, "train")


def test_the_committed_params_are_the_phrasebook_preset() -> None:
    root = Path(__file__).parents[2]
    shown = subprocess.run(
        ["git", "show", "HEAD:params.yaml"], cwd=root, capture_output=True, text=True, check=False
    )
    if shown.returncode != 0:
        pytest.skip("not a git checkout with a committed params.yaml")
    assert shown.stdout == configuration.dump(presets.load("phrasebook").config)


@pytest.mark.parametrize(
    ("storage", "folder"),
    [
        ("runs", "runs"),
        ("/mnt/shared/runs", "/mnt/shared/runs"),
        ("s3://bucket", "runs"),
        ("s3://bucket/some/prefix/", "runs"),
        ("gs://bucket/prefix", "runs"),
    ],
)
def test_where_this_machine_has_its_runs(storage: str, folder: str) -> None:
    changed = configuration.with_changes(BASE, {"cluster.storage": storage})
    assert changed.cluster.folder == folder


@pytest.mark.parametrize(
    ("address", "variable", "joined"),
    [
        (None, None, None),
        (None, "", None),
        (None, "local", None),
        (None, "auto", "auto"),
        (None, "head:6379", "head:6379"),
        ("head:6379", "other:6379", "head:6379"),
        ("local", "other:6379", None),
    ],
)
def test_a_running_cluster_is_joined_where_one_is_named(
    address: str | None,
    variable: str | None,
    joined: str | None,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """As Ray itself reads the variable: empty it names none, and `local` is a Ray of one's own."""
    monkeypatch.delenv("RAY_ADDRESS", raising=False)
    if variable is not None:
        monkeypatch.setenv("RAY_ADDRESS", variable)
    changed = configuration.with_changes(BASE, {"cluster.address": address})
    assert changed.cluster.running_address == joined


@pytest.mark.parametrize("key", ["data.folder", "download.folder", "cluster.storage"])
def test_a_folder_has_a_name_that_file_systems_take(key: str) -> None:
    configuration.with_changes(BASE, {key: "/".join(["ü" * 127, "a" * 255])})
    for wrong in ("  ", "~/runs", "runs/" + "a" * 256, "ü" * 128):
        message = error_of_change({key: wrong})
        rule = "must be a path, without ~ for a home, with names of at most 255 bytes, not '"
        assert f"{key} {rule}" in message


@pytest.mark.parametrize(
    ("folder", "made"),
    [
        ("data", "data/raw"),
        ("./data/", "data/raw"),
        ("data/clean/mine", "data/clean"),
        ("models", "models/train"),
        ("reports", "reports/translations.tsv"),
        (".", "data/raw"),
        (str(Path("data").absolute()), "data/raw"),
    ],
)
def test_what_stages_make_lies_apart_from_the_data(folder: str, made: str) -> None:
    """Else DVC has a cycle, and says so in a stack of its own."""
    message = error_of_change({"data.folder": folder})
    rule = f"must be a folder apart from {made}, which stages make, such as corpora/mine"
    assert message.endswith(f"data.folder {rule}, not {folder!r}")
    for beside in ("data/mine", "database", "reports/mine", "corpora/data"):
        configuration.with_changes(BASE, {"data.folder": beside})


@pytest.mark.parametrize("key", ["download.folder", "cluster.storage"])
@pytest.mark.parametrize(
    ("folder", "inside"),
    [
        ("registry", "registry/downloads"),
        ("registry", "corpora/../registry/downloads"),
        ("../registry", "../registry/downloads"),
    ],
)
def test_downloads_and_runs_lie_outside_of_the_data(folder: str, inside: str, key: str) -> None:
    """Else DVC would read all of them, and take each for a change of the data."""
    changes = {"data.dataset": "of-a-registry", "data.folder": folder}
    message = error_of_change(changes | {key: inside})
    rule = f"must be outside of data.folder, {folder}, which DVC watches for changes"
    assert message.endswith(f"{key} {rule}, not {inside!r}")
    configuration.with_changes(BASE, changes | {key: f"{folder}-beside"})


@pytest.mark.parametrize("key", ["download.folder", "cluster.storage"])
@pytest.mark.parametrize(
    ("inside", "made"),
    [("data/raw", "data/raw"), ("models/../data/raw/mine", "data/raw"),
     ("models/train/runs", "models/train")],
)  # fmt: skip
def test_downloads_and_runs_lie_outside_of_what_stages_make(
    inside: str, made: str, key: str
) -> None:
    """Else they go with it when its stage runs again."""
    changes = {"data.dataset": "of-a-registry", "data.folder": "registry"}
    message = error_of_change(changes | {key: inside})
    rule = f"must be outside of {made}, which a stage makes anew"
    assert message.endswith(f"{key} {rule}, not {inside!r}")
    for beside in ("data/runs", "models/runs"):
        configuration.with_changes(BASE, changes | {key: beside})


@pytest.mark.parametrize(
    ("storage", "problem"),
    [
        ("hdfs://host/runs", "must be a folder, s3://bucket/prefix or gs://bucket/prefix"),
        ("s3:///prefix", "must be a folder, s3://bucket/prefix or gs://bucket/prefix"),
        ("S3://bucket", "must be a folder, s3://bucket/prefix or gs://bucket/prefix"),
        ("s3://ada:hunter2@bucket/prefix", "belongs into the environment of all nodes"),
        ("s3://bucket/prefix?secret=hunter2", "belongs into the environment of all nodes"),
    ],
)
def test_an_address_of_no_bucket_is_refused(storage: str, problem: str) -> None:
    message = error_of_change({"cluster.storage": storage})
    assert "cluster.storage must be" in message
    assert problem in message
    assert "hunter2" not in message


@pytest.mark.parametrize(
    ("task", "objectives", "problem"),
    [
        ("de", ["f1"], "names f1, by which data.target de is not scored: it is by bleu"),
        ("de", ["bleu", "perplexity"], None),
        (
            "trees",
            ["f1", "chrf", "bleu"],
            "names chrf, bleu, by which data.target trees is not scored: it is by f1",
        ),
        ("trees", ["f1", "flops"], None),
    ],
)
def test_a_search_looks_for_what_its_task_is_scored_by(
    task: str, objectives: list[str], problem: str | None
) -> None:
    trees = task == "trees"
    changes = {
        "data.target": task,
        "model.target_symbols": 64 if trees else 0,
        "model.tie_embeddings": not trees,
        "sweep.method": "optuna",
        "sweep.space": {"model.d_ff": [64, 128]},
        "sweep.scheduler": "none",
        "sweep.objectives": objectives,
    }
    base = presets.load("phrasebook").config
    if problem is None:
        configuration.with_changes(base, changes)
        return
    with pytest.raises(UserError, match=re.escape(f"params.yaml: sweep.objectives {problem}")):
        configuration.with_changes(base, changes)
    # Of other methods the key says nothing.
    configuration.with_changes(base, changes | {"sweep.method": "none"})


def test_no_half_of_a_password_is_shown_where_a_value_is_cut() -> None:
    mirrors = {"https://a.org/" + "x" * 100: "https://ada:" + "hunter2" * 20 + "@b.org/"}
    said = must("download.mirrors", "a mapping of addresses", mirrors)
    assert "hunter2" not in said
    assert "https://***" in said
