"""References made of words at random, and translations of them that are good but not perfect."""

from __future__ import annotations

import random

NOUNS = "Haus Baum Wagen Brief Garten Lehrer Fenster Nachbar Kuchen Vertrag Minister".split()
VERBS = "sieht kauft findet lobt sucht bringt malt holt zeigt meidet prüft öffnet".split()
OTHERS = "heute gern oft dort nie bald hier kaum immer selten lange endlich".split()
COMPOUNDS = "IT-Chef EU-Kommission Online-Handel Nord-Süd-Achse US-Dollar Text-Format".split()
NAMES = ["[Peters]", "[Weiß]", "Müller & Sohn", "Meier", "[sic]"]
MARKS = "„“"


def references(count: int, seed: int = 1) -> list[str]:
    """Lines of 6 to 66 words, with quotes, hyphens and brackets, which Moses escapes."""
    draw = random.Random(seed)
    return [_sentence(draw, draw.choice((1, 1, 2, 2, 3, 6))) for _ in range(count)]


def _sentence(draw: random.Random, clauses: int) -> str:
    words = []
    for _ in range(clauses):
        words += [draw.choice(("der", "ein", "jeder")), draw.choice(NOUNS), draw.choice(VERBS)]
        words += [draw.choice(OTHERS), draw.choice(("den", "einen")), draw.choice(NOUNS)]
        words += [f"{MARKS[0]}{draw.choice(NOUNS)}{MARKS[1]}"] * (draw.random() < 0.4)
        words += ["mit", draw.choice(COMPOUNDS)] * (draw.random() < 0.5)
        words += ["bei", draw.choice(NAMES)] * (draw.random() < 0.5)
        words[-1] += ","
    text = " ".join(words)[:-1] + draw.choice((".", ".", ".", "!"))
    return text[:1].upper() + text[1:]


def translations(of: list[str], seed: int = 2, wrong: float = 0.12) -> list[str]:
    """Each word is another one with probability `wrong`, in the same case and with its marks."""
    draw = random.Random(seed)

    def said(word: str) -> str:
        bare = word.strip(".,!" + MARKS)
        if bare == "" or draw.random() >= wrong:
            return word
        kind = next((k for k in (NOUNS, VERBS, OTHERS, COMPOUNDS, NAMES) if bare in k), None)
        return word if kind is None else word.replace(bare, draw.choice(kind))

    return [" ".join(map(said, line.split())) for line in of]
