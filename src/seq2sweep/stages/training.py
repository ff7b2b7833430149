"""A training on Ray Train workers: its run, the weights that it exports, and its metrics.

A run that was interrupted resumes from its newest checkpoint in `cluster.storage`.
"""

from __future__ import annotations

import contextlib
import json
import math
import shutil
from pathlib import Path
from typing import Any

from seq2sweep import console, hardware
from seq2sweep.cluster.session import ray_session
from seq2sweep.cluster.train_driver import run_training
from seq2sweep.config import Config, is_address
from seq2sweep.data.files import CHECKPOINTS, RECEIPT
from seq2sweep.decode.receipt import receipt, weights_entry
from seq2sweep.errors import OperationalError, UserError
from seq2sweep.model import flops
from seq2sweep.report.markdown import markdown_table
from seq2sweep.runs import pass_size
from seq2sweep.runs.layout import (
    JOURNAL_NAME,
    Retention,
    checkpoint_name,
    checkpoint_step,
    run_folder,
)
from seq2sweep.runs.run_store import RunStatus, RunStore
from seq2sweep.runs.stores import driver_store
from seq2sweep.runs.warm_start import begin, run_name
from seq2sweep.stages import preconditions, stage
from seq2sweep.storage.atomic import whole_folder
from seq2sweep.storage.retry import in_thread
from seq2sweep.tracking.lineage import (
    LINEAGE,
    TOKENS_PER_PASS,
    UNKNOWN,
    dataset_name,
    document,
    environment,
    made_by,
    origin_tags,
    other_tags,
    parameters,
    same_machine,
)
from seq2sweep.tracking.recorder import COST, Recorder, named, present
from seq2sweep.tracking.relay_thread import recorded_run
from seq2sweep.train import checkpointing

MADE_BY = "made_by.json"
"""In the folder of a training: what `lineage.made_by` says of the last process that trained."""
SECTIONS = ("data", "prepare", "vocabulary", "model", "train")
"""Of params.yaml, what MLflow shows of a training; the rest is in its lineage.json."""
FIGURES = (
    "source_tokens target_tokens epochs skipped_updates wall_seconds tokens_per_second "
    "padding_share flops_per_second mfu device_hours energy_kwh"
).split()
"""What metrics/train.json has as the run's summary does."""


def train_on(encoded: Path, config: Config, name: str, exported_to: Path, about: str = "") -> Path:
    """Train, export the weights and write metrics/NAME.json; returns the folder of the run.

    encoded: the folder of the data. about: what MLflow shows of this training beside its data set.
    """
    header = stage.training_header(config, encoded)
    vocabulary_size = int(header["vocabulary"]["size"])
    preconditions.require_saved([config.model], vocabulary_size)
    preconditions.require_test_positions(config, encoded)
    parameter_count = flops.parameter_count(config.model, vocabulary_size)
    origin = stage.origin(header, config)
    run_of = run_name(origin.identity)
    retention = Retention.of(config)
    folder = run_folder(config.cluster, Path.cwd(), run_of)
    store = driver_store(config.cluster.storage, folder, retention)
    console.say(
        f"{parameter_count / 1e6:.2f}M parameters at a vocabulary of {vocabulary_size}, "
        f"{header['sentences']} pairs, {config.train.steps} steps, "
        f"{config.cluster.workers} worker(s)"
    )
    in_bucket = is_address(config.cluster.storage)
    if line := begin(folder, origin, retention.always(), in_bucket=in_bucket):
        console.say(line)
    lineage = stage.lineage(config, header, encoded=encoded)
    # Another seed of the stage train is all that a teacher is.
    source = stage.source("train" if name == "teacher" else name, header)
    # As the run that it began with, when it was interrupted.
    with recorded_run(
        config,
        f"{config.data.dataset} {config.data.source}-{config.data.target}{about and f', {about}'}",
        kind="experiment",
        journal=folder / JOURNAL_NAME,
        lineage=lineage,
        params=parameters(config, *SECTIONS, *["parsing"] * (config.data.task == "parsing")),
    ) as (relay, run):
        run.dataset(dataset_name(config.data, "train"), header["fingerprint"], "train")
        with ray_session(config.cluster):
            data = header["fingerprint"]
            status, trained_here = train(config, store, encoded, data, run, made_by(lineage))
            lineage, same = of_training(store, lineage, trained_here)
        kept = export(status.checkpoints, config, run_of, lineage, status.summary, exported_to)
        relay.flush()
        relay.say_page(run)
        run_id = relay.run_id(run)
        final = last_losses(max(status.checkpoints, key=checkpoint_step))
        metrics = training_metrics(header, status.summary, final, parameter_count, run_id)
        shown = {k: metrics[k] for k in ("steps", "parameters", "tokens_per_second")}
        shown |= {"flops": metrics["flops"]["model"]}
        stage.write_metrics(name, metrics, shown | {"valid_ppl": final.get("valid_perplexity")})
        cost = {"parameters": parameter_count} | present(status.summary, hardware.COSTS)
        run.log(named(COST, cost))
        run.replaces = trained_here
        # Those of what trained: it began with those of now, or has those of a training before.
        if lineage["git.commit"] != UNKNOWN:  # which MLflow may know
            run.tag(other_tags(lineage))
        run.text(LINEAGE, document(lineage, config, origin_tags(status.summary)))
        run.describe(described(config, metrics, about))
        run.artifact(exported_to / RECEIPT)
        curves = folder / JOURNAL_NAME
        if same:  # else the run of then has what it takes to train it again
            run.text("environment.txt", environment())
            source.record(run, config, trained=status.summary, weights=kept, curves=curves)
    say_end(metrics, len(kept), exported_to)
    return folder


