"""The `seq2sweep` command: presets and scores, and what a mistake looks like."""

from __future__ import annotations

import gzip
import io
import json
import re
import shlex
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from seq2sweep import commands, presets
from seq2sweep import config as configuration
from seq2sweep.cli import main, parser
from seq2sweep.errors import OperationalError
from tests.refusal import refusal

ROOT = Path(__file__).parents[1]


@pytest.fixture(autouse=True)
def _in_an_empty_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def test_presets_are_listed_with_what_to_expect(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["preset"]) == 0
    out = capsys.readouterr().out
    for name in presets.names():
        assert name in out
        # The rows of Table 3 are a table of their own: tests/test_presets.py.
        assert presets.load(name).score in out or name.startswith("table3-")
    assert not Path("params.yaml").exists()


@pytest.mark.parametrize("name", presets.names())
def test_a_preset_becomes_params(name: str) -> None:
    assert main(["preset", name]) == 0
    assert configuration.load(Path("params.yaml")) == presets.load(name).config


def test_who_writes_params_elsewhere_is_told_so(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["preset", "phrasebook"]) == 0
    assert (
        "no dvc.yaml here to run it: call this in the project's folder" in capsys.readouterr().out
    )
    Path("dvc.yaml").touch()
    assert main(["preset", "phrasebook"]) == 0
    assert "params.yaml is now phrasebook; `dvc repro` runs it" in capsys.readouterr().out


def test_an_edited_params_is_overwritten_by_force_alone(
    capsys: pytest.CaptureFixture[str],
) -> None:
    params = Path("params.yaml")
    assert main(["preset", "phrasebook"]) == 0
    assert main(["preset", "multi30k-en-de"]) == 0
    written = params.read_text()
    for edited in (written.replace("layers: ", "layers: 1"), written + "# mine\n", "broken: ["):
        params.write_text(edited)
        capsys.readouterr()
        assert main(["preset", "phrasebook"]) == 2
        (line,) = capsys.readouterr().err.splitlines()
        assert line.startswith("seq2sweep preset: params.yaml ")
        assert "--force" in line
        assert params.read_text() == edited
    # Of before there were the keys that are comments now, some of them, and a section of its own.
    start, end = written.index("# TYPES OF LAYER"), written.index("# WHERE IT RUNS")
    for before in (
        re.sub("(?m)^ +# .*\n", "", written),
        re.sub("(?m)^  # norm_kind.*\n", "", written),
        re.sub("(?m)^    # valid_pairs.*\n", "", written),
        written[:start] + written[end:],
        re.sub("(?m)^ +# .*\n", "", written[:start] + written[end:]),
        # And of before the help of other keys was reworded.
        _with_earlier_comments(written),
    ):
        assert before != written
        params.write_text(before)
        assert configuration.load(params) == presets.load("multi30k-en-de").config
        assert main(["preset", "phrasebook"]) == 0
    params.write_text("broken: [")
    assert main(["preset", "phrasebook", "--force"]) == 0
    assert configuration.load(params) == presets.load("phrasebook").config


def _with_earlier_comments(written: str) -> str:
    """All that are noted, each of them a comment that is written today."""
    help_texts = configuration.help_texts()
    for before, key in presets.EARLIER_COMMENTS.items():
        now = help_texts[key]
        assert f"# {now}\n" in written
        assert now != before
        written = written.replace(f"# {now}\n", f"# {before}\n")
    return written


@pytest.mark.parametrize(
    ("key", "before"),
    [
        (
            "cluster.job_server",
            "http://host:8265 of a cluster: train and sweep run there as jobs; null: here",
        ),
        ("train.tokens_per_pass", "tokens a worker computes at once; more is done by accumulation"),
    ],
)
def test_a_params_of_before_a_comment_was_reworded_is_unedited(key: str, before: str) -> None:
    written = configuration.dump(presets.load("multi30k-en-de").config)
    earlier = written.replace(f"# {configuration.help_texts()[key]}\n", f"# {before}\n")
    assert earlier != written
    Path("params.yaml").write_text(earlier)
    assert presets.is_unchanged(Path("params.yaml"))


