"""What a trained model is used for."""

from __future__ import annotations

import argparse
import contextlib
import itertools
import json
import math
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from tqdm import tqdm

from seq2sweep import console
from seq2sweep.commands.interactive import interact
from seq2sweep.commands.shared import Commands
from seq2sweep.commands.trained import add_trained, cluster_of, opened, opened_together
from seq2sweep.errors import UserError
from seq2sweep.parallel import Mapper, sentences_at_once, serial
from seq2sweep.ports import port_number
from seq2sweep.project_files import CLEAN, MODEL
from seq2sweep.storage.atomic import naming_temporary, write_whole

if TYPE_CHECKING:  # it imports torch, which takes seconds
    from seq2sweep.evaluate.attention.attention_maps import Choice, Maps
    from seq2sweep.evaluate.translator import Translator

EXAMPLES = (
    'echo "The cat is sleeping." | seq2sweep translate',
    "seq2sweep translate news.en.gz --n-best 4",
    "seq2sweep translate news.en --tasks",
    "seq2sweep translate --interactive",
    "seq2sweep translate news.en --weights models/train --weights ../other/models/train",
    "seq2sweep translate news.en --model my-model",
    "seq2sweep translate news.en --model models:/phrasebook-en-de@newest",
    "seq2sweep score-pairs news.en news.de.gz --json",
    'seq2sweep attend "The cat is sleeping on the old sofa."',
    'seq2sweep attend "The cat is sleeping." --target "Die Katze schläft."',
    'seq2sweep attend "The cat is sleeping." '
    "--out cat.svg --of encoder --layer 2 --head 3 --word cat",
    "seq2sweep export ctranslate2-model --quantize int8",
    "seq2sweep export my-model --format safetensors",
    "seq2sweep export marian-model --format marian --check news.en news.de",
    "seq2sweep serve",
    "seq2sweep serve --model models:/phrasebook-en-de@newest --port 8001",
)


def _add_translate(commands: Commands) -> None:
    translate = commands.add_parser("translate", help="translate text with the trained weights")
    translate.add_argument(
        "file", nargs="?", type=Path, help="text, one sentence a line, plain or .gz (else stdin)"
    )
    translate.add_argument(
        "--n-best",
        type=int,
        metavar="N",
        help="the N best of each line with their scores: line number, score, text, with tabs",
    )
    translate.add_argument(
        "--engine",
        choices=("own", "ctranslate2"),
        default="own",
        help="what searches: this program, or CTranslate2 (extra ctranslate2; on CPUs)",
    )
    translate.add_argument(
        "--tasks",
        action="store_true",
        help="by Ray tasks on every CPU, or GPU, of cluster.address; without one, of this machine",
    )
    translate.add_argument(
        "--interactive",
        action="store_true",
        help="translate each line as it is typed, word by word as the words become final; Ctrl-D "
        "ends it",
    )
    add_trained(translate, several=True)


