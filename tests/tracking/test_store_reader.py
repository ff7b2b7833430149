"""Runs of a store by how their ids begin, models by name, and that MLflow loads them."""

from __future__ import annotations

import functools
import shutil
import sys
import tempfile
from pathlib import Path
from typing import Any

import mlflow
import pytest
from botocore.exceptions import NoCredentialsError
from mlflow.entities import FileInfo

from seq2sweep import config as configuration
from seq2sweep.cli import main
from seq2sweep.config import Config
from seq2sweep.errors import OperationalError, UserError
from seq2sweep.evaluate.translator import Translator
from seq2sweep.reproduce.stored_record import StoredRecord
from seq2sweep.serving.packaging import flavor, write_package
from seq2sweep.tracking import mlflow_store, store_reader
from seq2sweep.tracking.mlflow_runs import Run
from seq2sweep.tracking.mlflow_store import Experiment, destination
from seq2sweep.tracking.store_reader import StoreReader, model_folder

from ..conftest import Corpus
from ..export import made_up_models

LINES = ["alpha beta", "gamma alpha beta"]


def test_a_run_is_found_by_how_its_id_begins(experiment: Experiment, uri: str, run: Run) -> None:
    reader = StoreReader(uri)
    assert reader.find(run.id) == reader.find(run.id[:20]) == run.id
    assert StoreReader(f"{uri}?timeout=30").find(run.id) == run.id
    other = "0" * 20 if not run.id.startswith("0" * 20) else "1" * 20
    with pytest.raises(UserError, match=f"run id {other}: .*has no such run, or it was deleted"):
        reader.find(other)
    run.client.delete_run(run.id)
    with pytest.raises(UserError, match="no such run"):
        reader.find(run.id)


