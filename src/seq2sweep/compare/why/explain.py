"""Why a BLEU score is what it is: `seq2sweep why`.

Nothing is guessed: a cause has a share where it was undone on the same output and scored again, and
all else is listed as not tested, with what it would take.
"""

from __future__ import annotations

import dataclasses
import operator
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from seq2sweep.compare.runs import differences
from seq2sweep.compare.scored_run import NotComparableError, ScoredRun
from seq2sweep.compare.why import known_test_sets, line_alignment, text_causes
from seq2sweep.compare.why.line_alignment import LINE_SHIFT, MISSING, TEST_SET
from seq2sweep.compare.why.retranslation import (
    BATCH,
    CONTAMINATION,
    DECODING,
    Retranslation,
    contamination,
    papers_config,
    papers_row,
)
from seq2sweep.compare.why.waterfall import Cause, Texts, Waterfall, waterfall
from seq2sweep.config import KEEPING
from seq2sweep.config.scores import BLEU
from seq2sweep.data.reading import read_lines
from seq2sweep.errors import UserError
from seq2sweep.evaluate.bleu import (
    base_language,
    moses_tokens,
    paper_tokens,
    rounded,
    sacrebleu_metric,
    token_metric,
)
from seq2sweep.evaluate.references import read_references
from seq2sweep.presets import rivals

PAPER = "paper"
ROWS = {"base": "Transformer (base model)", "big": "Transformer (big)"}
REPEATED = "translated again"
TOKENISATION, COMPOUNDS = "tokenisation", "compound split"
ALIGNED = (LINE_SHIFT, MISSING)
"""What the alignment of lines tells."""
OF_TEXT = (TEST_SET, *ALIGNED, *text_causes.NAMES, TOKENISATION)
ALL = tuple(dict.fromkeys((*OF_TEXT, *DECODING, BATCH, CONTAMINATION)))
"""Every cause, once: each is a step, or not found, or not tested."""
OF_TRAINING = ("data.dataset", "prepare.", "vocabulary.", "model.", "train.")
"""What begins the keys of params.yaml that make another training."""
MINOR = ("seed", "log_every", "validate_every", "tokens_per_pass", "precision", "deterministic")
"""Keys of `train` that are no setting of the paper's."""

OnProgress = Callable[[int], object]
OTHER_LINES = "the references are those of another test set"
Untested = dict[str, str]
"""By cause or key, why it was not tested."""


@dataclass(frozen=True)
class Output:
    """What is explained: texts of a file or of a run, and in which language they are.

    source: the language translated from, where it is known.
    """

    name: str
    texts: Texts
    target: str
    source: str | None
    lowercase: bool = False
    run: ScoredRun | None = None

    def score(self, texts: Texts) -> float:
        """sacreBLEU of texts as they are, 0 to 100."""
        metric = sacrebleu_metric(self.language, texts.references, self.lowercase)
        return float(metric.corpus_score(texts.hypotheses, None).score)

    @property
    def language(self) -> str:
        """The code of two letters."""
        return base_language(self.target)


def read_output(hypothesis: Path, reference: str, target: str, source: str | None) -> Output:
    """Of files, whose numbers of lines may differ; `reference` as `read_references` has it."""
    references, _ = read_references(reference, target, source)
    return Output(str(hypothesis), Texts([*read_lines(hypothesis)], references), target, source)


def output_of(run: ScoredRun) -> Output:
    """Of a run with one training. Raises UserError where its translations are not here."""
    if run.score != BLEU:
        raise UserError(f"{run.name} is scored by {run.score.label}: only BLEU is explained")
    if run.scores is None or run.scores.test_set is None:
        raise UserError(f"{run.name} has no known score: {run.unknown}")
    if len(run.scores.each) > 1:
        one = f"{run.name} seed={run.config['train']['seed'][0]}"
        raise UserError(f"{run.name} has several trainings: name one, such as '{one}'")
    try:
        (translations,), references = run.scores.texts()
    except NotComparableError as error:
        raise UserError(str(error)) from None
    test_set, source = run.scores.test_set, run.config["data"]["source"]
    texts = Texts(translations, references)
    return Output(run.name, texts, test_set["to"], source, test_set["lowercase"], run)