def _translate(options: argparse.Namespace) -> None:
    from seq2sweep.data.reading import lines_of, read_lines

    for flag, used in (("--tasks", options.tasks), ("an ensemble", len(options.members) > 1)):
        if used and options.engine != "own":
            raise UserError(f"{flag} goes with this program's own search only: leave out --engine")
    if options.interactive:
        if options.file or options.tasks or options.engine != "own" or options.n_best is not None:
            raise UserError("--interactive goes without FILE, --n-best, --tasks and --engine")
        interact(options)
        return
    from seq2sweep.cluster.signals import signals_as_interrupts
    from seq2sweep.evaluate.translator import LINES_AT_ONCE

    cluster = cluster_of(options) if options.tasks else None
    translator = opened_together(options)
    beam = translator.config.beam
    n_best = options.n_best if options.n_best is not None else 1
    if not 1 <= n_best <= beam:
        raise UserError(f"--n-best is {n_best}: it must be from 1 to evaluate.beam, {beam}")
    total = None
    if options.file:  # read twice: what is wrong in it is told at once
        total = sum(1 for _ in console.progress(read_lines(options.file), "read", "lines"))
        lines = read_lines(options.file)
    elif sys.stdin is None:
        raise UserError("standard input is closed: name the FILE to translate")
    else:
        lines = lines_of(sys.stdin.buffer, "standard input")
    with contextlib.ExitStack() as stack:
        # By themselves SIGTERM and SIGHUP end a process with its last lines unwritten.
        stack.enter_context(signals_as_interrupts())
        engine = None
        if options.engine == "ctranslate2":  # which has the model in a temporary folder
            with _memory_for_positions(translator), naming_temporary():
                engine = translator.ctranslate2(stack)
        mapper: Mapper = serial
        if cluster:
            from seq2sweep.cluster.tasks import ray_mapper  # here: Ray takes seconds to load

            stack.enter_context(console.never_silent("translate", sys.stderr))
            with contextlib.redirect_stdout(sys.stderr):  # which is for translations alone
                mapper = stack.enter_context(ray_mapper(cluster))
        bar = stack.enter_context(tqdm(total=total, **console.bar("translate", "sentences")))
        done = 0
        while some := list(itertools.islice(lines, sentences_at_once(mapper, LINES_AT_ONCE))):
            found = translator.translate(some, n_best, bar.update, engine, mapper, first=done + 1)
            for number, translations in enumerate(found, start=done + 1):
                for one in translations:
                    score = "" if options.n_best is None else f"{number}\t{one.score:.4f}\t"
                    print(f"{score}{one.text}")
            sys.stdout.flush()  # the next ones take long
            done += len(some)


def _add_score_pairs(commands: Commands) -> None:
    score_pairs = commands.add_parser(
        "score-pairs",
        help="how probable the trained model finds given translations: log-probabilities",
        description="Of each line of TARGET given its line of SOURCE: the log-probability in nats, "
        "summed over its tokens with the end of the sentence, their number, and the mean of a "
        "token, with tabs between.",
    )
    for name in ("source", "target"):
        score_pairs.add_argument(
            name, metavar=name.upper(), type=Path, help="text, one sentence a line, plain or .gz"
        )
    score_pairs.add_argument("--json", action="store_true", help="a JSON object a line instead")
    add_trained(score_pairs, several=True)


def _score_pairs(options: argparse.Namespace) -> None:
    from seq2sweep.decode.beam import NO_NUMBERS
    from seq2sweep.evaluate.pair_scores import count_pairs, scores_of
    from seq2sweep.hardware import memory_by
    from seq2sweep.train.loss import perplexity

    given = opened_together(options), options.source, options.target
    total, tokens = 0.0, 0
    pairs = count_pairs(*given)
    # On a terminal the scores themselves show how far it is.
    bar = tqdm(total=pairs, disable=sys.stdout.isatty(), **console.bar("score", "pairs"))
    with bar, memory_by(given[0].remedy("lower evaluate.tokens_per_batch")):
        for some in scores_of(*given):
            for score in some:
                total, tokens = total + score.log_probability, tokens + score.tokens
            if math.isnan(total):
                raise UserError(NO_NUMBERS)
            numbers = [(one.log_probability, one.tokens, one.mean) for one in some]
            if options.json:
                keys = "log_probability", "tokens", "mean"
                known = [[x if math.isfinite(x) else None for x in row] for row in numbers]
                lines = [json.dumps(dict(zip(keys, row, strict=True))) for row in known]
            else:
                lines = ["{:.6f}\t{}\t{:.6f}".format(*row) for row in numbers]
            print("\n".join(lines), flush=True)
            bar.update(len(some))
    print(
        f"{pairs} pairs, {tokens} tokens, perplexity {perplexity(-total / tokens):.6g}",
        file=sys.stderr,
    )


