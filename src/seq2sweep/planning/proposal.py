"""What params.yaml should say for a corpus of one's own: splits, sizes, steps, each with a reason.

Sizes are those of the preset for about so much text; steps keep its number of epochs. They are
where to begin from, not what was found best.
"""

from __future__ import annotations

import math
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from seq2sweep import config as configuration
from seq2sweep import presets
from seq2sweep.config import Config
from seq2sweep.data import sources
from seq2sweep.data.files import SPLITS
from seq2sweep.data.own import hold_out, own_files
from seq2sweep.data.own.discovery import Found
from seq2sweep.data.own.hold_out import Sentences
from seq2sweep.errors import UserError
from seq2sweep.jobs import dvc_stages
from seq2sweep.parallel import available_cpus
from seq2sweep.planning.workload import CHARACTERS_A_PIECE

Places = NDArray[np.uint32]


@dataclass(frozen=True)
class Size:
    """For so many different training pairs, and more. epochs: of the preset on its own data."""

    pairs: int
    preset: str
    model_of: str
    epochs: int


SIZES = (
    Size(1_000_000, "base", "base", 20),  # 100 000 x 25 000 tokens, of 4.5M pairs of 28
    Size(100_000, "base", "table3-C-d_model-256", 20),
    Size(0, "multi30k-en-de", "multi30k-en-de", 13),  # 2300 x 2500 tokens, of 29 000 pairs of 15
)
LEAST_WARMUPS = 4
"""Steps of a training are at least so many times those of its warm-up."""
OFTEN = 10
"""Times the preset's epochs: said of more of them is that they are too many."""
SEEN = 100
"""How often a piece of the vocabulary occurs on average, at least."""
LEAST_PIECES = 200
PIECES_A_CHARACTER = 2
"""At least, of those that occur: each is a piece, with `vocabulary.character_coverage` 1."""
SHARE, MOST = 20, 3000
"""Held out for validation, and for the test, is one in so many pairs, but no more than WMT has."""
LEAST_DIFFERENT = 4
MANY_ENTRIES = 50
CPU_TOKENS = 4000
"""At once, where no GPU is: of the root preset."""


@dataclass(frozen=True)
class Proposal:
    """lines: what was found, and why what is proposed, for a person."""

    config: Config
    lines: list[str]


def propose(found: Found, project: Path) -> Proposal:
    """Read the corpus through, with progress bars, and size an experiment on it.

    project: the folder with params.yaml; of devices those of this machine are looked at. Raises
    UserError for a corpus that cannot be used.
    """
    folder = _folder(found.folder, project)
    sources.check_names(found.folder)
    changes: dict[str, Any] = {
        "data.dataset": "files",
        "data.folder": folder,
        "data.source": found.languages[0],
        "data.target": found.languages[1],
        **{f"data.files.{split}": list(names) for split, names in found.files.items()},
    }
    asked = [split for split in ("valid", "test") if split not in found.files]
    held = {f"data.files.{split}_pairs": 1 for split in asked}  # how many, the text says
    root = configuration.with_changes(presets.load("phrasebook").config, changes | held)
    read = {
        split: hold_out.of_split(root.data, split, corpora)
        for split, corpora in own_files.named(root.data).items()
    }
    train = read["train"]
    _check(train, found)
    places = _places(found, read, asked)
    changes |= {f"data.files.{split}_pairs": len(places[split]) for split in asked}
    lines, pairs = _about_splits(found, read, places)
    sized, why = _sized(pairs, train)
    lines += [f"  {name} is not used: its name is of no split" for name in found.unused]
    lines += [
        f"  {name}{f' and {more} more' if more else ''}, which the other names count, "
        f"{'are' if more else 'is'} not there: what is there is used"
        for name, more in found.absent
    ]
    if (entries := len(list(found.folder.iterdir()))) > MANY_ENTRIES:
        lines.append(
            f"  {found.folder} has {entries} entries, and DVC watches them all: a folder of the "
            "corpus alone is quicker"
        )
    preset = presets.load(sized.pop("preset")).config
    config = configuration.with_changes(preset, changes | sized)
    return Proposal(config, lines + why)


