"""The weights of a training scored on the test set, and recorded with their scores in MLflow."""

from __future__ import annotations

import contextlib
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from tqdm import tqdm

from seq2sweep import config as configuration
from seq2sweep import console, project_files
from seq2sweep.config import Config, ModelConfig, TrainConfig
from seq2sweep.data.bitext import read_header
from seq2sweep.data.files import RECEIPT
from seq2sweep.decode.exported_weights import read_receipt
from seq2sweep.errors import UserError
from seq2sweep.evaluate.evaluation import (
    Data,
    Evaluation,
    evaluate_weights,
    shown,
    shown_by_dvc,
    signature,
)
from seq2sweep.evaluate.scores_in_words import in_words
from seq2sweep.evaluate.translations_table import table_rows
from seq2sweep.evaluate.translator import Translator
from seq2sweep.jobs import dvc_stages
from seq2sweep.report.markdown import markdown_table
from seq2sweep.serving.cpu_quota import keep_to_quota
from seq2sweep.serving.packaging import flavor, write_package
from seq2sweep.stages import stage
from seq2sweep.storage.atomic import write_whole
from seq2sweep.tracking.lineage import dataset_name, parameters, registered_name
from seq2sweep.tracking.recorder import COST, SCORE, Recorder, named
from seq2sweep.tracking.relay_thread import recorded_run


def score_model(
    config: Config,
    model: Path,
    name: str,
    table: Path,
    beside: Callable[[Evaluation], dict[str, Any]] = lambda result: {},
    ending: str = "",
) -> None:
    """Score the weights of a folder such as models/train: write metrics/NAME.json and the table of
    translations, and record them.

    beside: further metrics, made from what came out. ending: of the model's names in MLflow.
    """
    keep_to_quota()
    header = read_header(project_files.ENCODED, "test")
    receipt, made_of = _receipt(config, header, model)
    translator = Translator(model, project_files.VOCABULARY, config.evaluate)
    found, wanted = len(translator.steps), config.evaluate.average_checkpoints
    if found < wanted and not config.evaluate.checkpoint_steps:
        console.say(f"only {found} checkpoints can be averaged, of {wanted}")
    data = Data(project_files.CLEAN, project_files.VOCABULARY, project_files.ENCODED)
    lineage = stage.lineage(config, header, model=model)
    made_by = "evaluate" if model == project_files.MODEL else model.name
    if made_by != "evaluate":  # made by this very stage, of which dvc.lock has the run before
        lineage["input.model"] = dvc_stages.sum_of(model)
    source = stage.source(made_by, header, evaluate_weights.__module__)
    with recorded_run(
        config,
        f"test, beam {config.evaluate.beam}, alpha {config.evaluate.alpha}",
        kind="evaluation",
        **stage.training_run(model, receipt),
        name=stage.evaluation_of(receipt),
        lineage=lineage,
        params=parameters(config, "evaluate"),
    ) as (relay, run):
        sentences = header["sentences"]
        with (
            stage.mapper(config.cluster) as shared_out,
            tqdm(total=sentences, **console.bar("translate", "sentences")) as bar,
        ):
            result = evaluate_weights(config, translator, data, "test", bar.update, shared_out)
        relay.flush()
        relay.say_page(run)
        metrics = result.metrics | beside(result) | {"mlflow_run_id": relay.run_id(run)}
        write_whole(table, result.table)
        stage.write_metrics(name, metrics, shown_by_dvc(metrics, config))
        run.artifact(project_files.METRICS / f"{name}.json")
        record_text(run, config, table, result.table)
        record(run, config, translator, header, metrics, model.parent, ending)
        source.record(run, config, **made_of, scores=reproducible(metrics, config))
    console.say(f"{in_words(metrics)}, {metrics['decode_tokens_per_second']:,.0f} tokens/s")


def reproducible(metrics: dict[str, Any], config: Config) -> dict[str, Any]:
    """Of metrics/evaluate.json what the same weights, data and code give again."""
    scores = shown(metrics, config) | {"translations": metrics["made_from"]["translations"]}
    return {key: value for key, value in scores.items() if key != "decode_tokens_per_second"}


