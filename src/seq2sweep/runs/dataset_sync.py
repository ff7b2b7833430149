"""Encoded data by way of a bucket, for nodes that do not see the project's folder.

`<cluster.storage>/encoded/<sum>/` has the files of the splits that training reads, the headers
last: where they are, all was there once.
"""

from __future__ import annotations

import hashlib
import shutil
from pathlib import Path

from seq2sweep import console
from seq2sweep.data.bitext import read_header
from seq2sweep.data.files import header_name
from seq2sweep.errors import UserError
from seq2sweep.storage.atomic import sha256, whole_folder
from seq2sweep.storage.locks import only_user
from seq2sweep.storage.object_store import ObjectStore, node_folder

CHANGES_NO_RESULT = "how the same files get to a node"

SPLITS = ("train", "valid")
TRANSFER_SECONDS = 3600.0
"""How long data and checkpoint may take to be downloaded, and who needs the same waits."""


def publish(folder: Path, storage: ObjectStore) -> str:
    """Upload what of the data is not there, whole; gives its address."""
    place = storage.at(f"encoded/{fingerprint(folder)}")
    there = place.sizes()
    headers = [header_name(split) for split in SPLITS]
    about = {split: read_header(folder, split)["files"] for split in SPLITS}
    sizes = {name: file["bytes"] for files in about.values() for name, file in files.items()}
    # A bucket's rule of expiry may have taken any of them.
    missing = [name for name, size in sizes.items() if there.get(name) != size]
    if not missing and all(name in there for name in headers):
        return place.address
    console.say(f"upload of {folder} to {place.address}, for all nodes")
    for name in missing + headers:
        place.upload(folder / name, name)
    return place.address


def fetch(folder: Path, address: str) -> Path:
    """The data on this node: `folder` where that is the same, else a copy, made if it is missing.

    address: as `publish` gave it.
    """
    wanted = address.rpartition("/")[2]
    if _has(folder, wanted):
        return folder
    place = node_folder(address)
    with only_user(place, "fetch.lock", TRANSFER_SECONDS):
        copy = place / "data"
        if not _has(copy, wanted):
            _copy(ObjectStore(address), copy)
    return copy


def fingerprint(folder: Path) -> str:
    """sha256 (hex) of what training reads: its headers have the sums of all other files."""
    content = b"".join((folder / header_name(split)).read_bytes() for split in SPLITS)
    return hashlib.sha256(content).hexdigest()


def _has(folder: Path, wanted: str) -> bool:
    try:
        return fingerprint(folder) == wanted
    except OSError:
        return False


def _copy(bucket: ObjectStore, copy: Path) -> None:
    """Copy and verify all; a kill in between leaves nothing under the final name."""
    shutil.rmtree(copy, ignore_errors=True)  # as there may be no room for both
    with whole_folder(copy) as beside:
        for split in SPLITS:
            bucket.download(header_name(split), beside / header_name(split))
        # They name files to write here: only those that `publish` uploaded may.
        if not _has(beside, bucket.address.rpartition("/")[2]):
            raise _damaged(bucket, "")
        for split in SPLITS:
            for name, about in read_header(beside, split)["files"].items():
                bucket.download(name, beside / name)
                if sha256(beside / name) != about["sha256"]:
                    raise _damaged(bucket, f"/{name}")


def _damaged(bucket: ObjectStore, file: str) -> UserError:
    return UserError(
        f"{bucket.address}{file} is damaged: remove {bucket.address}, and run `dvc repro` again, "
        "which uploads the data again"
    )
