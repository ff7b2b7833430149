"""Which file is whose side of which split, and what is asked where names do not say it."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pyarrow as pa
import pyarrow.ipc
import pyarrow.parquet as pq
import pytest

from seq2sweep.data.own.discovery import Found, find
from seq2sweep.data.tables import shards
from seq2sweep.errors import UserError

UNKNOWN = (None, None)
EN_DE = ("en", "de")


@pytest.fixture(autouse=True)
def _here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def folder(*names: str, at: str = "own") -> str:
    for name in names:
        path = Path(at, name)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(b"a\n")
    return at


def table(name: str, *columns: str) -> None:
    """Columns of text; `translation.en` is inside of a struct."""
    values: dict[str, pa.Array] = {}
    structs: dict[str, list[str]] = {}
    for column in columns:
        outer, _, inner = column.partition(".")
        if inner:
            structs.setdefault(outer, []).append(inner)
        else:
            values[outer] = pa.array(["a"])
    for outer, inners in structs.items():
        values[outer] = pa.array([dict.fromkeys(inners, "a")])
    path, content = Path("own", name), pa.table(values)
    path.parent.mkdir(parents=True, exist_ok=True)
    if path.suffix == ".parquet":
        pq.write_table(content, path)
        return
    with pyarrow.ipc.new_stream(path, content.schema) as writer:
        writer.write_table(content)
    (path.parent / "state.json").write_text(json.dumps({"_data_files": [{"filename": path.name}]}))


def refused(message: str, *asked: object) -> None:
    with pytest.raises(UserError, match=re.escape(message)) as caught:
        find(*asked)  # type: ignore[arg-type]
    assert "\n" not in str(caught.value)


MULTI30K = [f"{stem}.{code}.gz" for stem in ("train", "val", "test_2016_flickr") for code in EN_DE]


def test_a_folder_by_the_words_of_its_names() -> None:
    where = folder(*MULTI30K, "README.md", "LICENSE", "deep/train.en", "notes.py")
    files = {
        "train": ("train.en.gz", "train.de.gz"),
        "valid": ("val.en.gz", "val.de.gz"),
        "test": ("test_2016_flickr.en.gz", "test_2016_flickr.de.gz"),
    }
    assert find(where, None, EN_DE) == Found(Path("own"), EN_DE, files)
    back = find(where, None, ("de", None))
    assert back.languages == ("de", "en")
    assert back.files["valid"] == ("val.de.gz", "val.en.gz")
    refused(
        "own has de, en: say what is translated into what, such as --from de", where, None, UNKNOWN
    )
    refused("own has no fr: it has de, en", where, None, ("fr", "de"))


@pytest.mark.parametrize("name", ["train", "news-commentary-v9.de-en", "Training_2"])
def test_one_pair_of_texts_is_for_training(name: str) -> None:
    where = folder(f"{name}.en", f"{name}.de", "other.en")
    expected = {"train": (f"{name}.en", f"{name}.de")}
    assert find(where, None, EN_DE).files == expected
    assert find(f"own/{name}", None, EN_DE).files == expected
    assert find(f"own/{name}.en", f"own/{name}.de", UNKNOWN) == Found(
        Path("own").absolute(), EN_DE, expected
    )


@pytest.mark.parametrize("name", ["news.dev", "test"])
def test_a_pair_that_is_named_is_for_training_whatever_its_words(name: str) -> None:
    folder(f"{name}.en", f"{name}.de", f"{name}.fr", "train.en", "train.de")
    expected = {"train": (f"{name}.de", f"{name}.fr")}
    assert find(f"own/{name}", None, ("de", "fr")) == Found(Path("own"), ("de", "fr"), expected)
    refused(f"own/{name} has de, en, fr: say what is", f"own/{name}", None, UNKNOWN)


def test_what_is_of_no_split_is_said() -> None:
    where = folder("train.en", "train.de", "more.en", "more.de", "test.en", "test.fr")
    found = find(where, None, EN_DE)
    assert (list(found.files), found.unused) == (["train"], ("more",))


def test_two_answers_are_one_too_many() -> None:
    where = folder("dev.en", "dev.de", "train.en", "train.de", "valid.en", "valid.de")
    refused("dev and valid are both valid by their names", where, None, EN_DE)
    where = folder("train.en", "train.en.gz", "train.de", at="both")
    refused("both has train.en and train.en.gz: remove one", where, None, EN_DE)
    where = folder("a.en", "a.de", "b.en", "b.de", at="neither")
    refused("none of a, b is train by its name", where, None, EN_DE)
    where = folder("test.en", "test.de", at="only")
    refused("none of test is train by its name", where, None, EN_DE)


def test_two_files_say_their_languages_or_are_asked() -> None:
    folder("a.en.gz", "deep/b.pt-BR", "c.txt", "a.sgm")
    found = find("own/a.en.gz", "own/deep/b.pt-BR", UNKNOWN)
    assert found.languages == ("en", "pt-BR")
    assert found.files == {"train": ("a.en.gz", "deep/b.pt-BR")}
    refused(
        "own/c.txt does not say its language: add --to LANGUAGE",
        "own/a.en.gz",
        "own/c.txt",
        UNKNOWN,
    )
    assert find("own/c.txt", "own/a.en.gz", ("fr", None)).languages == ("fr", "en")
    refused("own/a.en.gz is named twice", "own/a.en.gz", "own/a.en.gz", UNKNOWN)
    refused("own/x.en is missing", "own/x.en", "own/c.txt", EN_DE)
    for one in ("own", "own/", "./own"):
        refused(f"{one} is a folder: name two files", one, "own/c.txt", EN_DE)


def test_nothing_there_is_said() -> None:
    folder("a.en")
    Path("empty").mkdir()
    refused("empty has no two texts of one name in two languages", "empty", None, EN_DE)
    refused("own has no two texts", "own", None, EN_DE)
    for name in ("nowhere", "own/a", "own/a.en", "nowhere/deep", ""):
        with pytest.raises(UserError):
            find(name, None, EN_DE)


# --- tables --------------------------------------------------------------------------------------


def test_columns_are_found_by_their_languages() -> None:
    table("a.parquet", "translation.en", "translation.de", "source")
    files = {"train": ("a.parquet:translation.en", "a.parquet:translation.de")}
    assert find("own/a.parquet", None, ("en", None)) == Found(Path("own"), EN_DE, files)
    refused("has en, de: say what is translated into what", "own/a.parquet", None, UNKNOWN)
    refused("has no fr: it has en, de", "own/a.parquet", None, ("en", "fr"))
    table("b.parquet", "src", "tgt", "number")
    files = {"train": ("b.parquet:src", "b.parquet:tgt")}
    assert find("own/b.parquet", None, EN_DE).files == files
    refused("with columns src, tgt, number, has no language", "own/b.parquet", None, UNKNOWN)
    named = find("own/b.parquet:src", "own/b.parquet:tgt", EN_DE)
    assert named == Found(Path("own").absolute(), EN_DE, files)
    refused(
        "own/b.parquet:src does not say its language",
        "own/b.parquet:src",
        "own/b.parquet:tgt",
        UNKNOWN,
    )
    table("c.parquet", "translation.en", "translation.de")
    both = find("own/c.parquet:translation.de", "own/c.parquet:translation.en", UNKNOWN)
    assert both.languages == ("de", "en")


def test_columns_of_one_ending_are_not_guessed_between() -> None:
    table("a.parquet", "translation.en", "translation.de", "title.en", "title.de")
    files = {"train": ("a.parquet:translation.en", "a.parquet:translation.de")}
    assert find("own/a.parquet", None, EN_DE).files == files
    assert find("own/a.parquet", None, ("en", None)).files == files
    titles = find("own/a.parquet:title.en", "own/a.parquet:title.de", UNKNOWN)
    assert titles.files == {"train": ("a.parquet:title.en", "a.parquet:title.de")}
    table("b.parquet", "text.en", "text.de", "title.en", "title.fr")
    refused("b.parquet has text.en and title.en: name source", "own/b.parquet", None, EN_DE)
    assert find("own/b.parquet", None, ("de", "fr")).languages == ("de", "fr")
    table("c.parquet", "text.source", "text.target", "source")
    refused("c.parquet has source and text.source: name", "own/c.parquet", None, EN_DE)


def test_a_folder_of_shards() -> None:
    for name in (
        "train-00000-of-00002",
        "train-00001-of-00002",
        "validation-00000-of-00001",
        "test",
    ):
        table(f"{name}.parquet", "en", "de")
    train, valid = "train-?????-of-00002.parquet", "validation-?????-of-00001.parquet"
    found = find("own", None, EN_DE)
    assert found.absent == ()
    assert found.files == {
        "train": (f"{train}:en", f"{train}:de"),
        "valid": (f"{valid}:en", f"{valid}:de"),
        "test": ("test.parquet:en", "test.parquet:de"),
    }


@pytest.mark.parametrize(
    ("there", "absent"),
    [
        (("0000-of-0004", "0002-of-0004"), ("train-0001-of-0004.parquet", 1)),
        (("0-of-12", "10-of-12"), ("train-1-of-12.parquet", 9)),
        (("1-of-2", "2-of-2"), None),  # counted from one
        (("2-of-3", "3-of-3"), ("train-1-of-3.parquet", 0)),
        ((f"0-of-{10**30}",), (f"train-1-of-{10**30}.parquet", 10**30 - 2)),
    ],
)
def test_shards_that_are_not_there_are_named(
    there: tuple[str, ...], absent: tuple[str, int] | None
) -> None:
    for name in there:
        table(f"train-{name}.parquet", "en", "de")
    found = find("own", None, EN_DE)
    assert found.absent == ((absent,) if absent else ())
    (pattern,) = {name.partition(":")[0] for name in found.files["train"]}
    assert len(shards(Path("own", pattern))) == len(there)


def test_shards_of_two_sets_are_not_one_table() -> None:
    for name in ("0-of-2", "1-of-2", "0-of-3"):
        table(f"train-{name}.parquet", "en", "de")
    refused(
        "train-?-of-2.parquet and train-?-of-3.parquet are both train by their names",
        "own",
        None,
        UNKNOWN,
    )


def test_shards_that_a_pattern_cannot_tell_from_others_are_refused() -> None:
    for name in ("news-0-of-12", "news-10-of-12", "news-2024-dev-0-of-12"):
        table(f"{name}.parquet", "en", "de")
    refused(
        "own: news-2024-dev-0-of-12.parquet would be taken for a shard of news: rename it",
        "own",
        None,
        EN_DE,
    )


def test_a_stem_of_shards_may_hold_what_a_pattern_would() -> None:
    for name in ("[de]train-0-of-1", "dtrain-0-of-1.test"):
        table(f"{name}.parquet", "en", "de")
    found = find("own", None, EN_DE).files
    assert found["train"][0] == "[[]de]train-?-of-1.parquet:en"
    assert shards(Path("own/[[]de]train-?-of-1.parquet")) == [Path("own/[de]train-0-of-1.parquet")]


def test_shards_of_a_stem_are_not_those_of_a_longer_one() -> None:
    for name in ("news-00000-of-00001", "news-2024-dev-00000-of-00001"):
        table(f"{name}.parquet", "en", "de")
    found = find("own", None, EN_DE).files
    (pattern,) = {name.partition(":")[0] for name in found["train"]}
    assert [*Path("own").glob(pattern)] == [Path("own/news-00000-of-00001.parquet")]


def test_folders_of_save_to_disk() -> None:
    table("one/data-00000-of-00001.arrow", "en", "de")
    assert find("own/one", None, EN_DE) == Found(
        Path("own/one"), EN_DE, {"train": (".:en", ".:de")}
    )
    named = find("own/one:en", "own/one:de", UNKNOWN)
    assert named == Found(Path("own/one").absolute(), EN_DE, {"train": (".:en", ".:de")})
    for split in ("train", "validation"):
        table(f"two/{split}/data-00000-of-00001.arrow", "en", "de")
    listed = Path("own/two/dataset_dict.json")
    listed.write_text(json.dumps({"splits": ["train", "validation"]}))
    assert find("own/two", None, EN_DE).files == {
        "train": ("train:en", "train:de"),
        "valid": ("validation:en", "validation:de"),
    }
    listed.write_text(json.dumps({"splits": ["../one"]}))
    refused("names '../one', which is no saved data set", "own/two", None, EN_DE)
    listed.write_text("[]")
    refused("is damaged: call save_to_disk again", "own/two", None, EN_DE)
