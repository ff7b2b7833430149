"""Stage attention: what the model attends to on test sentences, and each head in numbers.

Writes reports/attention.html and metrics/attention.json; records both as a child run of the
training in MLflow. A model without attention, and `attention.sentences: 0`, are said in both files.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from tqdm import tqdm

from seq2sweep import console, project_files
from seq2sweep.config import Config
from seq2sweep.data import sources
from seq2sweep.data.archives import Text
from seq2sweep.data.bitext import Bitext
from seq2sweep.decode.exported_weights import read_receipt
from seq2sweep.evaluate.attention import attention_maps, head_numbers, word_alignment
from seq2sweep.evaluate.attention.attention_maps import Maps
from seq2sweep.evaluate.evaluation import Data
from seq2sweep.evaluate.translator import Translator
from seq2sweep.report import templates
from seq2sweep.report.attention import attention_page
from seq2sweep.serving.cpu_quota import keep_to_quota
from seq2sweep.stages import stage
from seq2sweep.storage.atomic import write_whole
from seq2sweep.tracking.lineage import parameters
from seq2sweep.tracking.recorder import Recorder
from seq2sweep.tracking.relay_thread import recorded_run
from seq2sweep.tracking.sweep_runs import head_metrics

PAGE = project_files.REPORTS / "attention.html"
ROOM = 800_000
"""Bytes of the page for weights, of which the longest sentence may take half."""


def work(config: Config) -> None:
    if not config.attention.sentences:
        write_none("No attention maps: `attention.sentences` is 0.")
        return
    keep_to_quota()
    data = Data(project_files.CLEAN, project_files.VOCABULARY, project_files.ENCODED)
    data.verify("test")
    translator = Translator(project_files.MODEL, project_files.VOCABULARY, config.evaluate)
    bitext = Bitext.open(project_files.ENCODED, "test")
    most = most_tokens(translator)
    chosen = head_numbers.sample(bitext, config.attention.measured, most)
    if not chosen:
        write_none(f"No attention maps: each test sentence has over {most} tokens.")
        return
    if not attention_maps.maps(
        translator.model, translator.vocabulary, head_numbers.pair(bitext, chosen[0])
    ).weights:
        architecture = translator.model.config.architecture
        write_none(f"No attention maps: `model.architecture` {architecture} has no attention.")
        return
    receipt = read_receipt(project_files.MODEL)
    lineage = stage.lineage(config, bitext.header, model=project_files.MODEL)
    with recorded_run(
        config,
        f"attention, {len(chosen)} sentences",
        kind="attention",
        **stage.training_run(project_files.MODEL, receipt),
        lineage=lineage,
        params=parameters(config, "evaluate", "attention"),
    ) as (relay, run):
        heads, aligned = measure(config, translator, bitext, chosen)
        page, shown = draw(config, translator, data, bitext, heads)
        relay.flush()
        metrics = {
            "reason": None,
            "sentences": shown,
            "measured": len(chosen),
            **head_numbers.summary(heads),
            "alignment": aligned,
            "checkpoints": list(translator.steps),
            "mlflow_run_id": relay.run_id(run),
            "of_heads": heads,
        }
        write_whole(PAGE, page)
        stage.write_json(project_files.METRICS / "attention.json", metrics)
        record(config, run, metrics)
    console.say(in_words(metrics))


def most_tokens(translator: Translator) -> int:
    """Of a side that is measured: what the model takes, and no more than is quickly measured."""
    return min(head_numbers.LONGEST, translator.longest_input)


def measure(
    config: Config, translator: Translator, bitext: Bitext, chosen: Sequence[int]
) -> tuple[list[head_numbers.Numbers], dict[str, Any] | None]:
    """Each head on these pairs of the test set and their references; and how well heads align
    words, where there is a gold alignment."""
    aligner, file = None, config.attention.alignments
    if file is not None:
        sources.check_there("attention.alignments", [file], config.data.folder)
        gold = word_alignment.read(Text(Path(config.data.folder) / file), len(bitext))
        aligner = word_alignment.Aligner([gold[i] for i in chosen])
        if not any(gold[i].possible for i in chosen):
            console.say(
                f"no alignment error rate: {file} aligns none of the {len(chosen)} test sentences "
                "that are measured; raise attention.measured, or align more of them"
            )
    pairs = [head_numbers.pair(bitext, i) for i in chosen]
    with tqdm(total=len(pairs), **console.bar("measure", "passes")) as bar:

        def hear(one: Maps) -> None:
            bar.total = len(pairs) + one.heads
            if aligner is not None:
                aligner.hear(one)

        model, vocabulary = translator.model, translator.vocabulary
        heads = head_numbers.measure(model, vocabulary, pairs, bar.update, hear)
    if aligner is None:
        return heads, None
    with_rates = [
        entry | {"aer": aligner.of_head(entry["layer"], entry["head"])} for entry in heads
    ]
    return with_rates, aligner.result()


def draw(
    config: Config,
    translator: Translator,
    data: Data,
    bitext: Bitext,
    heads: Sequence[head_numbers.Numbers],
) -> tuple[str, list[int]]:
    """The page, and the places of its sentences in the test set, from 1; there may be none. What
    would make it larger than MOST_BYTES, as a translation was longer than its reference, is left
    out."""
    lengths = list(zip(bitext.source_lengths.tolist(), bitext.target_lengths.tolist(), strict=True))
    most, lines = most_tokens(translator), data.lines("test", "source")
    wanted = choose(
        [
            pair if max(pair) <= most and lines[i].strip() else None
            for i, pair in enumerate(lengths)
        ],
        data.tags("test") or [[]] * len(bitext),
        config.attention.sentences,
        lambda n, m: attention_page.weight_bytes([entry["layer"] for entry in heads], n, m),
    )
    about = f"{stage.dataset_in_words(config)}, checkpoints {', '.join(map(str, translator.steps))}"
    page, kept, shown = attention_page.render([], heads, about), list[Maps](), list[int]()
    pairs = attention_maps.pairs(translator, [lines[i] for i in wanted]) if wanted else []
    for place, pair in zip(wanted, pairs, strict=True):
        one = attention_maps.maps(translator.model, translator.vocabulary, pair)
        larger = attention_page.render([*kept, one], heads, about)
        if len(larger.encode()) <= attention_page.MOST_BYTES:
            page, kept, shown = larger, [*kept, one], [*shown, place + 1]
    return page, shown


def choose(
    lengths: Sequence[tuple[int, int] | None],
    tags: Sequence[Sequence[str]],
    count: int,
    cost: Callable[[int, int], int],
) -> list[int]:
    """Which sentences are shown, by their place from 0: the first, the longest, one for each
    phenomenon that none before has, and then those that follow the first.

    lengths: tokens of source and reference, None of one that cannot be shown; cost: bytes of a
    sentence on the page. The longest may take half of ROOM, all others together the other half.
    """
    costs = [None if pair is None else cost(*pair) for pair in lengths]
    short = [i for i, bytes_ in enumerate(costs) if bytes_ and bytes_ <= ROOM / 2 / count]
    long = [i for i, bytes_ in enumerate(costs) if bytes_ and bytes_ <= ROOM / 2]
    found = short[:1]
    if count > 1 and long:
        found.append(max(long, key=lambda i: (sum(lengths[i] or ()), -i)))
    for tag in sorted({tag for of in tags for tag in of}):
        if not any(tag in tags[i] for i in found):
            found += next(([i] for i in short if tag in tags[i]), [])
    return [*dict.fromkeys([*found, *short])][:count]


def record(config: Config, run: Recorder, metrics: dict[str, Any]) -> None:
    """Give the run the page, which has sentences, unless these are private; all heads as a table;
    and the few numbers, which the training's run gets too."""
    with TemporaryDirectory() as name:
        folder = Path(name) / "attention"
        folder.mkdir()
        if not config.data.kept_back:
            write_whole(folder / "index.html", PAGE.read_text(encoding="utf-8"))
        write_whole(folder / "heads.csv", attention_page.heads_as_csv(metrics["of_heads"]))
        run.artifact(folder)
    run.artifact(project_files.METRICS / "attention.json")
    few = head_metrics(metrics)
    if metrics["alignment"]:
        few["heads/aer"] = metrics["alignment"]["best_head"]["aer"]
    run.log(few)
    run.log(few, on_parent=True)


def in_words(metrics: dict[str, Any]) -> str:
    """The numbers that say most, for the console."""
    entropy, removable = metrics["cross_attention_entropy"], metrics["removable"]
    parts = [f"{metrics['heads']} heads on {metrics['measured']} sentences"]
    if entropy is not None:
        parts.append(f"entropy of the attention over the source {entropy:.2f}")
    parts.append(f"{metrics['positional']} positional")
    if removable is not None:
        parts.append(f"{removable:.0%} can be left out for under {head_numbers.REMOVABLE:g} nats")
    if aligned := metrics["alignment"]:
        count = f"{aligned['sentences']} aligned sentence{'s' * (aligned['sentences'] != 1)}"
        parts.append(f"AER of the best {aligned['best_head']['aer']:.3f} on {count}")
    return ", ".join(parts)


def write_none(reason: str) -> None:
    """Both files where there is nothing to show."""
    write_whole(PAGE, templates.render("attention/none.html", reason=reason))
    stage.write_json(project_files.METRICS / "attention.json", {"reason": reason})
    console.say(reason.replace("`", ""))


if __name__ == "__main__":
    stage.run("attention", "what the model attends to, and each head in numbers", work)
