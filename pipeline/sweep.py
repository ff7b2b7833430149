"""Train the variants of the `sweep` section with Ray Tune and score each on the validation set.

Writes reports/sweep.json and metrics/sweep.json; in MLflow a run for the sweep, under it one for
each variant, and under that one for each of its seeds. Trials that are trained already (in
`cluster.storage`) are not trained again.
"""

from __future__ import annotations

import contextlib
import functools
import math
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import torch

from seq2sweep import code_fingerprint, console, hardware, project_files
from seq2sweep import config as configuration
from seq2sweep.cluster.session import ray_session
from seq2sweep.cluster.tasks import ray_tasks
from seq2sweep.cluster.tune_runner import idle_gpus, require_room, run_sweep
from seq2sweep.config import KEEPING_FAILURES, Config
from seq2sweep.config.scores import SCORES, Score
from seq2sweep.data import files
from seq2sweep.data.bitext import Bitext, read_training_header
from seq2sweep.decode.receipt import receipt, weights_entry
from seq2sweep.errors import OperationalError, UserError
from seq2sweep.evaluate.attention.trial_heads import TrialScorer
from seq2sweep.evaluate.evaluation import Data
from seq2sweep.evaluate.translator import Translator
from seq2sweep.jobs import entrypoint
from seq2sweep.report.aggregate import aggregate
from seq2sweep.report.formats import table_files
from seq2sweep.report.pareto import cheapest
from seq2sweep.report.sweep_report import (
    COUNTS,
    by_length,
    describe,
    describe_entrants,
    describe_refused,
    describe_search,
    refused_of,
    sharing,
    significance,
    summarise,
    whole,
)
from seq2sweep.reproduce.run_record import Source
from seq2sweep.runs.layout import checkpoint_step, run_folder
from seq2sweep.runs.warm_start import begin_sweep, run_name
from seq2sweep.stages import preconditions, stage
from seq2sweep.stages.scoring import record_model
from seq2sweep.storage.atomic import sha256
from seq2sweep.sweep import contest
from seq2sweep.sweep.console_lines import outline, removal, say_choice, say_end, say_round
from seq2sweep.sweep.contest import Entrant
from seq2sweep.sweep.search import Proposal, search
from seq2sweep.sweep.trial_record import OnTrial, TrialResult
from seq2sweep.sweep.variants import (
    Variant,
    base_of,
    in_one_precision,
    variants,
)
from seq2sweep.tracking.lineage import (
    dataset_name,
    environment,
    made_by,
    parameters,
    registered_name,
    same_machine,
)
from seq2sweep.tracking.mlflow_store import VARIANTS
from seq2sweep.tracking.recorder import SCORE, Recorder, named
from seq2sweep.tracking.relay_thread import recorded_run
from seq2sweep.tracking.sweep_runs import SweepRecorder, compared, described_sweep, require_files
from seq2sweep.train.step import choose_precision

ALIAS = "best-of-sweep"


def trains(config: Config) -> bool:
    """Whether there is anything to train: a cluster is not asked to do nothing."""
    return config.sweep.method != "none"


def work(config: Config) -> None:
    if not trains(config):
        write_nothing(config)
        return
    header = stage.training_header(config)
    wanted, config = config, in_one_precision(config, functools.partial(resolve, config))
    chosen, refused = variants(config, Bitext.open(project_files.ENCODED, "train"))
    console.say(outline(config, chosen))
    for variant in refused:
        console.say(f"{variant.name}: refused ({variant.cause})")
    preconditions.require_all(config, chosen, int(header["vocabulary"]["size"]))
    require_files(config.sweep, chosen)
    started = time.perf_counter()
    lineage, source = stage.lineage(wanted, header), stage.source("sweep", header)
    title, params = f"sweep {config.sweep.method}", parameters(wanted, "sweep")
    run = recorded_run(wanted, title, kind="sweep", lineage=lineage, params=params)
    with (
        run as (relay, parent),
        SweepRecorder(parent, lineage, header) as recorder,
    ):
        recorder.use_data(parent, config)
        with recording(source, recorder) as ended:
            results, proposals, entrants = train(config, header, chosen, recorder, ended)
        relay.flush()
        relay.say_page(parent)
        run_ids = {name: relay.run_id(run) for name, run in recorder.runs.items()}
        refused += refused_of(proposals)
        refused += [one.refused for one in entrants if one.refused and one.refused not in refused]
        every = [*results, *(trial for one in entrants for trial in one.tries)]
        recorder.tell_sharing(shared := sharing(every))
        seconds = time.perf_counter() - started
        size = recorder.vocabulary_size
        references = project_files.CLEAN / files.text_name("valid", "target")
        report = whole(
            config,
            # Of method table2 the base may be missing.
            base_of(config) if config.sweep.method == "table2" else results[0].variant.config,
            lineage,
            files.test_set(project_files.CLEAN, "valid"),
            size,
            wall_seconds=seconds,
            mlflow_run_id=relay.run_id(parent),
            trials=[
                *(describe(r, size, run_ids, shared[r.variant.name]) for r in results),
                *(describe_refused(one, SCORES[config.data.score]) for one in refused),
            ],
            significance=significance(config, results, references),
            by_length=by_length(config, results, references, project_files.ENCODED),
            **describe_search(config, proposals),
            **describe_entrants(config, entrants),
        )
        summary = write_report(report)
        record(recorder, config, report, summary)
        if (best := summary["best"]) is not None:
            (result,) = [result for result in results if result.variant.name == best["name"]]
            best_run = recorder.runs[best["name"]]
            own = recorder.lineages[best["name"]]
            record_best(best_run, result, header=header, lineage=own, mean=best[config.data.score])
    job = entrypoint.results_of_stage()
    say_end(results, summary, len(refused), seconds, every, job)


