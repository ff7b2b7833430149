"""Lengths of sentences, tokens and FLOPs of a training."""

from __future__ import annotations

from dataclasses import replace

import pytest

from seq2sweep.config import Config
from seq2sweep.data.bitext import Bitext
from seq2sweep.errors import UserError
from seq2sweep.model import flops
from seq2sweep.planning import workload
from tests.conftest import Corpus
from tests.planning.conftest import preset


def test_lengths_of_the_encoded_text_count_where_there_is_one(
    tiny_corpus: Corpus, tiny_config: Config
) -> None:
    load = workload.workload(tiny_config, {"train": 10**6}, tiny_corpus.encoded)
    assert (load.pairs, load.vocabulary_size) == (400, tiny_corpus.size)
    assert len(load.test[0]) == 40
    found = workload.training(tiny_config, load)
    tokens = found.source_tokens_per_update + found.target_tokens_per_update
    assert tokens <= 2 * tiny_config.train.tokens_per_update
    # 12 steps in thirds: three validations and three checkpoints.
    assert found.checkpoints == 3
    once = flops.forward_flops(tiny_config.model, load.vocabulary_size, *load.valid)
    assert found.validation_flops == 3 * once
    assert found.flops_per_token == found.flops / 12 / tokens


def test_the_longest_sentence_is_that_of_training(
    tiny_corpus: Corpus, tiny_config: Config, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`runs.pass_size` looks at all of both splits; here few sentences are looked at."""

    def longest(split: str) -> int:
        bitext = Bitext.open(tiny_corpus.encoded, split)
        return max(int(bitext.source_lengths.max()), int(bitext.target_lengths.max()))

    train = Bitext.open(tiny_corpus.encoded, "train")
    few = train.source_lengths[::200], train.target_lengths[::200]
    assert max(int(side.max()) for side in few) < longest("train")
    monkeypatch.setattr(workload, "MOST_PAIRS", 2)
    load = workload.workload(tiny_config, {"train": 400}, tiny_corpus.encoded)
    assert len(load.train) <= 4
    assert load.longest == max(longest("train"), longest("valid"))
    other = replace(load, valid=(load.valid[0], load.valid[1] + 100))
    assert other.longest == int(load.valid[1].max()) + 100


def test_trees_are_as_long_as_trees() -> None:
    """The parser of the phrasebook is not planned with the lengths of its translations."""
    load = workload.workload(preset("parsing"), {"train": 9999}, None)
    assert load.origin == "assumed: 10 and 27 tokens a sentence"
    assert load.train.target_lengths.mean() == pytest.approx(27, rel=0.05)
    # Each word is a symbol, and each bracket: one's own are as those of the Penn Treebank.
    trees = {f"data.files.{split}": [f"{split}.mrg"] for split in ("train", "valid", "test")}
    own = preset("parsing", **{"data.dataset": "files", "data.folder": "own"}, **trees)
    load = workload.workload(own, {"train": 9999}, None)
    assert load.origin == "assumed: 30 and 62.6 tokens a sentence"


@pytest.mark.parametrize("split", ["train", "valid", "test"])
def test_a_split_without_a_pair_is_told(split: str) -> None:
    """As files of trees are that hold blank lines alone."""
    pairs = {"train": 30, "valid": 30, "test": 30} | {split: 0}
    with pytest.raises(UserError, match=f"{split} has no sentence pair: look at the section data"):
        workload.workload(preset("parsing"), pairs, None)


def test_trees_of_sentences_in_characters_are_no_longer() -> None:
    """Their symbols are no pieces of text."""
    pieces, characters = (
        workload.workload(preset("parsing", **{"vocabulary.kind": kind}), {"train": 9999}, None)
        for kind in ("bpe", "characters")
    )
    longer, source = (load.train.source_lengths.mean() for load in (characters, pieces))
    assert longer == pytest.approx(4.3 * source, rel=0.02)
    assert characters.train.target_lengths.tolist() == pieces.train.target_lengths.tolist()
    assert characters.test[1].tolist() == pieces.test[1].tolist()
    assert characters.origin == "assumed: 43 characters and 27 symbols a sentence"


def test_sentences_of_characters_are_four_times_as_long() -> None:
    """Of the phrasebook, as `phrasebook.generate` makes it: 46.0 and 48.8, the end included."""
    loads = {
        kind: workload.workload(
            preset("phrasebook", **{"vocabulary.kind": kind}), {"train": 9999}, None
        )
        for kind in ("bpe", "characters", "bytes")
    }
    means = {kind: load.train.target_lengths.mean() for kind, load in loads.items()}
    assert 11.5 < means["bpe"] < 12.5
    assert means["characters"] == means["bytes"] == pytest.approx(48.8, rel=0.1)
    assert (loads["bpe"].vocabulary_size, loads["bytes"].vocabulary_size) == (3000, 260)
    assert loads["bpe"].origin == "assumed: 11.7 and 12 tokens a sentence"
    assert loads["characters"].origin == "assumed: 50.3 and 51.6 characters a sentence"