def _folder(folder: Path, project: Path) -> str:
    """`data.folder`, relative where it is inside the project.

    Raises UserError where DVC, which watches all of it, would find what it makes itself.
    """
    whole, here = folder.resolve(), project.resolve()
    made = [here]
    if (project / "dvc.yaml").exists():
        names = dvc_stages.described(project)
        made += [here / out for name in names for out in dvc_stages.outputs(project, name)]
    for path in made:
        if path.is_relative_to(whole):
            held = "this project" if path == here else os.path.relpath(path)
            raise UserError(
                f"{folder} holds {held}, and DVC watches all of data.folder: move "
                "the corpus into a folder of its own, such as corpora/mine"
            )
    return os.path.relpath(whole, here) if whole.is_relative_to(here) else str(whole)


def _check(train: Sentences, found: Found) -> None:
    named = _named(found, "train")
    if not len(train):
        raise UserError(
            f"none of {train.pairs:,} pairs of {named} can be trained on: a side is empty or too "
            "long, both are the same, or of another language's script"
        )
    if np.array_equal(train.source, train.target):
        raise UserError(f"{named} hold the same text")
    if train.different < LEAST_DIFFERENT and len(found.files) < len(SPLITS):
        raise UserError(
            f"{named} have {train.different:,} different sentences: to hold some out there must be "
            f"{LEAST_DIFFERENT} on each side, or files of each split"
        )


