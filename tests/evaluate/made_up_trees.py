"""Trees of forty sentences, and how parsers of different worth might parse these."""

from __future__ import annotations

import random

LABELS = ("NP", "VP", "PP", "ADJP")
WORDS = "the old house stands near a small river today".split()


def _tree(chance: random.Random) -> str:
    parts = [
        f"({chance.choice(LABELS)} "
        + " ".join(f"(NN {word})" for word in chance.choices(WORDS, k=chance.randint(1, 3)))
        + ")"
        for _ in range(chance.randint(2, 5))
    ]
    return f"(TOP (S {' '.join(parts)} (. .)))"


_chance = random.Random(1)
GOLD = [_tree(_chance) for _ in range(40)]


def parsed(share: float, seed: int) -> list[str]:
    """Each label replaced by another one with this chance; now and then a word, or the end."""
    chance = random.Random(seed)
    found = []
    for line in GOLD:
        for label in LABELS:
            if chance.random() < share:
                line = line.replace(f"({label} ", f"({chance.choice(LABELS)} ")
        if chance.random() < share / 5:
            line = line.replace("(NN ", "(NN un", 1)
        found.append(line[:-2] if chance.random() < share / 5 else line)
    return found
