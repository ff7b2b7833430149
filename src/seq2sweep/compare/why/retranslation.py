"""What a run's settings of decoding cost it: its weights translate the test set again.

The settings of `evaluate` are those of the paper's base or big model, or of another run.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from seq2sweep import config as configuration
from seq2sweep import presets
from seq2sweep.compare.scored_run import NotComparableError, ScoredRun
from seq2sweep.compare.why.text_causes import CUT
from seq2sweep.compare.why.waterfall import Cause, Texts
from seq2sweep.config import EvaluateConfig, ModelConfig
from seq2sweep.data.bitext import read_training_header
from seq2sweep.data.files import MANIFEST, SIDES, text_name
from seq2sweep.data.reading import read_lines
from seq2sweep.data.vocabulary import Vocabulary
from seq2sweep.decode.average import average, build
from seq2sweep.decode.beam import translate
from seq2sweep.decode.exported_weights import choose
from seq2sweep.errors import UserError
from seq2sweep.evaluate.bleu import base_language
from seq2sweep.project_files import CLEAN, ENCODED, VOCABULARY
from seq2sweep.runs import layout
from seq2sweep.storage.atomic import sha256

CONTAMINATION, AVERAGING, BATCH = "contamination", "averaging", "effective batch"
DECODING: Mapping[str, Sequence[str]] = {
    AVERAGING: ("average_checkpoints", "checkpoints", "checkpoint_steps"),
    "beam": ("beam",),
    "penalty": ("length_penalty", "alpha"),
    "stopping": ("stopping",),
    "precision": ("precision",),
    CUT: ("max_extra_tokens", "max_input_tokens"),
}
"""Keys of `evaluate` by cause."""
BIG = 1024
"""d_model from which a model is compared with the paper's big one."""


def papers_row(run: ScoredRun | None) -> str:
    """`base`, or `big` for a run of its width."""
    width = 0 if run is None else run.config.get("model", {}).get("d_model", 0)
    return "big" if width >= BIG else "base"


def papers_config(row: str, target: str) -> dict[str, Any]:
    """Sections of params.yaml as the paper has them; target: code such as `fr` or `fr-CA`."""
    pair = "en-fr" if base_language(target) == "fr" else "en-de"
    return configuration.to_dict(presets.load(f"wmt14-{pair}-{row}").config)


class Retranslation:
    """A run's weights, vocabulary and test set, to be decoded with other settings.

    Raises NotComparableError where one of them is not there any more.
    """

    def __init__(
        self,
        run: ScoredRun,
        texts: Texts,
        wanted: Mapping[str, Any],
        on_start: Callable[[int], object],
        on_done: Callable[[int], object],
    ) -> None:
        """texts: as they were scored; wanted: sections of which `evaluate` is compared with;
        on_start hears how many sentences are translated again, on_done how many more are."""
        if "evaluate" not in run.config or "evaluate" not in wanted:
            raise NotComparableError("the settings of decoding are not known of both")
        self._run, self._texts, self._wanted = run, texts, wanted["evaluate"]
        self._on_start, self._on_done = on_start, on_done
        self._own = _evaluate(run.config["evaluate"])
        self._files(self._own)
        folder = run.project / VOCABULARY
        try:
            self._vocabulary = Vocabulary.open(folder)
        except UserError as error:
            raise NotComparableError(str(error)) from None
        if run.lineage.get("data.vocabulary") != self._vocabulary.fingerprint:
            raise NotComparableError(f"{folder} is not the vocabulary that it was trained with")
        self._sources = self._read_sources()

    def causes(self) -> Iterator[Cause]:
        """Settings that differ, and can be changed without training again.

        Their `undo` does nothing: `texts` is asked for all that are undone.
        """
        for name, keys in DECODING.items():
            own, wanted = (_section(self._config(names), keys) for names in ([], [name]))
            changed = [key for key in keys if own[key] != wanted[key]]
            shown = ", ".join(
                f"{key} {_shown(own[key])} → {_shown(wanted[key])}" for key in changed
            )
            if name == AVERAGING and changed:
                files = self._wanted_files()
                if isinstance(files, str) or files == self._files(self._own):
                    continue
                if len(files) < wanted["average_checkpoints"] and not wanted["checkpoint_steps"]:
                    shown += f", of which {len(files)} were kept"
            if changed:
                yield Cause(name, f"translated again with {shown}", lambda given: given)

    def untested(self) -> dict[str, str]:
        """Averaging, where it differs but takes the very same weights, or such as are not here."""
        wanted, own = self._wanted["average_checkpoints"], self._files(self._own)
        files = self._wanted_files()
        if isinstance(files, str):
            return {AVERAGING: files}
        if len(own) == wanted or files != own:
            return {}
        why = f"{len(own)} checkpoints are averaged, not {wanted}, and no more were kept"
        return {AVERAGING: why}

    def texts(self, undone: Collection[str] = ()) -> Texts:
        """Translations with the settings of these causes as wanted, all others the run's own."""
        changed = {cause.name for cause in self.causes()}
        return self._again(frozenset(undone) & changed)

    def _wanted_files(self) -> list[Path] | str:
        """Weights to average as wanted, or why they are not to be had."""
        try:
            return self._files(self._config([AVERAGING]))
        except NotComparableError as error:
            return str(error)

    @functools.cache  # noqa: B019
    def _again(self, names: frozenset[str]) -> Texts:
        config, run = self._config(names), self._run
        model = configuration.section(ModelConfig, run.config["model"], "model.")
        self._on_start(len(self._sources))
        found = translate(
            build(model, average(self._files(config)), len(self._vocabulary)),
            self._vocabulary,
            self._sources,
            config,
            None,
            self._on_done,
        )
        return Texts([best[0].text for best in found], self._texts.references)

    def _config(self, names: Collection[str]) -> EvaluateConfig:
        keys = [key for name in names for key in DECODING[name]]
        return dataclasses.replace(self._own, **_section(_evaluate(self._wanted), keys))

    @functools.cache  # noqa: B019
    def _files(self, config: EvaluateConfig) -> list[Path]:
        folder = self._run.weights
        if folder is None or not folder.is_dir():
            raise NotComparableError(f"the weights of {self._run.name} are not here")
        if (folder / layout.JOURNAL_NAME).exists():  # of a trial
            return [path / "model.safetensors" for path in _of_trial(folder, config)]
        if (folder / MANIFEST).exists():
            raise NotComparableError(
                f"{folder} has the mean of its checkpoints alone: name the folder of the training"
            )
        try:
            return [weights.file for weights in choose(folder, config)]
        except UserError as error:
            raise NotComparableError(str(error)) from None

    def _read_sources(self) -> list[str]:
        scores = self._run.scores
        test_set = scores and scores.test_set
        if not test_set:
            raise NotComparableError(str(self._run.unknown))
        path = self._run.project / CLEAN / text_name(test_set["split"], "source")
        if not path.is_file() or sha256(path) != test_set["source"]:
            raise NotComparableError(f"{path} is not what was translated: run `dvc repro`")
        return [*read_lines(path)]