def explain(
    output: Output,
    against: Output | str | None = None,
    on_start: OnProgress = lambda sentences: None,
    on_done: OnProgress = lambda sentences: None,
) -> dict[str, Any]:
    """The waterfall of causes.

    against: PAPER, whose figure of this language pair is where it ends, or another output, whose
    score is; None: nowhere, and settings of decoding are compared with the paper's. on_start hears
    how many sentences are translated again, on_done how many more are.

    Returns `name`, `bleu` with its `signature`, `sentences` and `test_set`, null where it is not
    known; `translations`, as many unless lines are missing or too many; `steps`: {cause, share,
    bleu, evidence, estimate}, bleu after each; `not_found`, names of what was looked for and has no
    effect; `not_tested`, {cause or key: why}; `against`: null or {name, bleu, steps, left}. `bleu`,
    all shares less those of `against.steps`, and `left`, which is not explained, add up to
    `against.bleu`. Raises UserError where `against` cannot be compared with.
    """
    untested: Untested = {}
    if isinstance(against, Output):
        _require_same_score(output, against)
    figure = _papers_figure(output) if against == PAPER else None  # before anything that takes long
    left_out, why = contamination(*_trained_alike(output, against))
    if why:
        untested[CONTAMINATION] = why
    found = _found(output, against, left_out, untested, on_start, on_done)
    steps, goal = [*found.steps], None
    if figure is not None:
        more, goal = _paper(output, figure, found, untested)
        steps += more
    elif isinstance(against, Output):
        goal = _other(output, found, against, left_out, untested)
    if against != PAPER:
        untested[TOKENISATION] = "scores are all of sacreBLEU's tokens; --against paper tests it"
    there = {step["cause"] for step in steps}
    test_set = known_test_sets.known(output.texts.references)
    return {
        "name": output.name,
        "bleu": found.bleu,
        "signature": str(sacrebleu_metric(output.language, [""], output.lowercase).get_signature()),
        "sentences": len(output.texts.references),
        "translations": len(output.texts.hypotheses),
        "test_set": test_set,
        "steps": steps,
        "not_found": [name for name in ALL if name not in there | untested.keys()],
        "not_tested": {name: why for name, why in untested.items() if name not in there},
        "against": goal,
    }


def _require_same_score(output: Output, other: Output) -> None:
    """Raises UserError where the BLEU of one is of another kind than that of the other."""
    for key in ("language", "lowercase"):
        ours, theirs = (getattr(one, key) for one in (output, other))
        if ours != theirs:
            raise UserError(
                f"their BLEU is not the same: {key} is {ours} for {output.name}, {theirs} for "
                f"{other.name}"
                + "; `seq2sweep score --lowercase` scores translations of both by one reference"
                * (key == "lowercase")
            )


def _found(
    output: Output,
    against: Output | str | None,
    left_out: list[Cause],
    untested: Untested,
    on_start: OnProgress,
    on_done: OnProgress,
) -> Waterfall:
    """The causes in an output, and in `untested` those that could not be looked for.

    left_out: the cause of `contamination`.
    """
    if output.run is None:
        why = "text does not tell: give the run in place of the file"
        of_decoding = [name for name in DECODING if name != text_causes.CUT]
        untested |= dict.fromkeys([*of_decoding, BATCH, CONTAMINATION], why)
        return waterfall(lambda undone: output.texts, _in_text(output, untested), output.score)
    wanted = _compared(output.run, against)
    untested |= _trainings(output.run, wanted)
    causes, again = list[Cause](), None
    try:
        again = Retranslation(output.run, output.texts, wanted.config, on_start, on_done)
        causes += again.causes()
        untested |= again.untested()
    except NotComparableError as error:
        untested |= dict.fromkeys(DECODING, str(error))
    decoding = {cause.name for cause in causes}
    causes += [cause for cause in _in_text(output, untested) if cause.name not in decoding]
    causes += left_out  # last: it takes lines away that others count
    if again is None or not decoding:
        return waterfall(lambda undone: output.texts, causes, output.score)
    found = waterfall(again.texts, causes, output.score)
    before = rounded(output.score(output.texts))
    changed = sum(map(operator.ne, output.texts.hypotheses, again.texts().hypotheses))
    if changed:
        share = rounded(found.bleu - before)
        evidence = f"{changed} translations come out different here, with the same settings"
        step = {"cause": REPEATED, "share": share, "bleu": found.bleu, "evidence": evidence}
        found.steps.insert(0, step | {"estimate": False})
    return dataclasses.replace(found, bleu=before)


def _trained_alike(output: Output, other: Output | str | None) -> list[ScoredRun]:
    """The runs whose training text tells what is left out: of both, where the score of one is
    compared with that of the other, on the same sentences."""
    runs = [output.run]
    if isinstance(other, Output) and other.texts.references == output.texts.references:
        runs.append(other.run)
    return [run for run in runs if run is not None]


def _in_text(output: Output, untested: Untested) -> list[Cause]:
    """What the lines themselves show."""
    causes = [*_of_lines(output, untested)]
    texts = output.texts
    for cause in causes:
        texts = cause.undo(texts)
    texts = texts.aligned()
    untested.update(_not_shown(texts, output.lowercase))
    ended = sum(text_causes.ENDING.search(line) is not None for line in texts.references)
    if output.run is None and 20 * ended < len(texts.references):
        untested[text_causes.CUT] = "hardly a reference ends with a mark that would be missing"
    return [*causes, *text_causes.find(texts, output.target)]


def _not_shown(texts: Texts, lowercase: bool) -> Iterator[tuple[str, str]]:
    """Causes that these lines cannot show, and why. lowercase: whether they are scored in lower
    case."""
    text = "".join((*texts.hypotheses, *texts.references))
    letters = [*filter(str.isalpha, text)]
    cased = sum(letter.upper() != letter.lower() for letter in letters)
    if lowercase:
        yield "case", "the text was lower-cased before training, and scores are of that"
    elif 2 * cased <= len(letters):
        yield "case", "most letters here have no case"
    elif not any(map(str.isupper, letters)):
        yield "case", "both texts are in lower case, and nothing tells what it was"
    corners, others = (sum(map(text.count, marks)) for marks in ("「『", '"„“”«»'))
    if 20 * corners > corners + others:
        yield "quotes", "no blank tells where corner brackets open and close"


