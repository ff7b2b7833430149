"""Archives from their addresses into one folder, where a file under its final name is right.

A download grows as NAME.partial and goes on there after any end, SIGKILL too. When it is complete
its size and check sum are compared, and only then does it get its name. NAME.json beside it is its
receipt.
"""

from __future__ import annotations

import contextlib
import queue
import shutil
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

from tqdm import tqdm

from seq2sweep import console
from seq2sweep.data.download import receipts, transfer
from seq2sweep.data.download.partial import partial_file
from seq2sweep.data.download.remote import UnavailableError, shown
from seq2sweep.data.sources import Archive, mirrored
from seq2sweep.errors import UserError

CHANGES_NO_RESULT = "how files come here, whose sums say which they are"

T = TypeVar("T")
R = TypeVar("R")

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
    sums: dict[str, dict[str, Any]] = {}
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except (FileExistsError, NotADirectoryError):
        raise UserError(f"download.folder is {folder}, which is not a folder") from None
    wanted = [receipts.complete(archive, folder) for archive in archives]
    there = [archive for archive in wanted if (folder / archive.file).exists()]
    with _Bar("verify", sum(_size(folder / archive.file) for archive in there)) as bar:
        for archive in there:
            sums[archive.file] = _verify_present(archive, folder, bar.add)
    absent = [archive for archive in wanted if archive not in there]
    if not absent:
        return sums
    _require_room(absent, folder)
    stop = threading.Event()
    with _Bar("download", sum(archive.bytes or 0 for archive in absent)) as bar:

        def obtain(archive: Archive) -> list[str]:
            addresses = dict.fromkeys(mirrored(address, mirrors) for address in archive.addresses)
            return _obtain(archive, list(addresses), folder, bar, stop, sums)

        failures = _in_threads(obtain, absent, parallel, stop)
    if any(failures):
        failed = [(archive, why) for archive, why in zip(absent, failures, strict=True) if why]
        raise _not_had(failed, len(archives), folder)
    return sums


def missing(archives: Sequence[Archive], folder: Path) -> list[tuple[Archive, int]]:
    """Archives that are not there whole, judged by size alone, and the bytes there of each."""
    found = []
    for archive in (receipts.complete(archive, folder) for archive in archives):
        path = folder / archive.file
        if not path.is_file() or archive.bytes not in (None, _size(path)):
            found.append((archive, _size(_partial_path(path))))
    return found


# --- before and after --------------------------------------------------------------------------


def _partial_path(path: Path) -> Path:
    return path.with_name(path.name + ".partial")


def _size(path: Path) -> int:
    """Bytes of a file, 0 where there is none."""
    return path.stat().st_size if path.is_file() else 0


def _verify_present(
    archive: Archive, folder: Path, advance: Callable[[int], None]
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
    needed = sum(
        max(0, (archive.bytes or 0) - _size(_partial_path(folder / archive.file)))
        for archive in absent
    )
    free = shutil.disk_usage(folder).free
    if needed * 1.01 > free:
        raise UserError(
            f"{folder} has {tqdm.format_sizeof(free, 'B')} free, and the downloads need "
            f"{tqdm.format_sizeof(needed * 1.01, 'B')} more: make room, or set download.folder "
            "to another disk"
        )


def _not_had(failed: Sequence[tuple[Archive, list[str]]], count: int, folder: Path) -> UserError:
    lines = [f"{len(failed)} of {count} archives could not be had:"]
    for archive, why in failed:
        size = f"{archive.bytes} bytes" if archive.bytes is not None else "size not known"
        digest = f"{archive.algorithm} {archive.digest}" if archive.digest else "no check sum"
        lines.append(f"  {archive.file} ({size}, {digest}){_of_the_receipt(archive)}")
        lines += [f"    {reason}" for reason in why]
    lines.append(
        f"Put each into {folder} under that name by hand, or name a mirror in download.mirrors, "
        "and run `dvc repro` again"
    )
    error = UserError("\n".join(lines))
    error.lines = True
    return error


# --- one file ----------------------------------------------------------------------------------


def _obtain(
    archive: Archive,
    addresses: Sequence[str],
    folder: Path,
    bar: _Bar,
    stop: threading.Event,
    sums: dict[str, dict[str, Any]],
) -> list[str]:
    """Fetch one archive from the first address that has it, and enter it in `sums`.

    Returns what happened at each address, nothing if it is there now.
    """
    path = folder / archive.file

    def expect(size: int) -> None:
        bar.expect(archive.file, size)

    with partial_file(_partial_path(path), bar.add, stop) as partial:
        if path.exists():  # another process has brought it in the meantime
            sums[archive.file] = _verify_present(archive, folder, bar.had)
            return []
        bar.had(partial.size)
        happened = []
        for address in addresses:
            try:
                found = transfer.transfer(address, archive, partial, expect, stop)
            except UnavailableError as error:
                happened.append(f"{shown(address)}: {error}")
                if address != addresses[-1]:
                    console.say(f"{archive.file}: {happened[-1]}; trying the next address")
            else:
                partial.flush_to_disk()
                # The receipt first: a file without one would be taken for one put there by hand.
                receipts.write(folder, archive, found, address)
                partial.rename(path)
                sums[archive.file] = found
                return []
        return happened


# --- several files -----------------------------------------------------------------------------


class _Bar:
    """A progress bar over bytes that several threads move."""

    def __init__(self, what: str, total: int) -> None:
        self._bar = tqdm(total=total, **console.bar(what, "") | {"unit": "B"})
        self._lock = threading.Lock()
        self._total = total
        self._expected: dict[str, int] = {}

    def __enter__(self) -> _Bar:
        return self

    def __exit__(self, *_: object) -> None:
        self._bar.close()

    def add(self, count: int) -> None:
        """Count bytes as fetched; below 0 for those that are thrown away."""
        with self._lock:
            self._bar.update(count)

    def had(self, count: int) -> None:
        """Count bytes that were there before: they say nothing about the rate."""
        with self._lock:
            self._bar.initial += count
            self._bar.n += count
            self._bar.last_print_n += count

    def expect(self, file: str, size: int) -> None:
        """Take the size of a file, known only now, into the total."""
        with self._lock:
            self._total += size - self._expected.get(file, 0)
            self._bar.total = self._total
            self._expected[file] = size


def _in_threads(
    function: Callable[[T], R], items: Sequence[T], count: int, stop: threading.Event
) -> list[R]:
    """Results in the order of the items; the first exception ends it all.

    The threads die with the program: one that waits for a silent server must not hold up Ctrl-C.
    """
    waiting: queue.SimpleQueue[int] = queue.SimpleQueue()
    done: queue.SimpleQueue[tuple[int, R | None, BaseException | None]] = queue.SimpleQueue()
    for index in range(len(items)):
        waiting.put(index)

    def work() -> None:
        with contextlib.suppress(queue.Empty):
            while not stop.is_set():
                index = waiting.get_nowait()
                try:
                    done.put((index, function(items[index]), None))
                except BaseException as error:
                    done.put((index, None, error))

    threads = [threading.Thread(target=work, daemon=True) for _ in range(min(count, len(items)))]
    results: dict[int, Any] = {}
    try:
        for thread in threads:
            thread.start()
        while len(results) < len(items):
            index, result, error = done.get()
            if error is not None:
                raise error
            results[index] = result
    finally:
        stop.set()
        give_up = time.monotonic() + LAST_WORDS
        for thread in threads:
            thread.join(max(0.0, give_up - time.monotonic()))
    return [results[index] for index in range(len(items))]