def _add_attend(commands: Commands) -> None:
    attend = commands.add_parser(
        "attend",
        help="show what the trained model attends to, as a page of its own or as a figure",
        description="As the paper's figures 3 to 5: sentences with their translations, each layer "
        "and head, and each head in numbers.",
    )
    attend.add_argument("sentences", nargs="+", metavar="SENTENCE", help="text to translate")
    attend.add_argument(
        "--target",
        action="append",
        default=[],
        metavar="TEXT",
        help="what the model is to say instead of its own translation (again for each sentence)",
    )
    attend.add_argument(
        "--out",
        type=Path,
        default=Path("attention.html"),
        metavar="FILE",
        help="what to write: a page (.html, as without this), a figure of the first sentence "
        "(.svg), or all weights (.json)",
    )
    attend.add_argument(
        "--of",
        choices=("encoder", "decoder", "memory"),
        default="memory",
        help="which attention is shown first: of encoder or decoder to itself, or, as without "
        "this, of the decoder to the source",
    )
    attend.add_argument("--layer", type=int, metavar="N", help="its layer, from 1 (the last)")
    attend.add_argument(
        "--head", type=int, action="append", metavar="N", help="its head, from 1 (again; all)"
    )
    attend.add_argument("--word", metavar="WORD", help="the attention of this word alone")
    attend.add_argument("--tokens", action="store_true", help="a figure by token, not by word")
    add_trained(attend)


def _attend(options: argparse.Namespace) -> None:
    from seq2sweep.hardware import memory_by

    kind = options.out.suffix.lower()
    if kind not in (".html", ".svg", ".json"):
        raise UserError(f"--out {options.out}: name a file that ends in .html, .svg or .json")
    if options.target and len(options.target) != len(options.sentences):
        raise UserError(
            f"{len(options.sentences)} sentences but {len(options.target)} --target: give one each"
        )
    translator = opened(options)
    with memory_by("give shorter sentences"):
        text = _shown_attention(options, translator, kind)
    write_whole(options.out, text)
    print(f"{options.out} shows what the model attends to")


def _shown_attention(options: argparse.Namespace, translator: Translator, kind: str) -> str:
    """The file that is asked for, of the kind .html, .svg or .json."""
    from seq2sweep.evaluate.attention import attention_maps, head_numbers
    from seq2sweep.report.attention import attention_figure, attention_page

    pairs = attention_maps.pairs(translator, options.sentences, options.target)
    for number, pair in enumerate(pairs[:1] if kind == ".svg" else pairs, 1):  # that are drawn
        # A file has a number for each head and each pair of tokens.
        if (longest := max(len(pair.source), len(pair.target))) > head_numbers.LONGEST:
            raise UserError(
                f"sentence {number} has {longest} tokens on a side, too many to draw: give shorter "
                f"ones, of at most {head_numbers.LONGEST}"
            )
    model, vocabulary = translator.model, translator.vocabulary
    first = attention_maps.maps(model, vocabulary, pairs[0])
    chosen = choose(
        first, options.of, options.layer, options.head, options.word, words=not options.tokens
    )
    if kind == ".svg":
        return attention_figure.draw(first, *chosen, words=not options.tokens)
    maps: list[Maps] = []
    with tqdm(total=len(pairs) + first.heads, **console.bar("measure", "passes")) as bar:
        numbers = head_numbers.measure(model, vocabulary, pairs, bar.update, maps.append)
    if kind == ".json":
        return attention_page.as_json(maps, numbers)
    steps = ", ".join(map(str, translator.steps))
    about = f"{options.model or options.weights or MODEL}, checkpoints {steps}"
    return attention_page.render(maps, numbers, about, chosen, words=not options.tokens)


def choose(
    one: Maps,
    of: str,
    number: int | None = None,
    heads: Sequence[int] | None = None,
    word: str | None = None,
    *,
    words: bool = True,
) -> Choice:
    """What `--of`, `--layer`, `--head` and `--word` ask for: of a kind of attention the layer of
    this number, from 1, or the last; heads from 1, or all; the first row that is this word, or
    token. UserError where there is none."""
    from seq2sweep.evaluate.attention.attention_maps import KINDS, Choice

    if not one.weights:
        raise UserError("this model has no attention to show")
    there = [i for i in range(len(one.weights)) if KINDS[of].format(i) in one.weights]
    if not there:
        raise UserError(f"this model has no attention of the kind {of}: choose another by --of")
    layer = there[-1] if number is None else number - 1
    if layer not in there:
        shown = ", ".join(str(i + 1) for i in there)
        raise UserError(f"--layer {number}: {of} attention has layers {shown}")
    name = KINDS[of].format(layer)
    count = len(one.weights[name])
    for head in heads or ():
        if not 1 <= head <= count:
            raise UserError(f"--head {head}: the layer has heads 1 to {count}")
    row, tokens = None, one.rows(name)
    if word is not None:
        texts = one.texts(tokens) if words else tokens
        if word not in texts:
            raise UserError(f"--word {word}: the words are {' '.join(texts)}")
        row = texts.index(word)
    return Choice(name, [head - 1 for head in heads or range(1, count + 1)], row)