def _of_lines(output: Output, untested: Untested) -> Iterator[Cause]:
    """Whether lines are of this test set, and belong together."""
    texts, tried = output.texts, list[str]()
    if output.source is not None:
        better, tried = known_test_sets.find_better(
            texts, output.source, output.target, output.score
        )
        if better:
            untested |= dict.fromkeys(ALIGNED, OTHER_LINES)
            yield better
            return
    if line_alignment.too_many(texts):
        why = f"{len(texts.references)} lines are too many to be aligned"
        untested |= dict.fromkeys(ALIGNED, why)
    elif found := line_alignment.find(texts):
        if found.name == TEST_SET:
            untested |= dict.fromkeys(ALIGNED, OTHER_LINES)
        elif found.name == LINE_SHIFT and len(texts.hypotheses) < len(texts.references):
            untested[MISSING] = "lines are shifted too: those without a translation count as empty"
        yield found
    if not tried and known_test_sets.known(texts.references) is None:
        untested[TEST_SET] = "the references' sha256 is not known, nor another set cached"


def _compared(run: ScoredRun, against: Output | str | None) -> ScoredRun:
    """What a run's settings are compared with: another run, or else the paper."""
    if isinstance(against, Output):
        return against.run or run
    row = papers_row(run)
    config = papers_config(row, run.config["data"]["target"])
    return ScoredRun(f"the paper's {row}", "", BLEU, [], config, {})


def _trainings(run: ScoredRun, other: ScoredRun) -> Untested:
    """Settings that only another training would test."""
    found = {}
    for key, (ours, theirs) in differences(run, other)["parameters"].items():
        minor = key.rpartition(".")[2] in MINOR or key in KEEPING
        if key.startswith(OF_TRAINING) and not minor:
            name = BATCH if key == "train.tokens_per_update" else key
            found[name] = f"{ours}, of {other.name} {theirs}: that needs another training"
    return found


def _papers_figure(output: Output) -> tuple[str, float]:
    """The row of the paper's table that an output is compared with, and its BLEU."""
    if output.source is None:
        raise UserError("the paper's BLEU is of a pair of languages: add --from LANGUAGE")
    pair = f"{base_language(output.source)}-{output.language}"
    row = ROWS[papers_row(output.run)]
    figures = next(one.bleu for one in rivals.ROWS if one.name == row)
    if pair not in figures:
        mend = "set --from and --to" if output.run is None else "name another run by --against"
        raise UserError(f"the paper has no BLEU of {pair}, but of {', '.join(figures)}: {mend}")
    return row, figures[pair]


def _paper(
    output: Output, figure: tuple[str, float], found: Waterfall, untested: Untested
) -> tuple[list[dict[str, Any]], dict[str, Any]]:
    """Steps to the paper's way of scoring, and its figure."""
    row, papers = figure
    if known_test_sets.known(output.texts.references) != known_test_sets.PAPERS:
        untested[TEST_SET] = (
            f"whether the references are {known_test_sets.PAPERS}, which the paper's are, is not "
            "known of lower-cased text"
            if output.lowercase
            else f"the references are not {known_test_sets.PAPERS}, which the paper's are"
        )
    before, steps = found.end, []
    ways = {TOKENISATION: ("of Moses instead of sacreBLEU's 13a", moses_tokens)}
    if output.language == "de":
        ways[COMPOUNDS] = ("split at hyphens in the score", paper_tokens)
    for name, (how, tokens) in ways.items():
        ours, theirs = (tokens(lines, output.language) for lines in vars(found.texts).values())
        score = token_metric(theirs, output.lowercase).corpus_score(ours, None).score
        bleu = rounded(score)
        about = {"evidence": how, "estimate": False}
        steps.append({"cause": name, "share": rounded(bleu - before), "bleu": bleu, **about})
        before = bleu
    goal = {"name": f"the paper's {row}", "bleu": papers, "steps": []}
    return steps, goal | {"left": rounded(papers - before)}


def _other(
    output: Output, found: Waterfall, other: Output, left_out: list[Cause], untested: Untested
) -> dict[str, Any]:
    """The score of another output, and what is to be undone there.

    left_out: the cause of `contamination`, on the same sentences.
    """
    causes = _in_text(other, {})
    if output.texts.references != other.texts.references:
        untested[TEST_SET] = f"{other.name} is scored against other references"
        if other.run is not None:
            left_out, why = contamination(other.run)
            if why:
                untested[CONTAMINATION] = f"of {other.name}: {why}"
    if other.run is not None:
        causes = [*causes, *left_out]
    theirs = waterfall(lambda undone: other.texts, causes, other.score)
    left = rounded(theirs.end - found.end)
    return {"name": other.name, "bleu": theirs.bleu, "steps": theirs.steps, "left": left}