def _of_trial(folder: Path, config: EvaluateConfig) -> list[Path]:
    """The checkpoints of a trial that are averaged."""
    kept = {
        layout.checkpoint_step(path): path
        for path in layout.checkpoints(folder)
        if layout.is_regular(path)
    }
    if not kept:
        raise NotComparableError(f"{folder} has no checkpoint")
    if missing := sorted({*config.checkpoint_steps} - {*kept}):
        raise NotComparableError(f"{folder} has no checkpoint of step {missing[0]}")
    if config.checkpoint_steps:
        return [kept[step] for step in sorted({*config.checkpoint_steps})]
    if config.checkpoints == "best":
        raise NotComparableError("a trial keeps its newest checkpoints, and not its best")
    return [*kept.values()][-config.average_checkpoints :]


def _evaluate(values: Mapping[str, Any]) -> EvaluateConfig:
    config: EvaluateConfig = configuration.section(EvaluateConfig, values, "evaluate.")
    return config


def _section(config: EvaluateConfig, keys: Sequence[str]) -> dict[str, Any]:
    return {key: getattr(config, key) for key in keys}


def _shown(value: Any) -> str:
    return str([*value]) if isinstance(value, tuple) else str(value)


def _texts_of_training(run: ScoredRun) -> dict[str, str]:
    """The sha256 of each side's text that a run was trained on."""
    encoded = run.project / ENCODED
    try:
        header = read_training_header(encoded)
    except UserError as error:
        raise NotComparableError(str(error)) from None
    if run.lineage.get("data.dataset") != header["fingerprint"]:
        raise NotComparableError(f"{encoded} is not the data that it was trained on")
    texts: dict[str, str] = header["text"]
    return texts


def contamination(*runs: ScoredRun) -> tuple[list[Cause], str]:
    """Sentences of the test set that one of the runs was trained on: they are left out of the
    score; and of which runs that is not known, and why, or "".

    Such a pair has the source or the target of one that was tested, as in `prepare.drop`. No cause
    where there are none. runs: of one test set.
    """
    seen, count, unknown = set[int](), 0, list[str]()
    several = len(runs) > 1
    for run in runs:
        try:
            of_run, count = _seen(run)
            seen |= of_run
        except NotComparableError as error:
            unknown.append(f"of {run.name}: {error}" if several else str(error))
    why = "; ".join(unknown)
    kept = [i for i in range(count) if i not in seen]
    if not seen:
        return [], why
    if not kept:
        return [], "; ".join([*unknown, "every sentence is in the training text"])

    def undo(given: Texts) -> Texts:
        return Texts(*([lines[i] for i in kept] for lines in vars(given).values()))

    evidence = (
        f"{len(seen)} of {count} sentences are in the training text{' of one of the two' * several}"
        f", and are left out{f' ({why})' * bool(why)}"
    )
    return [Cause(CONTAMINATION, evidence, undo)], why


def _seen(run: ScoredRun) -> tuple[set[int], int]:
    """Which sentences of its test set a run was trained on, and of how many. Raises
    NotComparableError where either text is not there, or is another."""
    test_set = run.scores and run.scores.test_set
    if not test_set:
        raise NotComparableError(str(run.unknown))
    clean, seen = run.project / CLEAN, set[int]()
    trained = _texts_of_training(run)
    for side in SIDES:
        path, tested = clean / text_name("train", side), clean / text_name(test_set["split"], side)
        if not path.is_file() or not tested.is_file():
            missing = tested if path.is_file() else path
            raise NotComparableError(f"{missing} is missing: run `dvc checkout data/clean`")
        if sha256(tested) != test_set[side]:
            raise NotComparableError(f"{tested} is not what was scored: run `dvc repro`")
        if sha256(path) != trained[side]:
            raise NotComparableError(f"{path} is not what it was trained on: run `dvc repro`")
        lines = [*read_lines(tested)]
        wanted = set(lines)
        trained_on = {line for line in read_lines(path) if line in wanted}
        seen |= {i for i, line in enumerate(lines) if line in trained_on}
    return seen, len(lines)
