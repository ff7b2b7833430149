"""Print pairs with their tags, for reading."""

from __future__ import annotations

import argparse

from . import generate


def main() -> None:
    """Entry point of ``python -m phrasebook``."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--split", choices=("train", "valid", "test"), default="train")
    parser.add_argument("--count", type=int, default=20)
    parser.add_argument("--seed", type=int, default=1)
    arguments = parser.parse_args()
    for pair in generate(arguments.split, arguments.count, arguments.seed):
        print(f"{pair.source}\t{pair.target}\t[{', '.join(pair.phenomena)}]")


if __name__ == "__main__":
    main()
