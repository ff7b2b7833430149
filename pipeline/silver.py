"""Stage silver: two parsers parse sentences that have no trees; what they agree on is kept.

Writes models/silver: in train.source.txt and train.target.txt the treebank's training sentences and
trees, then those that both parsers give the same tree, tags included; and all of that encoded. And
metrics/silver.json. No sentence without `self_training.sentences`.

What has been parsed is kept in models/.silver.parsed, chunk by chunk, until other weights parse: a
stage that was interrupted, or runs again on the same sentences, resumes there.
"""

from __future__ import annotations

import contextlib
import hashlib
import itertools
import json
import shutil
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tqdm import tqdm

from seq2sweep import config as configuration
from seq2sweep import console, project_files
from seq2sweep.config import Config
from seq2sweep.data import bitext, files
from seq2sweep.data.reading import read_lines
from seq2sweep.data.treebank import unlabelled
from seq2sweep.data.vocabulary import Vocabulary
from seq2sweep.errors import UserError
from seq2sweep.parallel import Mapper, sentences_at_once
from seq2sweep.paths import read_json
from seq2sweep.stages import stage
from seq2sweep.storage.atomic import whole_folder, write_json
from seq2sweep.storage.locks import only_maker

if TYPE_CHECKING:
    from seq2sweep.evaluate.translator import Translator

CHUNK = 2000
"""Sentences that are written down together when both have parsed them, in a minute or a few; by a
cluster that has room for more, several chunks are parsed at once."""
PARSED = project_files.SILVER.with_name(".silver.parsed")
"""The folder of such chunks: the trees that models/silver gets, which is larger."""
LOCK = PARSED.with_suffix(".lock")
"""Held meanwhile: `make clean` looks whether it is, and no other silver may parse here."""


def work(config: Config) -> None:
    if not stage.self_trains(config):
        stage.write_metrics("silver", {}, {})
        stage.leave_unused(project_files.SILVER)
        return
    with only_maker(PARSED, LOCK, "the folder of the project"):
        _parse(config)


def _parse(config: Config) -> None:
    from seq2sweep.evaluate.translator import Translator  # here: torch takes seconds to load
    from seq2sweep.serving.cpu_quota import keep_to_quota

    keep_to_quota()
    files.verify(project_files.CLEAN, *files.SPLITS)
    search = replace(config.evaluate, beam=config.self_training.beam)
    parsers = [
        Translator(folder, project_files.VOCABULARY, search)
        for folder in (project_files.MODEL, project_files.TEACHER)
    ]
    counts: Counter[str] = Counter()
    known = {
        line
        for split in files.SPLITS
        for line in read_lines(files.text_paths(project_files.CLEAN, split)[0])
    }
    fresh = unlabelled.fresh(unlabelled.sentences(config), known, counts)
    # One that is cut has only words to agree on.
    whole = _of_at_most(parsers[0].longest_input, fresh, counts)
    asked = config.self_training.sentences
    parts = _parts_folder(parsers, config)
    for other in {*PARSED.glob("*")} - {parts}:
        shutil.rmtree(other, ignore_errors=True)
    with whole_folder(project_files.SILVER) as folder, stage.mapper(config.cluster) as shared_out:
        with tqdm(total=asked, **console.bar("parse", "sentences")) as bar:
            taken = itertools.islice(whole, asked)
            silver = _agreed(parsers, taken, parts, shared_out, counts, bar)
            gold = zip(
                *map(read_lines, files.text_paths(project_files.CLEAN, "train")), strict=True
            )
            pairs = files.write_pairs(
                *files.text_paths(folder, "train"), itertools.chain(gold, silver)
            )
        kept = counts["agreed"]
        if not counts["parsed"]:
            raise UserError(
                f"of {counts['read']:,} lines none is parsed: {counts['too_long']:,} are too long, "
                f"{counts['known']:,} are in the treebank, {counts['repeated']:,} repeated, "
                f"{counts['empty']:,} empty: name files with a sentence a line in "
                "self_training.files, or raise evaluate.max_input_tokens"
            )
        if not kept:
            raise UserError(
                f"of {counts['parsed']:,} sentences both parsers parsed none alike: train longer, "
                "or set self_training.sentences to 0"
            )
        _encode(folder, config)
    metrics = _metrics(config, parsers, counts, pairs - kept)
    stage.write_metrics("silver", metrics, {"silver": kept, "agreed": metrics["agreed_share"]})
    words = metrics["words"]
    console.say(
        f"{kept:,} of {counts['parsed']:,} sentences are parsed alike "
        f"({metrics['agreed_share']:.1%}): {words['agreed']:.1f} words on average, "
        f"{words['parsed']:.1f} of all; with the treebank {pairs:,} trees to train on"
    )


def _of_at_most(most: int, sentences: Iterable[str], counts: Counter[str]) -> Iterator[str]:
    """Those of so many tokens, EOS included; counts the others, as `too_long`."""
    vocabulary = Vocabulary.open(project_files.VOCABULARY)
    for sentence in sentences:
        if len(vocabulary.encode([sentence])[0]) <= most:
            yield sentence
        else:
            counts["too_long"] += 1


