"""One way to translate with the benchmark's model: `python -m benchmarks.decoders NAME FOLDER ...`.

It answers questions, as `benchmarks.processes` has them: a list of numbers of sentences, which it
translates. Before the first it finds its best batch size, and whether it is faster with all threads
for one batch, or in processes of one thread, each with its share of the sentences.
"""

from __future__ import annotations

import argparse
import contextlib
import functools
import itertools
import multiprocessing
import os
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import replace
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any, get_args

import numpy
import torch

from benchmarks.processes import serve
from benchmarks.sizes import LONGEST, SIZES
from seq2sweep import presets
from seq2sweep.data.vocabulary import BOS, EOS, PAD, UNK, Vocabulary
from seq2sweep.decode.beam import Stopping, translate
from seq2sweep.hardware import Precision
from seq2sweep.model.architecture.transformer import Transformer
from seq2sweep.model.layers import DecoderLayer, sinusoids
from seq2sweep.train.allocator import keep_memory

SIZE = SIZES["4x256"]
BEAM = 4
ALPHA = 0.6
EXTRA = 50
"""Pieces that a translation may have more than its source, at natural length."""
TRIED = 4
"""One sentence in so many is what batch sizes are tried on."""
FINALISTS = 2
AT_ONCE = (32, 64, 128, 256, 512)
TOKENS_AT_ONCE = (8000, 16_000, 32_000, 64_000)
"""`evaluate.tokens_per_batch`: at natural length some 150 to 1200 sentences of the test's."""

Decode = Callable[[Sequence[int], Any], list[list[int]]]
"""Pieces of the translations, without EOS, of sentences of these numbers, by a batch size."""


class Text:
    """The sentences: as lines, and as pieces with EOS."""

    def __init__(self, folder: Path, length: int, threads: int, sentences: int) -> None:
        self.folder, self.length, self.threads = folder, length, threads
        self.vocabulary = Vocabulary((folder / "vocabulary.model").read_bytes())
        with (folder / "test.source.txt").open(encoding="utf-8", newline="\n") as stream:
            self.lines = [line.rstrip("\r\n") for line in itertools.islice(stream, sentences)]
        self.pieces = self.vocabulary.encode(self.lines)

    def model(self) -> Transformer:
        """Ours, with the weights that all have."""
        from safetensors.torch import load_model

        model = Transformer(SIZE.config(), SIZE.vocabulary).eval()
        load_model(model, str(self.folder / "weights.safetensors"))
        return model

    def groups(self, numbers: Sequence[int], at_once: int) -> list[list[int]]:
        """Batches of similar length, the longest first."""
        order = sorted(numbers, key=lambda i: -len(self.pieces[i]))
        return [order[start : start + at_once] for start in range(0, len(order), at_once)]

    def in_batches(
        self, decode: Callable[[torch.Tensor], Sequence[Sequence[int]]], end: int = EOS
    ) -> Decode:
        """Of a search for padded batches."""

        @torch.inference_mode()
        def decode_all(numbers: Sequence[int], at_once: int) -> list[list[int]]:
            said: dict[int, list[int]] = {}
            for group in self.groups(numbers, at_once):
                rows = [torch.tensor(self.pieces[i]) for i in group]
                source = torch.nn.utils.rnn.pad_sequence(rows, batch_first=True, padding_value=PAD)
                for i, pieces in zip(group, decode(source), strict=True):
                    said[i] = [piece for piece in pieces if piece not in (PAD, end)]
            return [said[i] for i in numbers]

        return decode_all


