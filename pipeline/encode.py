"""Stage encode: clean text as token ids in data/encoded, which training maps into memory.

    python -m pipeline.encode

On all CPUs of this machine, or as Ray tasks when `cluster.address` (or RAY_ADDRESS) names a
cluster; the bytes are the same either way.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

from tqdm import tqdm

from seq2sweep import config as configuration
from seq2sweep import console, project_files
from seq2sweep.data import bitext, files
from seq2sweep.data.vocabulary import Vocabulary
from seq2sweep.parallel import Mapper, Processes, serial
from seq2sweep.stages import stage
from seq2sweep.storage import atomic

WORTH_SHARING = 200_000
"""Sentences; fewer are done before other processes have started."""


def work(config: configuration.Config) -> None:
    """Write the files and the header of every split."""
    vocabulary = Vocabulary.open(project_files.VOCABULARY)
    files.verify(project_files.CLEAN, *files.SPLITS)
    languages = {"source": config.data.source, "target": config.data.target}
    texts = {split: files.text_paths(project_files.CLEAN, split) for split in files.SPLITS}
    sentences = {split: sum(map(files.count_lines, paths)) for split, paths in texts.items()}
    headers = {}
    with (
        atomic.whole_folder(project_files.ENCODED) as folder,
        tqdm(total=sum(sentences.values()), **console.bar("encode", "sentences")) as bar,
    ):
        for split in files.SPLITS:
            with _mapper(config.cluster, sentences[split]) as mapper:
                sides = dict(zip(files.SIDES, texts[split], strict=True))
                headers[split] = bitext.write_split(
                    folder, split, sides, vocabulary, languages, mapper, bar.update
                )
    train = headers["train"]
    for side in files.SIDES:
        console.say(
            f"train {side}: {train['sentences']:,} sentences, {train[side]['tokens']:,} tokens, "
            f"{train[side]['unknown_share']:.4%} of them unknown"
        )


@contextlib.contextmanager
def _mapper(cluster: configuration.ClusterConfig, sentences: int) -> Iterator[Mapper]:
    if sentences < WORTH_SHARING:
        yield serial
    elif not stage.on_cluster(cluster):
        yield Processes()
    else:
        # Imported here: Ray takes seconds to load, and most runs do without it.
        from seq2sweep.cluster.session import ray_session
        from seq2sweep.cluster.tasks import ray_tasks

        with ray_session(cluster):
            yield ray_tasks


if __name__ == "__main__":
    stage.run("encode", "clean text as token ids", work)