def _agreed(
    parsers: list[Translator],
    sentences: Iterable[str],
    parts: Path,
    shared_out: Mapper,
    counts: Counter[str],
    bar: tqdm[Any],
) -> Iterator[tuple[str, str]]:
    """Sentences with the tree that all parsers give; counts become those of what was parsed."""
    waiting = iter(sentences)
    chunks = iter(lambda: [*itertools.islice(waiting, CHUNK)], [])
    numbered = ((parts / f"{number:06}.json", chunk) for number, chunk in enumerate(chunks, 1))
    while some := dict(itertools.islice(numbered, sentences_at_once(shared_out, CHUNK) // CHUNK)):
        found = {file: _earlier(file, chunk) for file, chunk in some.items()}
        if left := {file: chunk for file, chunk in some.items() if found[file] is None}:
            found.update(_parsed(left, parsers, shared_out))
        for file, chunk in some.items():
            kept = found[file] or []
            counts["parsed"] += len(chunk)
            counts["agreed"] += len(kept)
            counts["words_parsed"] += sum(len(sentence.split(" ")) for sentence in chunk)
            counts["words_agreed"] += sum(len(chunk[place].split(" ")) for place, _ in kept)
            bar.update(len(chunk))
            yield from ((chunk[place], tree) for place, tree in kept)


Kept = list[tuple[int, str]]
"""The places, in a chunk, of sentences that are parsed alike, and their trees."""


def _earlier(file: Path, sentences: list[str]) -> Kept | None:
    """What the file of a chunk has of these sentences; None where it is of others, or not there."""
    with contextlib.suppress(UserError, KeyError, TypeError, ValueError):
        earlier = read_json(file)
        if earlier["text"] == _sum(sentences):
            return [(int(place), str(tree)) for place, tree in earlier["agreed"]]
    return None


def _parsed(
    chunks: dict[Path, list[str]], parsers: list[Translator], shared_out: Mapper
) -> dict[Path, Kept]:
    """Parse chunks together, and write each to its file."""
    sentences = [sentence for chunk in chunks.values() for sentence in chunk]
    # Tags and all: those that the models write.
    trees = [
        iter([best.text for best, *_ in parser.translate(sentences, mapper=shared_out)])
        for parser in parsers
    ]
    found = {}
    for file, chunk in chunks.items():
        first, *others = (list(itertools.islice(of_parser, len(chunk))) for of_parser in trees)
        agreed = [
            (place, tree)
            for place, tree in enumerate(first)
            if all(other[place] == tree for other in others)
        ]
        file.parent.mkdir(parents=True, exist_ok=True)
        write_json(file, {"text": _sum(chunk), "agreed": agreed})
        found[file] = agreed
    return found


def _sum(sentences: list[str]) -> str:
    return hashlib.sha256("\n".join(sentences).encode()).hexdigest()


def _parts_folder(parsers: list[Translator], config: Config) -> Path:
    """Where chunks are kept: another one for other weights, another search or other code."""
    search = asdict(parsers[0].config)
    del search["tokens_per_batch"]  # it only says which sentences are parsed at once
    made_from = {
        "weights": [parser.weights for parser in parsers],
        "search": search,
        "code": stage.code_of("seq2sweep.evaluate.translator"),
    }
    if kinds := configuration.code_of_kinds(config, "model"):
        made_from["kinds"] = kinds
    text = json.dumps(made_from, sort_keys=True)
    return PARSED / hashlib.sha256(text.encode()).hexdigest()[:12]


def _encode(folder: Path, config: Config) -> None:
    """Training text and the validation set as ids, in `encoded` of the folder."""
    encoded = folder / project_files.SILVER_ENCODED.name
    encoded.mkdir()
    vocabulary = Vocabulary.open(project_files.VOCABULARY)
    languages = {"source": config.data.source, "target": config.data.target}
    for split, place in (("train", folder), ("valid", project_files.CLEAN)):
        sides = dict(zip(files.SIDES, files.text_paths(place, split), strict=True))
        bitext.write_split(encoded, split, sides, vocabulary, languages)


def _metrics(
    config: Config, parsers: list[Translator], counts: Counter[str], gold: int
) -> dict[str, Any]:
    """metrics/silver.json."""
    parsed, agreed = counts["parsed"], counts["agreed"]
    return {
        **{
            key: counts[key]
            for key in ("read", "empty", "known", "repeated", "too_long", "parsed", "agreed")
        },
        "agreed_share": agreed / parsed,
        "words": {
            "parsed": counts["words_parsed"] / parsed,
            "agreed": counts["words_agreed"] / agreed,
        },
        "gold": gold,
        "made_from": {
            "weights": [parser.weights for parser in parsers],
            "self_training": configuration.to_dict(config)["self_training"],
        },
    }


if __name__ == "__main__":
    stage.run("silver", "what two parsers agree on", work)