def main() -> None:
    """Build the model, then answer."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("name", choices=DECODERS)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--length", type=int, default=0, help="pieces; 0: natural")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--sentences", type=int, default=1000, help="at most, the first ones")
    options = parser.parse_args()

    @functools.cache
    def made() -> tuple[Shared, Any]:
        """By the first question: where `serve` answers, what libraries print is no answer."""
        some = range(0, options.sentences, TRIED)
        counts = {1, options.threads}
        if options.name == "ctranslate2":  # which has both ways of its own
            counts = {1}
        with contextlib.ExitStack() as stack:
            whole, *shared = (stack.enter_context(Shared(options, n)) for n in sorted(counts))
            ways: list[tuple[Shared, Any]] = [(whole, size) for size in whole.sizes()]
            seconds = [timed(*way, some) for way in ways]
            best = ways[seconds.index(min(seconds))][1]
            ways += [(each, size) for each in shared for size in (best, best // 2)]
            seconds += [timed(*way, some) for way in ways[len(seconds) :]]
            # One trial may have met a busy machine: the best ones have another.
            for i in sorted(range(len(ways)), key=lambda i: seconds[i])[:FINALISTS]:
                seconds[i] = min(seconds[i], timed(*ways[i], some))
        way, size = ways[seconds.index(min(seconds))]
        # Anew, without the memory that larger batches took: others run beside it.
        return Shared(options, way.count), size

    def answer(numbers: list[int]) -> dict[str, Any]:
        shared, size = made()
        before = time.perf_counter()
        said = shared.decode(numbers, size)
        seconds = time.perf_counter() - before
        if options.length:
            assert {len(pieces) for pieces in said} == {options.length}
        where = f" in {shared.count} processes" if shared.count > 1 else ""
        return {"seconds": seconds, "said": said, "batch": f"{size}{where}"}

    serve(answer)


class Shared:
    """A contender in so many processes, which share the threads: each decodes its share."""

    def __init__(self, options: argparse.Namespace, count: int) -> None:
        settings = options.folder, options.length, options.threads // count, options.sentences
        spawn = multiprocessing.get_context("spawn")
        self.count = count
        self.pool = ProcessPoolExecutor(count, spawn, _open, (options.name, settings))
        self.decode(range(count), 1 if options.name != "ctranslate2" else (16, 1))  # all are there

    def __enter__(self) -> Shared:
        return self

    def __exit__(self, *raised: object) -> None:
        self.pool.shutdown()

    def sizes(self) -> tuple[Any, ...]:
        """Batch sizes to try."""
        return self.pool.submit(_sizes).result()

    def decode(self, numbers: Sequence[int], size: Any) -> list[list[int]]:
        """Pieces of each translation, without EOS."""
        shares = [numbers[first :: self.count] for first in range(self.count)]
        found = itertools.chain(*self.pool.map(_decode, shares, itertools.repeat(size)))
        said = dict(zip(itertools.chain(*shares), found, strict=True))
        return [said[i] for i in numbers]


_opened: list[tuple[Decode, tuple[Any, ...]]] = []
"""Of a process of the pool, how it decodes, and batch sizes to try."""


def _open(name: str, settings: Sequence[Any]) -> None:
    threading.Thread(target=_end_with_parent, daemon=True).start()
    text = Text(*settings)
    keep_memory()
    torch.set_num_threads(text.threads)
    torch.manual_seed(1)
    decode, sizes = DECODERS[name](text)
    decode(range(min(64, len(text.lines))), sizes[0])  # the first call pays for what is made once
    _opened.append((decode, sizes))


def _end_with_parent() -> None:
    """Which is killed when it has had its turns."""
    parent = multiprocessing.parent_process()
    assert parent is not None
    parent.join()
    os._exit(1)


def _sizes() -> tuple[Any, ...]:
    return _opened[0][1]


def _decode(numbers: Sequence[int], size: Any) -> list[list[int]]:
    return _opened[0][0](numbers, size)


def timed(shared: Shared, size: Any, numbers: Sequence[int]) -> float:
    """Seconds."""
    before = time.perf_counter()
    shared.decode(numbers, size)
    return time.perf_counter() - before


class OfLength(Transformer):
    """It says the end after so many pieces, and never before."""

    length: int

    def step(self, pieces: torch.Tensor, cache: Any) -> torch.Tensor:
        """Logits, as those of any model."""
        logits = super().step(pieces, cache)
        if cache.steps <= self.length:
            logits[..., EOS] = -torch.inf
        else:
            end = logits[..., EOS].clone()
            logits.fill_(-torch.inf)
            logits[..., EOS] = end
        return logits


def ours(
    text: Text, stopping: Stopping, precision: Precision = "float32"
) -> tuple[Decode, tuple[Any, ...]]:
    """The core's search."""
    model = text.model()
    if text.length:
        model.__class__ = type("OfLength", (OfLength,), {"length": text.length})
    changes: dict[str, Any] = {
        "beam": BEAM, "length_penalty": "power", "alpha": 0.0 if text.length else ALPHA,
        "max_extra_tokens": text.length or EXTRA, "stopping": stopping,
        "precision": precision,
    }  # fmt: skip
    config = replace(presets.load("phrasebook").config.evaluate, **changes)

    def decode(numbers: Sequence[int], tokens: int) -> list[list[int]]:
        lines = [text.lines[i] for i in numbers]
        search = replace(config, tokens_per_batch=tokens)
        found = translate(model, text.vocabulary, lines, search, torch.device("cpu"))
        return [[piece for piece in best[0].pieces if piece != EOS] for best in found]

    return decode, TOKENS_AT_ONCE