def say_end(metrics: dict[str, Any], checkpoints: int, exported_to: Path) -> None:
    """What came out. metrics: as in metrics/train.json."""
    peak = metrics["peak_rss_bytes"]
    console.say(
        f"trained {metrics['steps']} steps in {console.duration(metrics['wall_seconds'])}, "
        f"{metrics['tokens_per_second']:,.0f} target tokens/s, valid perplexity "
        f"{number(metrics['final']['valid_perplexity'])}; "
        f"{checkpoints} checkpoints in {exported_to}"
        + ("" if peak is None else f"; peak memory {peak / 1e9:.2f} GB a worker")
        + ("" if metrics["mfu"] is None else f"; MFU {100 * metrics['mfu']:.1f} %")
    )
    warning = hardware.no_peak_warning(metrics["device"], metrics["precision"])
    if warning:
        console.say(warning)


def of_training(
    store: RunStore, lineage: dict[str, str], trained_here: bool
) -> tuple[dict[str, str], bool]:
    """The lineage with the code, libraries and machine by which a finished training ended, which
    are kept with it; and whether libraries and machine are those of now. An earlier version kept
    none: then they are not known."""
    now = made_by(lineage)
    if trained_here:
        return lineage, True
    kept = store.retried(lambda: store.read(MADE_BY))
    if kept is None:
        return lineage | dict.fromkeys(now, UNKNOWN), False
    try:
        then = {str(key): str(value) for key, value in json.loads(kept).items()}
    except (ValueError, AttributeError) as error:
        raise UserError(
            f"{MADE_BY} in {store.location} is damaged ({error}): remove it and run `dvc repro`"
        ) from None
    return lineage | then, same_machine(now, then)


def train(
    config: Config,
    store: RunStore,
    encoded: Path,
    data: str,
    run: Recorder,
    makes: dict[str, str],
) -> tuple[RunStatus, bool]:
    """Run the training; an interruption says from where it will resume.

    data: the fingerprint of the encoded data. run: learns how many tokens a pass has, where that is
    decided where it runs. makes: `lineage.made_by`, kept as soon as it trains: who exports the
    weights, after an interruption, may be another. Gives its status, and whether it was not
    finished before.
    """
    heard = False

    def hear(entry: dict[str, Any]) -> None:
        nonlocal heard
        if not heard:
            store.retried(lambda: store.write(MADE_BY, json.dumps(makes, indent=2) + "\n"))
        heard = True
        if entry["kind"] == "sized":
            run.params({TOKENS_PER_PASS: entry["tokens_per_pass"]})
        say_progress(entry, config.train.steps)

    try:
        status = run_training(
            config,
            store,
            encoded=stage.for_workers(config, encoded, data),
            data=data,
            on_event=hear,
        )
    except KeyboardInterrupt:
        with contextlib.suppress(OSError, OperationalError, UserError):
            step = in_thread(store.step, "step").result(store.last_answer_seconds)
            console.say(f"stopped; training resumes after step {step}")
        raise
    if config.train.tokens_per_pass == "auto":  # it may have been said before this process
        run.params({TOKENS_PER_PASS: status.summary["tokens_per_pass"]})
    return status, heard