def test_a_command_of_another_folders_code_does_nothing_here(
    capsys: pytest.CaptureFixture[str],
) -> None:
    Path("src/seq2sweep").mkdir(parents=True)
    assert main(["preset", "phrasebook"]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("seq2sweep preset: this Python has the seq2sweep of ")
    assert not Path("params.yaml").exists()


def test_values_can_be_set() -> None:
    arguments = ["--set", "model.heads=8", "--set", "train.learning_rate_scale=1e-1"]
    assert main(["preset", "phrasebook", *arguments]) == 0
    config = configuration.load(Path("params.yaml"))
    assert config.model.heads == 8
    assert config.train.learning_rate_scale == 0.1


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["phrasebok"], "did you mean phrasebook?"),
        (["phrasebook", "--set", "model.head=8"], "unknown key model.head, did you mean"),
        (["phrasebook", "--set", "model.heads"], "KEY=VALUE"),
        (["phrasebook", "--set", "model.heads=many"], "model.heads must be a whole number"),
        (["phrasebook", "--set", "model.heads=["], "model.heads=[ line 1: not valid YAML ("),
        (["phrasebook", "--set", "data.source=2020-13-45"], "not valid YAML (month must be in"),
        (["phrasebook", "--set", "train.steps=0500"], "(a number with a leading zero or a colon)"),
        (["phrasebook", "--set", "data.target=German"], "data.target must be a code of two"),
        (
            ["phrasebook", "--set", "train.steps=600", "--set", "evaluate.checkpoint_steps=[300]"],
            "keeps (400, 450, 500, 550, 600)",
        ),
        (["phrasebook", "--set", "evaluate.checkpoint_steps=[true]"], "a list of whole numbers"),
        (["phrasebook", "--set", "=3"], "KEY=VALUE"),
        (["--set", "model.heads=8"], "needs the name of a preset"),
    ],
)
def test_a_mistake_is_one_line_and_status_2(
    arguments: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert message in refusal(capsys, "preset", *arguments)
    assert not Path("params.yaml").exists()


def test_score_reads_plain_and_gz(capsys: pytest.CaptureFixture[str]) -> None:
    lines = ["Das ist ein kleines Haus am See.", "Der E-Mail-Verkehr ruht seit gestern Abend."]
    Path("a.txt").write_text("\n".join(lines) + "\n", encoding="utf-8")
    Path("b.txt.gz").write_bytes(gzip.compress(("\n".join(lines) + "\n").encode()))
    assert main(["score", "a.txt", "b.txt.gz", "--to", "de"]) == 0
    result = json.loads(capsys.readouterr().out)
    assert result["bleu"]["sacrebleu"]["score"] == pytest.approx(100)
    assert result["bleu"]["paper"]["score"] == pytest.approx(100)
    assert result["chrf"]["score"] == pytest.approx(100)


def test_score_lower_cases_as_a_run_does(capsys: pytest.CaptureFixture[str]) -> None:
    """A run with prepare.lowercase against a reference in any case: Moses knows `Dr.`, not `dr.`"""
    reference = ["Dr. Müller kommt am Montag.", "Der E-Mail-Verkehr ruht seit gestern Abend."]
    output = [reference[0].lower(), "der e-mail-verkehr ruht seit heute abend."]
    for name, lines in (("out", output), ("ref", reference), ("low", map(str.lower, reference))):
        Path(name).write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    found = []
    for name in ("ref", "low"):
        assert main(["score", "out", name, "--to", "de", "--lowercase"]) == 0
        found.append(json.loads(capsys.readouterr().out))
    assert found[0] == found[1]
    assert found[0]["exact_match"] == 50
    assert "case:lc" in found[0]["bleu"]["sacrebleu"]["signature"]
    assert main(["score", "out", "low", "--to", "de"]) == 0
    mixed = json.loads(capsys.readouterr().out)
    for way in ("sacrebleu", "paper"):
        assert mixed["bleu"][way]["score"] == found[0]["bleu"][way]["score"]


def test_score_says_what_is_wrong(capsys: pytest.CaptureFixture[str]) -> None:
    Path("a.txt").write_text("one\ntwo\n")
    Path("b.txt").write_text("one\n")
    assert main(["score", "a.txt", "b.txt", "--to", "de"]) == 2
    assert main(["score", "a.txt", "nowhere.txt", "--to", "de"]) == 2
    error = capsys.readouterr().err
    assert error.count("\n") == 2
    assert "nowhere.txt" in error


@pytest.mark.parametrize("command", sorted(commands.COMMANDS))
def test_every_example_of_the_help_can_be_typed(
    command: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit):
        main([command, "--help"])
    shown = capsys.readouterr().out
    assert commands.examples(command)
    for line in commands.examples(command):
        assert line in shown
        # zsh has no command where such a character, outside quotes, matches no file.
        assert not set("[]*?") & set(re.sub(r"'[^']*'|\"[^\"]*\"", "", line))
        words = shlex.split(line.rpartition(" | ")[2])
        assert words[:2] == ["seq2sweep", command]
        assert parser().parse_args(words[1:]).command == command


def test_every_command_is_completed_and_works(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["--print-completion", "bash"])
    assert ended.value.code == 0
    script = capsys.readouterr().out
    assert sum(len(commands.examples(name)) for name in commands.COMMANDS) == len(commands.EXAMPLES)
    assert all(command in script for command in commands.COMMANDS)
    assert "--n-best" in script
    subprocess.run(["bash", "-n"], input=script, text=True, check=True)


def test_the_version_is_that_of_the_package(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["--version"])
    assert ended.value.code == 0
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    assert capsys.readouterr().out == f"seq2sweep {project['version']}\n"


def test_a_folder_that_is_not_installed_works() -> None:
    # As in a job: the package is in its working folder, its metadata nowhere.
    code = (
        "import importlib.metadata as m\n"
        "def missing(name): raise m.PackageNotFoundError(name)\n"
        "m.version = missing\n"
        "from seq2sweep.cli import main; main(['preset'])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")


def test_table1_is_measured_into_a_folder(capsys: pytest.CaptureFixture[str]) -> None:
    few = ["table1.layers=[self_attention, recurrent]", "table1.lengths=[4, 8]"]
    few += ["table1.widths=[4, 8]", "table1.repeats=3"]
    assert main(["table1", "here", *(word for one in few for word in ("--set", one))]) == 0
    out, err = capsys.readouterr()
    assert out.startswith("# Table 1, measured\n")
    assert "here holds this as table1.csv, table1.html, table1.json, table1.md, table1.tex" in out
    record = json.loads(Path("here/table1.json").read_text(encoding="utf-8"))
    assert record["settings"]["widths"] == [4, 8]
    # What is not set is that of the whole set, not of the stage.
    assert record["settings"]["kernel"] == 3
    assert "Traceback" not in err


def test_table1_shows_what_it_cannot_write(capsys: pytest.CaptureFixture[str]) -> None:
    Path("here/table1.csv").mkdir(parents=True)
    few = ["layers=[self_attention]", "lengths=[4, 8]", "widths=[4, 8]", "repeats=3"]
    assert main(["table1", "here", *(w for one in few for w in ("--set", f"table1.{one}"))]) == 2
    out, err = capsys.readouterr()
    assert out.startswith("# Table 1, measured\n")
    assert err.splitlines()[-1].startswith("seq2sweep table1: ")
    assert json.loads(Path("here/table1.json").read_text("utf-8"))["settings"]["repeats"] == 3


def test_table1_is_written_whose_reader_has_gone(monkeypatch: pytest.MonkeyPatch) -> None:
    class Gone(io.StringIO):
        def write(self, text: str) -> int:
            raise BrokenPipeError

    monkeypatch.setattr(sys, "stdout", Gone())
    few = ["layers=[self_attention]", "lengths=[4, 8]", "widths=[4, 8]", "repeats=3"]
    assert main(["table1", "here", *(w for one in few for w in ("--set", f"table1.{one}"))]) == 0
    assert len(list(Path("here").iterdir())) == 5


@pytest.mark.parametrize(
    ("assignment", "message"),
    [
        ("table1.kernel=2", "--set: table1.kernel must be an odd number from 3 to 4095"),
        ("table1.kernels=3", "did you mean table1.kernel?"),
        ("model.heads=2", "--set model.heads: only keys of table1 are measured"),
        ("table1.layers=[ltsm]", "did you mean lstm?"),
    ],
)
def test_table1_refuses_in_one_line(
    assignment: str, message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert message in refusal(capsys, "table1", "--set", assignment)
    assert not Path("reports").exists()


def test_a_command_whose_ray_has_died_leaves_at_once(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Python's own end would crash (SIGSEGV), in place of the status."""

    class UncleanError(OperationalError):
        unclean = True

    def work(options: object) -> None:
        raise UncleanError("Ray has died")

    left: list[int] = []
    monkeypatch.setattr("os._exit", left.append)
    monkeypatch.setitem(commands.COMMANDS, "plan", (commands.COMMANDS["plan"][0], work))
    assert main(["plan"]) == 1
    assert left == [1]
    assert capsys.readouterr().err == "seq2sweep plan: Ray has died\n"
