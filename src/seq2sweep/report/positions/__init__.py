"""Section 3.5: BLEU by the length of a sentence, and the sinusoids themselves."""