def by_ctranslate2(text: Text) -> tuple[Decode, tuple[Any, ...]]:
    """The same weights, exported; all threads for one batch, or each for its own."""
    import ctranslate2

    translators = {
        parallel: ctranslate2.Translator(
            str(text.folder / "exported"), device="cpu", compute_type="float32",
            inter_threads=parallel, intra_threads=text.threads // parallel,
        )
        for parallel in {1, text.threads}
    }  # fmt: skip
    tokens = [[str(piece) for piece in pieces] for pieces in text.pieces]

    def decode(numbers: Sequence[int], how: tuple[int, int]) -> list[list[int]]:
        at_once, parallel = how
        waited_for: dict[int, Any] = {}
        for group in text.groups(numbers, at_once):
            results = translators[parallel].translate_batch(
                [tokens[i] for i in group], beam_size=BEAM, asynchronous=True,
                length_penalty=0.0 if text.length else ALPHA, min_decoding_length=text.length,
                max_decoding_length=text.length or len(tokens[group[0]]) - 1 + EXTRA,
                suppress_sequences=[[str(PAD)], [str(BOS)]],
            )  # fmt: skip
            waited_for |= dict(zip(group, results, strict=True))
        return [[int(token) for token in waited_for[i].result().hypotheses[0]] for i in numbers]

    return decode, tuple((size, way) for size in (16, *AT_ONCE) for way in translators)


def marian(text: Text, bf16: bool = False) -> tuple[Decode, tuple[Any, ...]]:
    """Hugging Face's `generate`, with plain attention, which takes less time on a CPU."""
    from transformers import MarianConfig, MarianMTModel

    from benchmarks.toolkits import marian_config
    from seq2sweep.export import to_marian

    model = MarianMTModel(marian_config(MarianConfig, SIZE)).eval()
    with torch.no_grad():
        to_marian.fill(model, text.model())
    if bf16:
        model = model.to(torch.bfloat16)

    def decode(source: torch.Tensor) -> Any:
        longest = text.length or source.size(1) - 1 + EXTRA
        return model.generate(
            input_ids=source, attention_mask=source.ne(PAD), num_beams=BEAM, do_sample=False,
            min_new_tokens=text.length or None, max_new_tokens=longest, early_stopping=True,
            length_penalty=0.0 if text.length else ALPHA, suppress_tokens=[PAD, BOS],
        )[:, 1:].tolist()  # fmt: skip

    return text.in_batches(decode), AT_ONCE


def eole(text: Text, bf16: bool = False) -> tuple[Decode, tuple[Any, ...]]:
    """eole's Translator, at lengths that are set: its layers, which begin with the norm, cannot
    have our weights."""
    from eole.config.run import PredictConfig
    from eole.predict import GNMTGlobalScorer
    from eole.predict.translator import Translator

    from benchmarks.toolkits import eole_model, eole_vocabulary

    if not text.length:
        raise SystemExit("cannot have our weights: its layers begin with the norm")
    model = eole_model(SIZE).to(torch.bfloat16 if bf16 else torch.float32).eval()
    for module in model.modules():
        if hasattr(module, "dropout_p"):
            module.dropout_p = 0.0
    settings = PredictConfig.model_construct(
        beam_size=BEAM, n_best=1, min_length=text.length, max_length=text.length,
        max_length_ratio=0, transforms=[],
    )  # fmt: skip
    translator = Translator(
        model, eole_vocabulary(SIZE), settings,
        SimpleNamespace(encoder=None, add_estimator=False, estimator_type="average"),
        device_id=-1, global_scorer=GNMTGlobalScorer(0.0, 0.0, "none", "none"),
    )  # fmt: skip

    def decode(source: torch.Tensor) -> Any:
        batch = {"src": source, "srclen": source.ne(PAD).sum(dim=1)}
        found = translator.predict_batch(batch, False)["predictions"]
        return [best[0].tolist() for best in found]

    return text.in_batches(decode, end=-1), AT_ONCE