def _receipt(
    config: Config, header: dict[str, Any], folder: Path
) -> tuple[dict[str, Any], dict[str, Any]]:
    """That of the weights of a folder, and what is recorded of these; UserError where it is damaged
    or they are of another model or vocabulary.

    header: of the encoded data.
    """
    receipt = read_receipt(folder)
    where = f"{folder / RECEIPT}, which `dvc repro -f {folder.name}` writes again"
    trained = configuration.section(ModelConfig, receipt["config"]["model"], "model.", where)
    if trained != config.model:
        raise UserError(
            f"{folder} was trained with another `model` section than params.yaml has now: "
            "run `dvc repro evaluate`, which trains it first"
        )
    vocabulary = header["vocabulary"]["fingerprint"]
    if receipt["lineage"].get("data.vocabulary", vocabulary) != vocabulary:
        raise UserError(
            f"{folder} was trained with another vocabulary than {project_files.ENCODED} has now: "
            "run `dvc repro evaluate`, which trains it first"
        )
    return receipt, {
        # That which made them: params.yaml may have been edited since.
        "train": configuration.section(TrainConfig, receipt["config"]["train"], "train.", where),
        "trained": receipt.get("trained", {}),
        "weights": receipt["checkpoints"],
    }


def record_text(run: Recorder, config: Config, table: Path, text: str) -> None:
    """Give the run the table of translations, as a file and to look at, unless what is in it must
    stay here. text: that of the file."""
    if config.data.kept_back:
        return
    run.artifact(table)
    columns, *rows = table_rows(text)
    run.table("translations.json", columns, rows)


def record(
    run: Recorder,
    config: Config,
    translator: Translator,
    header: dict[str, Any],
    metrics: dict[str, Any],
    beside: Path,
    ending: str,
) -> None:
    """Give the run the model that was scored, and the training's run the scores.

    The model is registered, as the newest of its data and languages. translator: of what was
    scored; header: of the encoded data; metrics: as in metrics/evaluate.json; beside: a folder to
    make the model in; ending: as `score_model` has it.
    """
    figures, model = shown(metrics, config), f"{config.model.architecture}{ending}"
    score = str(config.data.score)
    main = {score: f"{figures[score]:.2f}"}
    speed = {"decode_tokens_per_second": figures.pop("decode_tokens_per_second")}
    figures = named(SCORE, figures) | named(COST, speed)
    used = (dataset_name(config.data, "test"), header["fingerprint"])
    run.dataset(*used, "eval")
    with _removed(beside / f".model{ending}.partial") as folder:
        about = {"averaged_checkpoints": str(metrics["averaged_checkpoints"])}
        record_model(
            run,
            model,
            config,
            translator,
            folder,
            translator.steps[-1],
            metrics=figures,
            dataset=used,
            tags=about,
        )
    run.register(model, registered_name(config) + ending, "newest", main)
    # Training and scores in one row of the UI.
    run.log(figures, on_parent=True)
    how = {f"{config.data.score}.signature": signature(metrics, config)}
    run.tag(how)
    run.tag(how, on_parent=True)
    run.describe(described(config, figures, how, ending))


@contextlib.contextmanager
def _removed(folder: Path) -> Iterator[Path]:
    """An empty folder for the block; what a killed process left of it goes as well."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def record_model(
    run: Recorder,
    name: str,
    config: Config,
    translator: Translator,
    folder: Path,
    step: int,
    **about: Any,
) -> None:
    """Give a run the model that a translator has, with its code; folder: to make that in, empty or
    not there; step: of the newest weights; about: further arguments of `Recorder.model`."""
    write_package(folder, translator)
    run.model(
        name,
        files=sorted(folder.iterdir()),
        params=configuration.flatten(config, "model"),
        step=step,
        flavor=flavor(translator),
        **about,
    )


def described(
    config: Config, figures: dict[str, float], how: dict[str, str], ending: str = ""
) -> str:
    """The evaluation in Markdown, as MLflow shows it, with links to what its run gets.

    figures, how: as they are recorded; ending: as `score_model` has it.
    """
    decoding = parameters(config, "evaluate").items()
    table = [(key, f"{value:,.2f}") for key, value in figures.items()]
    links = {"lineage": "lineage.json"}
    if not config.data.kept_back:
        links = {"translations": "translations.json", **links}
        if not ending:  # the stage report attaches it to the run of metrics/evaluate.json
            links = {"Report": "index.html", **links}
    return "\n".join(
        [
            f"The test set of {stage.dataset_in_words(config)}, translated and scored. "
            + " · ".join(f"[{what}](RUN_PAGE/artifacts/{file})" for what, file in links.items()),
            "",
            *markdown_table(("what", "value"), table),
            "",
            *(f"{key}: `{text}`" for key, text in how.items()),
            "",
            "Decoded with " + ", ".join(f"{key.partition('.')[2]} {v}" for key, v in decoding),
        ]
    )