def _held_out(different: int) -> int:
    return max(1, min(MOST, different // SHARE))


def _places(found: Found, read: Mapping[str, Sentences], asked: Sequence[str]) -> dict[str, Places]:
    """Where in train the pairs of the splits without files, `asked`, are: of the others, nowhere.

    Where so many cannot be held out, half as many, and so on. Raises UserError if none can.
    """
    train = read["train"]
    given = [sentences for split, sentences in read.items() if split != "train"]
    wanted = _held_out(train.different)
    valid, test = (wanted * (split in asked) for split in ("valid", "test"))
    while True:
        try:
            return hold_out.held_out(train, valid, test, given)
        except hold_out.TooFewError:
            if max(valid, test) <= 1:
                break
            valid, test = (valid + 1) // 2, (test + 1) // 2
    names = " and ".join(f"{split}.{code}" for split in asked for code in found.languages)
    raise UserError(
        f"too few of {train.pairs:,} pairs of {_named(found, 'train')} can be held out, as their "
        "sentences are in many other pairs, in another split or in other upper and lower case: put "
        f"{names} beside them ({' and '.join(f'{split}.parquet' for split in asked)} beside a "
        "table), and name their folder"
    )


def _about_splits(
    found: Found, read: Mapping[str, Sentences], places: Mapping[str, Places]
) -> tuple[list[str], int]:
    """A line on each split and on each leak, and how many different pairs training keeps."""
    train = read["train"]
    given = {split: sentences for split, sentences in read.items() if split != "train"}
    others = given | {split: train.at(places[split]) for split in places if len(places[split])}
    contaminated = np.zeros(len(train), np.bool_)
    # As `prepare` drops contamination: see `DataConfig.holds_out`.
    in_any_case = len(read) < len(SPLITS)
    lines = [
        f"  train  {_named(found, 'train')}: {train.pairs:,} pairs, {len(train):,} of them clean, "
        f"{train.repeated:,} of those repeated"
    ]
    for split in ("valid", "test"):
        sentences = others[split]
        shares = train.sharing(sentences, but_for_case=in_any_case)
        contaminated |= shares
        if split in given:
            leaking = sentences.sharing(train, but_for_case=in_any_case)
            leaks = int(np.count_nonzero(leaking))
            lines.append(f"  {split:5}  {_named(found, split)}: {sentences.pairs:,} pairs")
            if leaks:
                lines.append(
                    f"    {leaks:,} of them with a sentence that train has: training leaves out "
                    f"its {np.count_nonzero(shares):,} with one (contamination, in prepare)"
                )
        else:
            with_it = int(np.count_nonzero(shares)) - len(sentences)
            also = f", and {with_it:,} pairs left out that share a sentence with them" * bool(
                with_it
            )
            wanted = _held_out(train.different)
            fewer = f" ({wanted:,} cannot be)" * (len(sentences) < wanted)
            lines.append(f"  {split:5}  {len(sentences):,} pairs held out of train{fewer}{also}")
    if leaks := int(np.count_nonzero(others["valid"].sharing(others["test"]))):
        lines.append(
            f"    {leaks:,} pairs of valid have a sentence that test has: remove them from valid, "
            "or set data.files.valid to [] and data.files.valid_pairs to "
            f"{_held_out(train.different)}"
        )
    left = len(np.unique(train.ranks[~contaminated]))
    if not left:
        raise UserError(
            "each pair of train has a sentence of valid or test, and none would be left to train "
            "on: name other files"
        )
    return lines, left


def _named(found: Found, split: str) -> str:
    return " and ".join(found.files[split])


def _sized(pairs: int, train: Sentences) -> tuple[dict[str, Any], list[str]]:
    """Changes to the preset that is named among them, and a line on each with its reason."""
    size = next(size for size in SIZES if pairs >= size.pairs)
    preset, model = presets.load(size.preset).config, presets.load(size.model_of).config.model
    tokens = [characters / CHARACTERS_A_PIECE + 1 for characters in train.characters]
    pieces = min(preset.vocabulary.size, _rounded(pairs * sum(tokens) / SEEN))
    least = max(LEAST_PIECES, _rounded(PIECES_A_CHARACTER * train.different_characters))
    pieces = max(least, pieces)
    epoch = pairs * max(tokens) / preset.train.tokens_per_update
    steps = max(LEAST_WARMUPS * preset.train.warmup_steps, _rounded(size.epochs * epoch))
    steps = min(steps, max(preset.train.steps, LEAST_WARMUPS * preset.train.warmup_steps))
    gpus = torch.cuda.device_count()
    workers = gpus or min(presets.load("phrasebook").config.cluster.workers, available_cpus())
    why = f"each piece occurs {SEEN} times or more on average"
    if pieces == least:
        why = f"the fewest that are proposed for {train.different_characters:,} characters"
    by_heart = ""
    if steps > OFTEN * size.epochs * epoch:
        by_heart = "; a model that sees its pairs so often learns them by heart"
    changes: dict[str, Any] = {
        "preset": size.preset,
        "vocabulary.size": pieces,
        **{f"model.{key}": getattr(model, key) for key in ("d_model", "d_k", "d_v")},
        "train.steps": steps,
        "sweep.method": "none",
        "cluster.workers": workers,
        "cluster.gpus_per_worker": min(1, gpus),
    }
    if not gpus:
        changes["train.tokens_per_pass"] = min(preset.train.pass_tokens, CPU_TOKENS)
    return changes, [
        f"  model  {model.layers} layers, d_model {model.d_model}, as preset {size.model_of}: that "
        f"is for {_range(size)} pairs, and {pairs:,} different ones are left",
        f"  vocabulary.size {pieces:,}: {why}, and {preset.vocabulary.size:,} is the preset's",
        f"  train.steps {steps:,}, of {preset.train.tokens_per_update:,} tokens: "
        f"{steps / epoch:,.1f} epochs; the preset has {size.epochs} of its own data, and warms up "
        f"for {preset.train.warmup_steps:,} steps{by_heart}",
    ]


def _range(size: Size) -> str:
    above = [other.pairs for other in SIZES if other.pairs > size.pairs]
    return f"up to {min(above):,}" if above and not size.pairs else f"{size.pairs:,} and more"


def _rounded(number: float) -> int:
    """Two digits that count."""
    digits: int = 10 ** max(0, math.floor(math.log10(max(1.0, number))) - 1)
    return int(round(number / digits) * digits)
