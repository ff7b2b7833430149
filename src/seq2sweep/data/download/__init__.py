"""Archives from their addresses into one folder, where a file under its final name is right.

A download grows as NAME.partial and resumes there after any end, SIGKILL too. When it is complete
its size and check sum are compared, and only then does it get its name. NAME.json beside it is its
receipt.
"""

from __future__ import annotations

import contextlib
import shutil
import threading
from collections.abc import Callable, Mapping, Sequence
from multiprocessing.pool import ThreadPool
from pathlib import Path
from typing import Any

from tqdm import tqdm

from seq2sweep import console
from seq2sweep.data.download import receipts
from seq2sweep.data.sources import Archive, mirrored
from seq2sweep.errors import UserError

CHANGES_NO_RESULT = "how files come here, whose sums say which they are"

LAST_WORDS = 1.0
"""Seconds that threads are given to end after an interruption."""


def fetch(
    archives: Sequence[Archive], folder: Path, mirrors: Mapping[str, str], parallel: int
) -> dict[str, dict[str, Any]]:
    """Have every archive in the folder, with the right bytes and a receipt; `parallel` at once.

    Archives that lie there already are verified. Returns bytes and sha256 of each file. UserError
    names a wrong one, says that the disk is too small, or lists what could not be had (once all
    others are there).
    """
    for beginning in mirrors:
        addresses = [address for archive in archives for address in archive.addresses]
        if not any(address.startswith(beginning) for address in addresses):
            console.say(f"download.mirrors: no address of this data set begins with {beginning}")
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except (FileExistsError, NotADirectoryError):
        raise UserError(f"download.folder is {folder}, which is not a folder") from None
    wanted = [receipts.complete(archive, folder) for archive in archives]
    there = [archive for archive in wanted if (folder / archive.file).exists()]
    with _bar("verify", sum(_size(folder / archive.file) for archive in there)) as bar:
        sums = {a.file: _verify_present(a, folder, bar.update) for a in there}
    absent = [archive for archive in wanted if archive not in there]
    if not absent:
        return sums
    _require_room(absent, folder)
    return sums | _download(absent, len(archives), folder, mirrors, parallel)


def _download(
    absent: Sequence[Archive],
    count: int,
    folder: Path,
    mirrors: Mapping[str, str],
    parallel: int,
) -> dict[str, dict[str, Any]]:
    """Fetch each of these, of `count` archives, from the first of its addresses that has it."""
    # Imported here: requests and fsspec take a while, and what only looks for files needs neither.
    from seq2sweep.data.download import remote, transfer

    sums: dict[str, dict[str, Any]] = {}
    failed: dict[str, list[str]] = {}
    stop = threading.Event()
    total = sum(archive.bytes or 0 for archive in absent)
    had = sum(_size(_partial_path(folder / archive.file)) for archive in absent)

    def obtain(archive: Archive) -> None:
        if stop.is_set():
            return
        path = folder / archive.file
        happened: list[str] = []
        with transfer.partial_file(_partial_path(path), bar, stop) as partial:
            if path.exists():  # another process has downloaded it in the meantime
                sums[archive.file] = _verify_present(archive, folder, partial.advance)
                return
            # Two may have the same mirror, which is asked once.
            origins = {mirrored(source, mirrors): source for source in archive.addresses}
            for address, source in origins.items():
                if happened:
                    console.say(f"{archive.file}: {happened[-1]}; trying the next address")
                try:
                    found = transfer.transfer(address, archive, partial)
                except remote.UnavailableError as error:
                    happened.append(f"{receipts.shown(address)}: {error}")
                    continue
                # The receipt first: a file without one would be taken for one put there by hand.
                receipts.write(folder, archive, found, address, source)
                partial.finish(path)
                sums[archive.file] = found
                return
        failed[archive.file] = happened

    # The threads of this pool die with the program: one that waits for a silent server must not
    # hold up Ctrl-C, as those of concurrent.futures would.
    with (
        _bar("download", total, initial=had) as bar,
        ThreadPool(min(parallel, len(absent))) as pool,
    ):
        results = pool.imap_unordered(obtain, absent)
        try:
            for _ in results:  # the first exception ends it all
                pass
        finally:
            stop.set()
            with contextlib.suppress(Exception):  # a moment to close connections and files in
                while True:
                    results.next(LAST_WORDS)
    if failed:
        raise _not_had([(a, failed[a.file]) for a in absent if a.file in failed], count, folder)
    return sums


def missing(archives: Sequence[Archive], folder: Path) -> list[tuple[Archive, int]]:
    """Archives that are not there whole, judged by size alone, and the bytes there of each."""
    found = []
    for archive in (receipts.complete(archive, folder) for archive in archives):
        path = folder / archive.file
        if not path.is_file() or archive.bytes not in (None, _size(path)):
            found.append((archive, _size(_partial_path(path))))
    return found


def _bar(what: str, total: int, **more: Any) -> tqdm[Any]:
    return tqdm(total=total, **console.bar(what, "") | {"unit": "B"}, **more)


def _partial_path(path: Path) -> Path:
    return path.with_name(path.name + ".partial")


def _size(path: Path) -> int:
    """Bytes of a file, 0 where there is none."""
    return path.stat().st_size if path.is_file() else 0


def _verify_present(
    archive: Archive, folder: Path, advance: Callable[[int], object]
) -> dict[str, Any]:
    path = folder / archive.file
    if not path.is_file():
        raise UserError(f"{path} is not a file: remove it, and it is downloaded")
    found, problem = receipts.measured(path, archive, advance)
    if problem:
        raise UserError(
            f"{path} has {problem}: remove it, and it is downloaded, or put the right one there"
            f"{_of_the_receipt(archive)}"
        )
    receipts.write_if_new(folder, archive, found)
    return found


def _of_the_receipt(archive: Archive) -> str:
    """Where size or sum come from, if not from the registry."""
    if not archive.by_receipt:
        return ""
    return f" (as {archive.file}.json says of the first one; remove that too to have another)"


def _require_room(absent: Sequence[Archive], folder: Path) -> None:
    needed = 1.01 * sum(
        max(0, (archive.bytes or 0) - _size(_partial_path(folder / archive.file)))
        for archive in absent
    )
    free = shutil.disk_usage(folder).free
    if needed > free:
        raise UserError(
            f"{folder} has {tqdm.format_sizeof(free, 'B')} free, and the downloads need "
            f"{tqdm.format_sizeof(needed, 'B')} more: make room, or set download.folder to "
            "another disk"
        )


def _not_had(failed: Sequence[tuple[Archive, list[str]]], count: int, folder: Path) -> UserError:
    lines = [f"{len(failed)} of {count} archives could not be downloaded:"]
    for archive, why in failed:
        size = f"{archive.bytes} bytes" if archive.bytes is not None else "size not known"
        digest = f"{archive.algorithm} {archive.digest}" if archive.digest else "no checksum"
        lines.append(f"  {archive.file} ({size}, {digest}){_of_the_receipt(archive)}")
        lines += [f"    {reason}" for reason in why]
    lines.append(
        f"Put each into {folder} under that name by hand, or name a mirror in download.mirrors, "
        "and run `dvc repro` again"
    )
    error = UserError("\n".join(lines))
    error.lines = True
    return error