def _add_export(commands: Commands) -> None:
    export = commands.add_parser(
        "export",
        help="write the trained model as other programs read it, and check it there",
        description="Ends by translating sentences in the new engine and by this program: how many "
        "translations are the same, and both scores. Where they differ by more than the format "
        "accounts for, nothing is written and the exit status is 1.",
    )
    export.add_argument("folder", type=Path, help="where to: a folder that is not there yet")
    export.add_argument(
        "--format",
        choices=("ctranslate2", "marian", "onnx", "safetensors"),
        default="ctranslate2",
        help="of CTranslate2 (as without this), Hugging Face's MarianMTModel, ONNX (each with the "
        "extra of its name), or this program's own, one folder with a card",
    )
    export.add_argument(
        "--quantize",
        choices=("int8", "int8_float32", "bfloat16"),
        help="how CTranslate2 stores weights (float32)",
    )
    export.add_argument(
        "--check",
        nargs=2,
        type=Path,
        metavar=("SOURCE", "TARGET"),
        help="sentences and their translations to check it with (the test set in data/clean)",
    )
    add_trained(export)


def _export(options: argparse.Namespace) -> None:
    from seq2sweep.export import agreement, exporting

    form = exporting.chosen(options.format, options.quantize)
    translator = opened(options)
    with console.never_silent("export", sys.stderr):
        pairs = agreement.sentences(options.check, CLEAN, translator.settings["data"]["target"])
        bar = tqdm(total=2 * len(pairs[0]), **console.bar("check", "sentences"))
        with bar, _memory_for_positions(translator):
            found = exporting.export(translator, form, options.folder, *pairs, bar.update)
    own, asked = translator.config, agreement.searching(translator, form).config
    print(f"{options.folder} holds the model for {form.title}: {found}")
    if asked.length_penalty != own.length_penalty:
        print(
            f"both searched by log P / length ** {asked.alpha}, as {form.title} does, which does "
            "not know the paper's penalty"
        )
    if asked.stopping != own.stopping:
        why = f"{form.title} does not know {own.stopping}"
        print(f"both searched by evaluate.stopping {asked.stopping}: {why}")
    if asked.precision != own.precision:
        print(f"this program searched in {asked.precision} for it, not in {own.precision}")


def _memory_for_positions(translator: Translator) -> contextlib.AbstractContextManager[None]:
    """Other engines have a table of them, as long as the longest input and translation."""
    from seq2sweep.hardware import memory_by

    return memory_by(translator.remedy("lower evaluate.max_input_tokens"))


def _add_serve(commands: Commands) -> None:
    serve = commands.add_parser(
        "serve",
        help="answer over HTTP: translations, streamed too, attention maps, and a page to try it",
    )
    serve.add_argument(
        "--host",
        default="127.0.0.1",
        help="the address to listen on (127.0.0.1); any but this machine's own needs "
        "$SEQ2SWEEP_TOKEN, which, wherever it is set, all requests but / and /health must send",
    )
    serve.add_argument("--port", default="8000", help="its port (8000); 0: any free one")
    add_trained(serve)


def _serve(options: argparse.Namespace) -> None:
    from seq2sweep.serving.http_server import TOKEN, serve

    port = port_number(options.port, least=0)
    serve(opened(options), options.host, port, os.environ.get(TOKEN))


COMMANDS = {
    "translate": (_add_translate, _translate),
    "score-pairs": (_add_score_pairs, _score_pairs),
    "attend": (_add_attend, _attend),
    "export": (_add_export, _export),
    "serve": (_add_serve, _serve),
}