def record(
    recorder: SweepRecorder, config: Config, report: dict[str, Any], summary: dict[str, Any]
) -> None:
    """Give the sweep's run its report, tables and numbers.

    report, summary: as in reports/sweep.json and metrics/sweep.json.
    """
    run, best = recorder.parent, summary["best"]
    run.artifact(project_files.SWEEP)
    run.text("environment.txt", environment())
    run.log({f"sweep/{key}": summary[key] for key in COUNTS})
    words = stage.dataset_in_words(config)
    for name, text in table_files(report, words, report["vocabulary_size"]).items():
        run.text(name, text)
    if best is not None:
        score = config.data.score
        run.log(named(SCORE, {f"valid_{score}": best[score]}))
        run.tag({"best": best["variant"]})
    found = aggregate(report)
    for variant in cheapest(report, found):
        recorder.variant_run(variant.name).tag({"pareto_front": "yes"})
    varied = [*dict.fromkeys(key for variant in found for key in variant.changes)]
    title = f"Variants: {SCORES[config.data.score].label} over FLOPs"
    run.view(VARIANTS, title, compared(SCORES[config.data.score], varied))
    run.describe(described_sweep(report, words, title))


@contextlib.contextmanager
def recording(source: Source, recorder: SweepRecorder) -> Iterator[dict[str, TrialResult]]:
    """Record the trials that the block puts into this, by name, once it ends; also where it is
    interrupted or fails: the next call, maybe with other libraries, would not."""
    ended: dict[str, TrialResult] = {}
    try:
        yield ended
    except BaseException:
        with contextlib.suppress(OSError, OperationalError, UserError):  # why it ends is known
            record_trials(source, recorder, [*ended.values()])
        raise
    record_trials(source, recorder, [*ended.values()])


def record_trials(source: Source, recorder: SweepRecorder, results: Sequence[TrialResult]) -> None:
    """Give each trial's run what it takes to train that trial alone again.

    Not where an earlier sweep trained it with other libraries or on another machine: the run of
    then has it. Code is the same by its meaning, whatever the commit.
    """
    now = made_by(recorder.lineage)
    for result in results:
        if not same_machine(now, result.made_by or {}):
            continue
        config, store, checkpoint = result.variant.alone, result.store, result.checkpoint
        scores: dict[str, Any] = {}
        if result.scored:
            names = SCORES[config.data.score].metrics
            scores = {name: result.metrics[name] for name in names if name in result.metrics}
            scores["translations"] = sha256(result.translations)
        weights = []
        if checkpoint is not None:
            sums = store.retried(functools.partial(store.sums, checkpoint.name))
            step = checkpoint_step(checkpoint)
            weights.append({"step": step, "sha256": sums["model.safetensors"]})
        source.record(
            recorder.runs[result.variant.name],
            config,
            trained=result.metrics | result.origin,
            weights=weights,
            curves=result.journal,
            scores=scores,
            stopped_early=result.status != "finished",
        )


def record_best(
    run: Recorder,
    result: TrialResult,
    *,
    header: dict[str, Any],
    lineage: dict[str, str],
    mean: float,
) -> None:
    """Give a trial's run its weights as a model, and make that a version of a registered model.

    header: of the encoded data; mean: of the variant's seeds' scores on the validation set.
    """
    variant, data = result.variant, result.variant.config.data
    score = SCORES[data.score]
    with result.fetched() as checkpoint, TemporaryDirectory() as name:
        folder, package = Path(name) / "weights", Path(name) / "model"
        weights = folder / files.CHECKPOINTS / f"{checkpoint.name}.safetensors"
        weights.parent.mkdir(parents=True)
        weights.symlink_to((checkpoint / "model.safetensors").resolve())
        entries = [weights_entry(checkpoint, weights)]
        own = lineage | {"params.sha256": configuration.fingerprint(variant.config)}
        made_of = receipt(run.name, entries, variant.config, own, result.metrics | result.origin)
        stage.write_json(folder / files.RECEIPT, made_of)
        translator = Translator(folder, project_files.VOCABULARY, variant.config.evaluate)
        metrics = named(SCORE, {f"valid_{name}": result.metrics[name] for name in score.columns})
        used = (dataset_name(data, "valid"), header["fingerprint"])
        record_model(
            run,
            variant.config.model.architecture,
            variant.config,
            translator,
            package,
            result.steps,
            metrics=metrics,
            dataset=used,
        )
    run.register(
        variant.config.model.architecture,
        registered_name(variant.config),
        ALIAS,
        {
            "variant": variant.variant,
            "seed": str(variant.seed),
            f"valid_{score.name}": f"{result.metrics[score.name]:.2f}",
            f"valid_{score.name}_mean": f"{mean:.2f}",
        },
    )