def sockeye(text: Text) -> tuple[Decode, tuple[Any, ...]]:
    """Sockeye's search."""
    from sockeye.beam_search import CandidateScorer, get_search_algorithm
    from sockeye.inference import Translator

    from benchmarks.toolkits import sockeye_model

    model = sockeye_model(SIZE, inference=True)
    theirs = torch.arange(SIZE.vocabulary)  # its numbers of our pieces
    theirs[[PAD, BOS, EOS, UNK]] = torch.tensor([0, 2, 3, 1])
    with torch.no_grad():
        fill_sockeye(model, text.model(), theirs)
        model.output_layer.bias.zero_()
        model.output_layer.bias[[0, 2, *([3] if text.length else [])]] = -1e9
    search = get_search_algorithm(
        [model.eval()], BEAM, torch.device("cpu"), output_scores=True,
        scorer=CandidateScorer(0.0 if text.length else ALPHA),
    )  # fmt: skip
    ours = theirs.argsort()

    def decode(source: torch.Tensor) -> Any:
        lengths = source.ne(PAD).sum(dim=1)
        longest = text.length or source.size(1) - 1 + EXTRA
        found = search(
            theirs[source].int().unsqueeze(-1),
            torch.stack((lengths, torch.zeros_like(lengths)), dim=1).int(), None,
            torch.full_like(lengths, longest + 1).int(),
        )  # fmt: skip
        best = range(0, BEAM * len(source), BEAM)
        steps = Translator._get_best_word_indices_for_kth_hypotheses(
            numpy.array(best), found.best_hyp_indices.numpy()
        )
        pieces = found.best_word_indices[torch.from_numpy(steps), 0, torch.arange(steps.shape[1])]
        return ours[pieces.long()].tolist()

    return text.in_batches(decode), AT_ONCE


def fill_sockeye(made: Any, model: Transformer, theirs: torch.Tensor) -> None:
    """Our weights and our positions. theirs: its numbers of our pieces."""
    made.embedding_source.embedding.weight[theirs] = model.source_embedding.weight
    made.encoder.pos_embedding.weight.copy_(sinusoids(LONGEST, SIZE.d_model))
    made.decoder.pos_embedding.weight.copy_(sinusoids(LONGEST, SIZE.d_model))
    pairs: list[tuple[Any, Any]] = [
        *zip(made.encoder.layers, model.encoder, strict=True),
        *zip(made.decoder.layers, model.decoder, strict=True),
    ]
    for layer, our in pairs:
        own = layer.autoregr_layer if isinstance(our, DecoderLayer) else layer.self_attention
        own.ff_in.weight.copy_(our.attention.projection)
        own.ff_out.weight.copy_(our.attention.output.weight)
        norms = {"feed_forward_residual": layer.post_ff}
        if isinstance(our, DecoderLayer):
            over = our.memory_attention
            layer.enc_attention.ff_q.weight.copy_(over.projection[: SIZE.d_model])
            layer.enc_attention.ff_kv.weight.copy_(over.projection[SIZE.d_model :])
            layer.enc_attention.ff_out.weight.copy_(over.output.weight)
            norms["attention_residual"] = layer.post_autoregr_layer
            norms["memory_residual"] = layer.post_enc_attention
        else:
            norms["attention_residual"] = layer.post_self_attention
        layer.ff.ff1.load_state_dict(our.feed_forward.inner.state_dict())
        layer.ff.ff2.load_state_dict(our.feed_forward.outer.state_dict())
        for name, block in norms.items():
            block.layer_norm.load_state_dict(getattr(our, name).norm.state_dict())
            block.layer_norm.eps = getattr(our, name).norm.eps


DECODERS: dict[str, Callable[[Text], tuple[Decode, tuple[Any, ...]]]] = {
    **{f"ours {rule}": partial(ours, stopping=rule) for rule in get_args(Stopping)},
    "ours own_length_bf16": partial(ours, stopping="own_length", precision="bf16"),
    "ctranslate2": by_ctranslate2,
    "marian": marian,
    "marian_bf16": partial(marian, bf16=True),
    "eole": eole,
    "eole_bf16": partial(eole, bf16=True),
    "sockeye": sockeye,
}
"""Each, and batch sizes to try. In float32 where nothing is said; ours by each of its rules."""


if __name__ == "__main__":
    main()
