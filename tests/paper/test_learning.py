"""It learns: from text through word pieces, the training loop and beam search back to text."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from itertools import islice
from pathlib import Path

import pytest
import sacrebleu
import torch

import phrasebook
from seq2sweep import config as configuration
from seq2sweep import presets
from seq2sweep.config import Config
from seq2sweep.data import vocabulary
from seq2sweep.data.clean import Cleaner
from seq2sweep.data.reading import read_pairs
from seq2sweep.decode.average import average
from seq2sweep.decode.beam import translate
from seq2sweep.evaluate.bleu import score
from seq2sweep.model.architecture.transformer import Transformer
from seq2sweep.train.checkpointing import load_weights
from seq2sweep.train.events import CheckpointDue
from seq2sweep.train.loop import train

from ..conftest import write_encoded
from .models import MIXERS

CPU = torch.device("cpu")
MULTI30K = Path(__file__).parents[3] / "shared/data/multi30k"
SMALL = {
    "model.d_model": 64,
    "model.d_ff": 128,
    "model.heads": 4,
    "model.d_k": 16,
    "model.d_v": 16,
    "model.dropout": 0.0,
    "train.precision": "float32",
    "sweep.base": {},
}

SIDES = ("encoder", "decoder")

Pairs = Sequence[tuple[str, str]]


def learn(
    changes: dict[str, object], learned: Pairs, lines: Sequence[str], folder: Path
) -> list[str]:
    """Train on pairs from scratch, average the newest checkpoints and translate lines."""
    config: Config = configuration.with_changes(presets.load("phrasebook").config, SMALL | changes)
    text = [side for pair in learned for side in pair]
    pieces = vocabulary.Vocabulary(vocabulary.train(text, config.vocabulary))
    for split, pairs in (("train", learned), ("valid", learned[:50])):
        source, target = zip(*pairs, strict=True)
        write_encoded(folder, split, source, target, pieces)
    files = []
    for event in train(config, folder, device=CPU):
        if isinstance(event, CheckpointDue):
            event.capture().write(folder / f"step-{event.step}")
            files.append(folder / f"step-{event.step}" / "model.safetensors")
    model = Transformer(config.model, len(pieces))
    load_weights(model, average(files[-config.evaluate.average_checkpoints :]))
    found = translate(model, pieces, lines, config.evaluate, CPU)
    return [best[0].text for best in found]


def of_the_phrasebook() -> Pairs:
    return [(pair.source, pair.target) for pair in phrasebook.generate("train", 64, seed=1)]


def of_multi30k() -> Pairs:
    if not MULTI30K.exists():
        pytest.skip("Multi30k is not on this machine")
    return list(islice(read_pairs(MULTI30K / "train.en.gz", MULTI30K / "train.de.gz"), 64))


@pytest.mark.parametrize("mixer", [pytest.param(m, marks=pytest.mark.thorough) for m in MIXERS[1:]])
def test_it_memorises_sentences_with_another_mixer(mixer: str, tmp_path: Path) -> None:
    memorises(of_the_phrasebook(), {f"model.{side}_mixer": mixer for side in SIDES}, tmp_path)


@pytest.mark.parametrize(
    "pairs_of", [of_the_phrasebook, pytest.param(of_multi30k, marks=pytest.mark.thorough)]
)
def test_it_memorises_sentences(pairs_of: Callable[[], Pairs], tmp_path: Path) -> None:
    memorises(pairs_of(), {}, tmp_path)


def memorises(drawn: Pairs, model: dict[str, object], tmp_path: Path) -> None:
    clean = Cleaner(presets.load("phrasebook").config.prepare, "en", "de")(list(drawn))
    source, target = (block.decode().splitlines() for block in (clean.source, clean.target))
    pairs = list(zip(source, target, strict=True))
    assert len(pairs) == 64
    changes: dict[str, object] = {
        "vocabulary.size": 600,
        "train.steps": 150,
        "train.tokens_per_update": 4000,
        "train.warmup_steps": 100,
        "train.learning_rate_scale": 0.5,
        "train.validate_every": 150,
        "train.checkpoint_every": 150,
        "evaluate.average_checkpoints": 1,
    } | model
    sources, references = ([pair[i] for pair in pairs] for i in (0, 1))
    translations = learn(changes, pairs, sources, tmp_path)
    assert translations == references
    assert sacrebleu.corpus_bleu(translations, [references]).score == pytest.approx(100)
    assert score(translations, references, "de")["bleu"]["sacrebleu"]["score"] == 100


@pytest.mark.parametrize("task", [pytest.param("copy", marks=pytest.mark.thorough), "reverse"])
def test_it_learns_what_holds_for_sequences_never_seen(task: str, tmp_path: Path) -> None:
    draw = random.Random(1)
    sequences: dict[str, None] = {}  # each once, in a fixed order
    while len(sequences) < 10_400:
        sequences[" ".join(draw.choices("abcdefghij", k=draw.randint(3, 8)))] = None
    step = 1 if task == "copy" else -1
    pairs = [(source, " ".join(source.split()[::step])) for source in sequences]
    held_out, learned = pairs[:400], pairs[400:]
    changes: dict[str, object] = {
        # Ten letters with and without a blank before them, the blank, and the four special ones.
        "vocabulary.size": 25,
        "model.layers": 1,
        "train.steps": 1000,
        "train.tokens_per_update": 1000,
        "train.warmup_steps": 50,
        "train.learning_rate_scale": 0.2,
        "train.validate_every": 1000,
        "train.checkpoint_every": 50,
        "evaluate.average_checkpoints": 5,
    }
    found = learn(changes, learned, [source for source, _ in held_out], tmp_path)
    right = sum(text == target for text, (_, target) in zip(found, held_out, strict=True))
    assert right >= 0.99 * len(held_out)