def resolve(config: Config, d_model: int) -> hardware.Precision:
    """What `train.precision: auto` is for a model of this width where trials run."""
    gpus = config.sweep.gpus_per_trial
    ask = functools.partial(choose_precision, "auto", torch.device("cuda" if gpus else "cpu"))
    here = not stage.on_cluster(config.cluster)
    if here and (not gpus or torch.cuda.is_available()):
        return ask(d_model)
    with ray_session(config.cluster):
        require_room(config)
        (found,) = ray_tasks(ask, [d_model], gpus=math.ceil(gpus))
    return found


def write_report(report: dict[str, Any]) -> dict[str, Any]:
    """Write reports/sweep.json and what metrics/ says of it; returns metrics/sweep.json."""
    summary = summarise(report)
    stage.write_json(project_files.SWEEP, report)
    shown = {key: summary[key] for key in ("finished", "failed")}
    score = Score.of(report).name
    best = summary["best"] and summary["best"][score]
    stage.write_metrics("sweep", summary, shown | {f"best_{score}": best})
    return summary


def write_nothing(config: Config) -> None:
    """The stage for method none: its files, without a trial. Neither Ray nor MLflow is started."""
    header = read_training_header(project_files.ENCODED)
    pieces = int(header["vocabulary"]["size"])
    test_set = files.test_set(project_files.CLEAN, "valid")
    base = base_of(config)
    report = whole(config, base, stage.lineage(config, header), test_set, pieces)
    write_report(report)
    console.say(
        "sweep.method is none: no variant is trained; to train some, set it in params.yaml "
        "(table3, one_at_a_time, ...), see `seq2sweep plan`, then run `dvc repro`"
    )


def train(
    config: Config,
    header: dict[str, Any],
    chosen: list[Variant],
    recorder: SweepRecorder,
    ended: dict[str, TrialResult],
) -> tuple[list[TrialResult], list[Proposal], list[Entrant]]:
    """Train and score what is chosen, or search from there on; with what a search proposed, and how
    the architectures of method table2 found their learning rates.

    ended: is given the trials that have ended by name, also where this is interrupted or fails.
    """
    made_from = stage.origin(header)
    name = run_name(made_from.identity, "sweep")
    if line := begin_sweep(run_folder(config.cluster, Path.cwd(), name), made_from):
        console.say(line)

    def keep(results: Sequence[TrialResult]) -> None:
        # A later round of a search may resume what an earlier one has stopped.
        ended.update({one.variant.name: one for one in results})

    run = functools.partial(
        run_sweep,
        config,
        on_end=keep,
        made_by=made_by(recorder.lineage),
        encoded=stage.for_workers(config, project_files.ENCODED, header["fingerprint"]),
        data=header["fingerprint"],
        project=Path.cwd(),
        name=name,
        score=TrialScorer.read(
            Data(project_files.CLEAN, project_files.VOCABULARY, project_files.ENCODED)
        ),
        scorer=code_fingerprint.of_parts(
            # Encoded data may be the same where a text has changed.
            stage.code_of(TrialScorer.__module__) | files.test_set(project_files.CLEAN, "valid")
        ),
    )

    with ray_session(config.cluster):
        if idle := idle_gpus(config.sweep):
            console.say(idle)
        if config.sweep.method not in KEEPING_FAILURES:
            return run(chosen, on_trial=recorder.hear), [], []
        data = Bitext.open(project_files.ENCODED, "train")

        def run_final(asked: Sequence[Variant], hear: OnTrial) -> list[TrialResult]:
            models = [one.config.model for one in asked]  # as a search has combined the parts
            preconditions.require_saved(models, int(header["vocabulary"]["size"]))
            return run(asked, final=True, on_trial=hear)

        if config.sweep.method == "table2":
            results, entrants = contest.compare(
                config, data, run_final, on_trial=recorder.hear, on_choice=say_choice
            )
            if (lost := entrants[0].refused) is not None:
                # All others are compared with it.
                raise OperationalError(
                    f"{entrants[0].name}: {lost.cause}; nothing to compare with: to try again "
                    f"{removal(entrants[0].tries[0], 'the folders of its tries')}"
                )
            return results, [], entrants
        say = functools.partial(say_round, config)
        return *search(config, data, run_final, on_trial=recorder.hear, on_round=say), []


if __name__ == "__main__":
    stage.run("sweep", "variants of the Transformer, on Ray Tune", work, as_job=trains)