def described(config: Config, metrics: dict[str, Any], about: str) -> str:
    """The training in Markdown, as MLflow shows it.

    metrics: as in metrics/train.json; about: what it is beside its data set.
    """
    table = [
        ("parameters", f"{metrics['parameters']:,}"),
        ("steps", f"{metrics['steps']:,}"),
        ("validation perplexity", number(metrics["final"]["valid_perplexity"])),
        ("training FLOPs", f"{metrics['flops']['model']:.2e}"),
        ("time", console.duration(metrics["wall_seconds"])),
        ("device", f"{metrics['workers']} x {metrics['device']}, {metrics['precision']}"),
    ]
    return "\n".join(
        [
            f"The training of {config.model.architecture} on {stage.dataset_in_words(config)}"
            f"{about and f' ({about})'}. Where it comes from is in "
            "[lineage.json](RUN_PAGE/artifacts/lineage.json); its scores, translations and report "
            "are in the evaluation below it, where there is one.",
            "",
            *markdown_table(("what", "value"), table),
        ]
    )


def say_progress(entry: dict[str, Any], steps: int) -> None:
    """One console line a log step, and one of what was decided where the run started."""
    if entry["kind"] == "logged":
        console.say(
            f"step {entry['step']:>6}/{steps}  loss {number(entry['loss'], 3)}  "
            f"grad norm {number(entry['gradient_norm'])}  lr {entry['learning_rate']:.2e}  "
            f"{entry['tokens_per_second']:>7,.0f} tok/s  "
            f"left {console.duration(entry['seconds_left'])}"
            + f"  skipped {entry['skipped_updates']:.0f}"
            * bool(entry["skipped_updates"])
        )
    elif entry["kind"] == "validated":
        console.say(
            f"step {entry['step']:>6}/{steps}  valid loss {number(entry['valid_loss'])}  "
            f"valid perplexity {number(entry['valid_perplexity'])}"
        )
    elif entry["kind"] == "sized":
        console.say(pass_size.in_words(entry))


def number(value: float | None, decimals: int = 2) -> str:
    """Rounded; the journal holds null for what is no number."""
    return "not finite" if value is None else console.perplexity(value, decimals)


def export(
    checkpoints: list[Path],
    config: Config,
    name: str,
    lineage: dict[str, str],
    summary: dict[str, Any],
    to: Path,
) -> list[dict[str, Any]]:
    """Copy the weights of the kept checkpoints to a folder such as models/train, with a receipt;
    gives its entries of them."""
    exported: list[dict[str, Any]] = []
    with whole_folder(to) as folder:
        (folder / CHECKPOINTS).mkdir()
        for checkpoint in checkpoints:
            weights = f"{checkpoint_name(checkpoint_step(checkpoint))}.safetensors"
            file = folder / CHECKPOINTS / weights
            shutil.copyfile(checkpoint / "model.safetensors", file)
            exported.append(weights_entry(checkpoint, file))
        stage.write_json(folder / RECEIPT, receipt(name, exported, config, lineage, summary))
    return exported


def training_metrics(
    header: dict[str, Any],
    summary: dict[str, Any],
    final: dict[str, Any],
    parameters: int,
    run_id: str | None,
) -> dict[str, Any]:
    """metrics/train.json."""
    return {
        "steps": summary["step"],
        **{key: summary[key] for key in FIGURES},
        "flops": {
            "model": summary["flops"],
            "padded": summary["padded_flops"],
            "paper_rule": summary["paper_rule_flops"],
        },
        "peak_rss_bytes": summary.get("peak_rss_bytes"),
        "peak_gpu_bytes": summary.get("peak_gpu_bytes"),
        "parameters": parameters,
        "vocabulary_size": header["vocabulary"]["size"],
        **{key: summary[key] for key in hardware.ORIGIN},
        "final": final,
        "mlflow_run_id": run_id,
    }


def last_losses(checkpoint: Path) -> dict[str, Any]:
    """The last ones before a checkpoint; None for what is no number.

    Not the journal's, which keeps what was told first: where the machine failed between that and
    the checkpoint, it may be of weights that are lost.
    """
    found = checkpointing.read_progress(checkpoint).newest
    wanted = ("loss", "valid_loss", "valid_perplexity")
    return {k: found[k] if math.isfinite(found[k]) else None for k in wanted if k in found}