def test_an_id_that_begins_two_runs_is_refused(
    experiment: Experiment, uri: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    reader = StoreReader(uri)
    monkeypatch.setattr(reader, "_search", lambda filter_string: [1, 2])
    with pytest.raises(UserError, match="run id abcd: those of 2 runs begin so"):
        reader.find("abcd")


@pytest.mark.parametrize("run_id", ["", "abc", "ABCD", "abcd%", "a' OR '1", "x" * 500, "0" * 33])
def test_what_is_no_run_id_is_refused(experiment: Experiment, uri: str, run_id: str) -> None:
    with pytest.raises(UserError, match="is no run id") as caught:
        StoreReader(uri).find(run_id)
    assert len(str(caught.value)) < 250


def test_runs_know_what_is_above_and_below_them(experiment: Experiment, uri: str, run: Run) -> None:
    below = [
        Run.begin(experiment, f"{run.id}.{n}", "below", started=1_700_000_000.0 + n, parent=run.id)
        for n in range(2)
    ]
    reader = StoreReader(uri)
    assert reader.children(run.id) == [below[1].id, below[0].id]
    assert reader.parent(below[0].id) == run.id
    assert reader.parent(run.id) is None
    assert reader.children(below[0].id) == []


def test_runs_are_found_on_every_page_of_an_answer(
    experiment: Experiment, uri: str, folder: Path, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    below = [
        Run.begin(experiment, f"{run.id}.{n}", "below", started=1_700_000_000.0 + n, parent=run.id)
        for n in range(2)
    ]
    Experiment(uri, "newer than that of the runs", folder / "artifacts")
    reader = StoreReader(uri)
    for name in ("search_experiments", "search_runs"):
        one = functools.partial(getattr(reader.client, name), max_results=1)
        monkeypatch.setattr(reader.client, name, one)
    assert reader.find(run.id) == run.id
    assert reader.children(run.id) == [below[1].id, below[0].id]
    monkeypatch.setattr(store_reader, "AT_ONCE", 1)
    assert reader.runs([run.id, below[0].id, "0" * 32]).keys() == {run.id, below[0].id}


def test_files_of_a_run_are_fetched_by_name_and_within_a_size(
    uri: str, run: Run, tmp_path: Path
) -> None:
    (tmp_path / "of").mkdir()
    for name, text in {"a": "first", "b": "second", "other": "third"}.items():
        (tmp_path / "of" / name).write_text(text)
    (tmp_path / "of" / "folder").mkdir()
    (tmp_path / "of" / "folder" / "x").write_text("")
    run.artifact([tmp_path / "of"])
    reader = StoreReader(uri)
    reader.fetch(run.id, "of", ["a", "b", "missing"], 6, tmp_path / "to")
    assert {p.name: p.read_text() for p in (tmp_path / "to").iterdir()} == {
        "a": "first",
        "b": "second",
    }
    for name in ("b", "folder"):
        with pytest.raises(UserError, match=f"of/{name} is no file of at most 5 bytes"):
            reader.fetch(run.id, "of", [name], 5, tmp_path / f"again {name}")
    reader.fetch(run.id, "nowhere", ["a"], 5, tmp_path / "nothing")
    assert list((tmp_path / "nothing").iterdir()) == []


@pytest.mark.parametrize(
    "error", [NoCredentialsError(), ModuleNotFoundError("No module named 'boto3'")]
)
def test_a_bucket_that_cannot_be_read_is_told_in_one_line(
    experiment: Experiment, uri: str, error: Exception
) -> None:
    with pytest.raises(UserError, match=f"cannot be used .{error}"), StoreReader(uri).reading():
        raise error


def test_reading_makes_no_store(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"mlflow\.db is missing: set tracking\.uri or \$MLFLOW"):
        StoreReader(f"sqlite:///{tmp_path}/mlflow.db")
    assert list(tmp_path.iterdir()) == []
    (tmp_path / "mlflow.db").write_text("this is a text file, long enough to be looked at" * 20)
    with pytest.raises(UserError, match=r"tracking\.uri: .*file is not a database"):
        StoreReader(f"sqlite:///{tmp_path}/mlflow.db")


# --- models --------------------------------------------------------------------------------------


class Store:
    """A store with a training, and an evaluation of it whose model is version 1 of `tiny`."""

    def __init__(self, config: Config, corpus: Corpus, folder: Path) -> None:
        self.config = configuration.with_changes(
            config, {"tracking.uri": f"sqlite:///{folder / 'mlflow.db'}"}
        )
        _, self.uri, name, artifacts = destination(self.config, folder)
        self.experiment = Experiment(self.uri, name, artifacts)
        self.translator = made_up_models.translator(folder / "made", self.config, corpus)
        self.training = Run.begin(self.experiment, "train.1", "train", started=1.0)
        self.evaluation = Run.begin(
            self.experiment, "evaluation.1", "test", started=2.0, parent=self.training.id
        )
        self.model_id = self.log(self.evaluation, folder / "package")
        self.evaluation.register("transformer", "tiny", "newest", {}, 3.0)

    def log(self, run: Run, folder: Path, translator: Translator | None = None) -> str:
        write_package(folder, translator or self.translator)
        return run.model(
            "transformer",
            sorted(folder.iterdir()),
            params={},
            metrics={"bleu": 1.0},
            dataset=("tiny", "0"),
            step=7,
            tags={},
            time=3.0,
            flavor=flavor(translator or self.translator),
        )


@pytest.fixture(scope="module")
def store(
    tables: Path, tiny_config: Config, tiny_corpus: Corpus, tmp_path_factory: pytest.TempPathFactory
) -> Store:
    """For tests that change nothing of what is in it, as it takes seconds to make."""
    folder = tmp_path_factory.mktemp("store")
    shutil.copy(tables, folder / "mlflow.db")
    return Store(tiny_config, tiny_corpus, folder)


def opened(store: Store, name: str, folder: Path) -> Translator:
    with model_folder(name, store.config, folder) as found:
        return Translator.open(found)


def test_a_model_is_found_by_each_of_its_names(
    store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    expected = store.translator.translate(LINES)
    client, source = store.experiment.client, f"models:/{store.model_id}"
    monkeypatch.setenv("MLFLOW_TRACKING_URI", store.uri)
    client.create_registered_model("mine")
    client.create_model_version("mine", source, model_id=store.model_id)
    for name in (
        "models:/mine/1",  # as mlflow.register_model makes it
        "models:/tiny@newest",
        "models:/tiny/1",
        f"models:/{store.model_id}",
        store.evaluation.id,
        store.evaluation.id[:8],
        store.training.id,
    ):
        assert opened(store, name, tmp_path).translate(LINES) == expected


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("models:/tiny@best", "MLflow has no such model"),
        ("models:/tiny/2", "MLflow has no such model"),
        (f"models:/tiny/{'9' * 20}", "MLflow has no such model"),
        ("models:/huge@newest", "MLflow has no such model"),
        ("models:/m-0", "MLflow has no such model"),
        ("", "is no run id"),
        ("0123456789", "has no such run, or it was deleted there"),
        ("../made/weights", "is no run id"),
    ],
)
def test_what_is_not_there_is_told_in_one_line(
    store: Store, tmp_path: Path, name: str, said: str
) -> None:
    with pytest.raises(UserError, match=said) as refused:
        opened(store, name, tmp_path)
    assert "\n" not in str(refused.value)


def test_files_that_are_gone_are_not_blamed_on_the_database(
    tables: Path, tiny_config: Config, tiny_corpus: Corpus, tmp_path: Path
) -> None:
    """As of a project that was moved: MLflow keeps absolute paths."""
    shutil.copy(tables, tmp_path / "mlflow.db")
    store = Store(tiny_config, tiny_corpus, tmp_path)
    reader = StoreReader(store.uri)
    (tmp_path / "file").write_text("text")
    store.training.artifact([tmp_path / "file"])
    assert reader.lost(store.training.id) is None
    [artifacts] = [path for path in tmp_path.rglob("mlartifacts") if path.is_dir()]
    artifacts.rename(tmp_path / "moved away")
    assert str(artifacts) in (reader.lost(store.training.id) or "")
    with pytest.raises(UserError) as refused:
        opened(store, "models:/tiny@newest", tmp_path)
    assert str(refused.value).startswith("models:/tiny@newest: its files are not in ")
    assert str(artifacts) in str(refused.value)
    with pytest.raises(UserError, match=f"run {store.training.id}: its files are not in ") as of:
        StoredRecord.fetch(reader, store.training.id, tmp_path / "record")
    assert "was the project moved" in str(of.value)


@pytest.mark.parametrize(
    ("place", "local"),
    [
        ("mlflow-artifacts:/0/models/m-1/artifacts", False),
        ("s3://bucket/0", False),
        ("file:///somewhere/0", True),
        ("/somewhere/0", True),
    ],
)
def test_what_is_elsewhere_is_downloaded_to_a_folder_that_goes(
    store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, place: str, local: bool
) -> None:
    asked: list[str | None] = []

    def download(artifact_uri: str, dst_path: str | None, tracking_uri: str) -> str:
        asked.append(dst_path)
        assert artifact_uri == (place if local else f"{place}/model.safetensors")
        copied = Path(dst_path or tmp_path, "below")
        copied.write_text("weights")
        return str(copied if dst_path else tmp_path)

    def listed(artifact_uri: str, tracking_uri: str) -> list[FileInfo]:
        assert artifact_uri == place
        # What no model has may be of any size.
        files = {"model.safetensors": False, "corpus.bin": False, "manifest.json": True}
        return [FileInfo(f"m-1/{name}", folder, 9) for name, folder in files.items()]

    monkeypatch.setattr(store_reader, "_of_run", lambda *_: place)
    monkeypatch.setattr(mlflow.artifacts, "download_artifacts", download)
    monkeypatch.setattr(mlflow.artifacts, "list_artifacts", listed)
    with pytest.raises(UserError, match="no model that this version"):
        opened(store, "any", tmp_path)
    [folder] = asked
    assert (folder is None) == local
    assert folder is None or not Path(folder).exists()


def test_a_model_that_the_temporary_folder_has_no_room_for_is_not_begun(
    store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """MLflow would blame its server."""
    sizes = {"model.safetensors": 10**18, "corpus.bin": 10**19}
    listed = [FileInfo(f"m-1/{name}", False, size) for name, size in sizes.items()]
    monkeypatch.setattr(store_reader, "_of_run", lambda *_: "s3://bucket/0")
    monkeypatch.setattr(mlflow.artifacts, "list_artifacts", lambda **_: listed)
    monkeypatch.setattr(mlflow.artifacts, "download_artifacts", lambda **_: pytest.fail("it began"))
    with pytest.raises(OperationalError, match=r"^any has 1.00EB, and .* free: make room there"):
        opened(store, "any", tmp_path)


def test_a_folder_elsewhere_that_has_nothing_is_gone(
    store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(store_reader, "_of_run", lambda *_: "s3://bucket/0")
    monkeypatch.setattr(mlflow.artifacts, "list_artifacts", lambda **_: [])
    with pytest.raises(UserError, match="any: its files are not in s3://bucket/0"):
        opened(store, "any", tmp_path)


def test_the_newest_model_of_a_training_is_used(
    store: Store, tiny_corpus: Corpus, tmp_path: Path
) -> None:
    training = Run.begin(store.experiment, "train.2", "train", started=8.0)
    first, later = (
        Run.begin(store.experiment, f"evaluation.{n}", "test", started=9.0, parent=training.id)
        for n in (2, 3)
    )
    store.log(first, tmp_path / "first")
    other = made_up_models.translator(tmp_path / "other", store.config, tiny_corpus, "unscaled")
    store.log(later, tmp_path / "second", other)
    assert opened(store, training.id, tmp_path).settings["model"]["attention"] == "dot_product"


def test_the_newest_model_is_not_the_one_that_was_delivered_last(
    store: Store, tiny_corpus: Corpus, tmp_path: Path
) -> None:
    """An evaluation of Monday may come to MLflow after that of Tuesday."""
    training = Run.begin(store.experiment, "train.3", "train", started=8.0)
    monday, tuesday, wednesday = (
        Run.begin(store.experiment, f"day.{n}", "test", started=9.0 + n, parent=training.id)
        for n in range(3)
    )
    other = made_up_models.translator(tmp_path / "other", store.config, tiny_corpus, "unscaled")
    store.log(tuesday, tmp_path / "tuesday", other)
    store.log(monday, tmp_path / "monday")
    store.experiment.client.create_logged_model(  # of which not all is there
        store.experiment.id, name="transformer", source_run_id=wednesday.id
    )
    assert opened(store, training.id, tmp_path).settings["model"]["attention"] == "dot_product"


def test_a_model_is_found_by_a_search_a_level(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    """However many runs there are beside it."""
    sweep = Run.begin(store.experiment, "sweep.large", "sweep", started=9.0)
    best = Run.begin(store.experiment, "best.large", "best", started=9.0, parent=sweep.id)
    for n in range(3):
        Run.begin(store.experiment, f"other.{n}", "other", started=10.0 + n, parent=sweep.id)
    created = store.experiment.client.create_logged_model(
        store.experiment.id, name="transformer", source_run_id=best.id
    )
    store.experiment.client.finalize_logged_model(created.model_id, "READY")
    made: list[str] = []
    real = StoreReader._search

    def search(reader: StoreReader, filter_string: str) -> list[Any]:
        made.append(filter_string)
        return real(reader, filter_string)

    monkeypatch.setattr(StoreReader, "_search", search)
    place = store_reader._of_run(StoreReader(store.uri), sweep.id)
    assert place == created.artifact_location
    assert len(made) == 3


def test_runs_that_a_person_put_in_a_circle_end_the_search(store: Store) -> None:
    runs = [Run.begin(store.experiment, f"circle.{n}", "x", started=9.0) for n in range(2)]
    for run, other in zip(runs, reversed(runs), strict=True):
        run.tag({"mlflow.parentRunId": other.id})
    created = store.experiment.client.create_logged_model(
        store.experiment.id, name="transformer", source_run_id=runs[0].id
    )
    store.experiment.client.finalize_logged_model(created.model_id, "READY")
    alone = Run.begin(store.experiment, "alone.1", "x", started=9.0)
    with pytest.raises(UserError, match=f"the run {alone.id} has no model"):
        store_reader._of_run(StoreReader(store.uri), alone.id)


@pytest.mark.parametrize("seeds", [False, True])
def test_of_a_sweep_the_best_variant_has_a_model(seeds: bool, store: Store, tmp_path: Path) -> None:
    sweep = Run.begin(store.experiment, f"sweep.{seeds}", "sweep", started=9.0)
    best, other = (
        Run.begin(store.experiment, f"{name}.{seeds}", name, started=9.0, parent=sweep.id)
        for name in ("dropout=0", "base")
    )
    seed = Run.begin(store.experiment, f"seed=1.{seeds}", "seed=1", started=9.0, parent=best.id)
    store.log(seed if seeds else best, tmp_path / "best")
    expected = store.translator.translate(LINES)
    for name in (best.id, best.id[:8], sweep.id):
        assert opened(store, name, tmp_path).translate(LINES) == expected
    with pytest.raises(UserError, match=f"the run {other.id} has no model: .* best variants"):
        opened(store, other.id, tmp_path)


def test_a_run_whose_files_are_in_a_bucket_is_exported_and_nothing_of_them_stays(
    tiny_config: Config, tiny_corpus: Corpus, tmp_path: Path, bucket: str,
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    uri = f"sqlite:///{tmp_path / 'mlflow.db'}"
    mlflow_store.open_store(uri, bucket).create_experiment(
        tiny_config.tracking.experiment, artifact_location=bucket
    )
    store = Store(tiny_config, tiny_corpus, tmp_path)
    place = store.experiment.client.get_logged_model(store.model_id).artifact_location
    assert place.startswith(bucket)
    monkeypatch.chdir(tmp_path)
    Path("params.yaml").write_text(configuration.dump(store.config), encoding="utf-8")
    (tmp_path / "temporary").mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "temporary"))
    check = [str(tiny_corpus.clean / f"test.{side}.txt") for side in ("source", "target")]
    asked = ["export", "exported", "--format", "safetensors", "--model", store.training.id]
    assert main([*asked, "--check", *check]) == 0
    assert "40 of 40 the same" in capsys.readouterr().out
    assert Translator.open(Path("exported")).translate(LINES) == store.translator.translate(LINES)
    assert list((tmp_path / "temporary").iterdir()) == []


def test_mlflow_loads_it_with_its_signature(
    store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "path", [*sys.path])  # it puts the model's code there
    place = store.experiment.client.get_logged_model(store.model_id).artifact_location
    loaded = mlflow.pyfunc.load_model(place)
    table = loaded.predict([{"text": line} for line in LINES], params={"beam": 3, "n_best": 2})
    config = store.translator.searched(2, beam=3)
    found = store.translator.translate(LINES, 2, config=config)
    assert table["translation"].tolist() == [one.text for best in found for one in best]
    own = store.translator.config
    params = {spec.name: spec.default for spec in loaded.metadata.signature.params.params}
    assert own.stopping == "exact"
    assert params == {"beam": own.beam, "alpha": own.alpha, "stopping": "exact", "n_best": 1}
    assert loaded.metadata.model_id == store.model_id
    with pytest.raises(Exception, match=r"evaluate\.beam must be at least 1"):
        loaded.predict([{"text": "alpha"}], params={"beam": 0})


def test_a_model_without_a_manifest_is_refused(store: Store, tmp_path: Path) -> None:
    """As those that earlier versions recorded."""
    run = Run.begin(store.experiment, "evaluation.4", "test", started=9.0)
    (tmp_path / "receipt.json").write_text("{}")
    run.model("transformer", [tmp_path / "receipt.json"], {}, {}, ("d", "0"), 1, {}, 1.0)
    with pytest.raises(UserError, match="no model that this version of seq2sweep can load"):
        opened(store, run.id, tmp_path)
