"""Scores of translations: BLEU two ways, chrF, exact matches, and accuracy by phenomenon."""
