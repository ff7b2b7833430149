"""BLEU as sacreBLEU defines it, and as the paper's table was computed.

The two are not comparable: the same translations score about 1.5 points higher the paper's way
on newstest2014. Both are always reported, each with its signature.

The paper's way (section 6.1; the recipe is the script that went with the paper's code):

1. Unicode quotes and punctuation become ASCII (Moses' `replace-unicode-punctuation`).
2. Moses' tokenizer at its defaults, on hypothesis and reference alike: `&`, quotes, brackets and
   `|` are escaped, hyphens inside words are kept. The escapes stand for whole tokens or endings
   one to one, so they change no n-gram match; they are kept so that tokens equal the script's.
   Tokens come from sacremoses, which agrees with Moses' tokenizer.perl of 2017 on every line of
   newstest2014 German. Later versions of that script also split the full stop off a last word
   that ends in a capital, a number or an abbreviation; that moves 8 of 3003 lines.
3. German only: compounds are split at hyphens, `\1 ##AT##-##AT## \2`. Where two hyphens stand one
   letter apart (`a-b-c`) only the first is split, as the script's single pass leaves it; a letter
   of two bytes (`a-ä-c`) separates two splits, as the script works on bytes.
4. Corpus BLEU of the tokens: n-grams up to 4, no smoothing, brevity penalty (multi-bleu.perl).
"""

from __future__ import annotations

import importlib.metadata
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from sacrebleu.metrics.bleu import BLEU
from sacrebleu.metrics.chrf import CHRF
from sacremoses import MosesPunctNormalizer, MosesTokenizer

from seq2sweep.data.files import read_pairs

BOOTSTRAP_SAMPLES = 1000
# sacreBLEU draws all samples at once: 1000 x sentences x 10 floats, 200 MB at this size.
BOOTSTRAP_SENTENCES = 5000

_COMPOUND = re.compile(rb"(\S)-(\S)")
# Scripts without spaces need sacreBLEU's own tokenisers; all else is its standard, 13a.
_SACREBLEU_TOKENISERS = {"zh": "zh", "ja": "char"}


def score(
    hypotheses: Sequence[str],
    references: Sequence[str],
    target_language: str,
    *,
    lowercase: bool = False,
) -> dict[str, Any]:
    """Score translations against one reference each.

    Args:
        hypotheses: detokenised translations, one sentence each.
        references: the same number of detokenised reference sentences.
        lowercase: compare lower-cased text, and say so in the signatures (`case:lc`).
        target_language: code such as `de`; only German (`de`, `de-AT`) has compounds split.

    Returns:
        `bleu.sacrebleu` {score, signature, confidence}, `bleu.paper` and `bleu.tokenised` {score,
        signature, tokeniser}, `chrf` {score, signature}, `exact_match` (percent) and `sentences`.
        Scores run from 0 to 100. `tokenised` is `paper` without step 3, equal to it unless the
        target is German. `confidence` is sacreBLEU's 95 % bootstrap interval, `mean` ± `margin`
        of 1000 samples with its fixed seed (12345, or $SACREBLEU_SEED); absent above 5000
        sentences.

    Raises:
        ValueError: no sentences, or unequal numbers of them.
    """
    if len(hypotheses) != len(references) or not hypotheses:
        raise ValueError(f"{len(hypotheses)} hypotheses, {len(references)} references")
    language = re.split("[-_]", target_language.lower())[0]
    hypothesis_tokens = moses_tokens(hypotheses, language)
    reference_tokens = moses_tokens(references, language)
    tokenised = _tokenised_bleu(hypothesis_tokens, reference_tokens, language, lowercase)
    paper = tokenised
    if language == "de":
        paper = _tokenised_bleu(
            split_compounds(hypothesis_tokens),
            split_compounds(reference_tokens),
            f"{language}-compounds",
            lowercase,
        )
    chrf = CHRF()
    chrf_score = _rounded(chrf.corpus_score(hypotheses, [references]).score)
    return {
        "bleu": {
            "sacrebleu": _sacrebleu(hypotheses, references, language, lowercase),
            "paper": paper,
            "tokenised": tokenised,
        },
        "chrf": {"score": chrf_score, "signature": str(chrf.get_signature())},
        "exact_match": exact_match(hypotheses, references),
        "sentences": len(hypotheses),
    }


def score_files(hypothesis: Path, reference: Path, target_language: str) -> dict[str, Any]:
    """`score` of two text files, plain or .gz, one sentence a line.

    Raises:
        UserError: a file is missing, empty or not UTF-8, or the files differ in length.
    """
    pairs = list(read_pairs(hypothesis, reference))
    return score([pair[0] for pair in pairs], [pair[1] for pair in pairs], target_language)


def corpus_bleu(hypotheses: Sequence[str], references: Sequence[str]) -> float:
    """sacreBLEU's standard score (13a) alone, 0 to 100, of at least one sentence."""
    # force: what is scored is detokenised; the warning otherwise would come once a call.
    return _rounded(BLEU(force=True).corpus_score(hypotheses, [references]).score)


def exact_match(hypotheses: Sequence[str], references: Sequence[str]) -> float:
    """Percentage of hypotheses equal to their reference, spaces at the ends aside."""
    equal = sum(
        hypothesis.strip() == reference.strip()
        for hypothesis, reference in zip(hypotheses, references, strict=True)
    )
    return _rounded(100 * equal / len(references))


def moses_tokens(lines: Sequence[str], language: str) -> list[str]:
    """Steps 1 and 2: lines of space-separated Moses tokens.

    A language that Moses has no abbreviations of is tokenised with the English ones.
    """
    punctuation = MosesPunctNormalizer()
    tokenizer = MosesTokenizer(lang=language)
    return [
        tokenizer.tokenize(punctuation.replace_unicode_punct(line), return_str=True)
        for line in lines
    ]


def split_compounds(lines: Sequence[str]) -> list[str]:
    """Step 3: `Text-Format` becomes `Text ##AT##-##AT## Format`, in one pass without overlap."""
    return [_COMPOUND.sub(rb"\1 ##AT##-##AT## \2", line.encode()).decode() for line in lines]


def _sacrebleu(
    hypotheses: Sequence[str], references: Sequence[str], language: str, lowercase: bool
) -> dict[str, Any]:
    metric = BLEU(
        tokenize=_SACREBLEU_TOKENISERS.get(language, "13a"), lowercase=lowercase, force=True
    )
    result = {
        "score": _rounded(metric.corpus_score(hypotheses, [references]).score),
        "signature": str(metric.get_signature()),
    }
    if len(hypotheses) <= BOOTSTRAP_SENTENCES:
        # After the signature is taken, which a bootstrap would mark `bs:1000|seed:12345`.
        sampled = metric.corpus_score(hypotheses, [references], n_bootstrap=BOOTSTRAP_SAMPLES)
        result["confidence"] = {
            "mean": _rounded(sampled._mean),
            "margin": _rounded(sampled._ci),
            "samples": BOOTSTRAP_SAMPLES,
            "seed": metric.seed,
        }
    return result


def _tokenised_bleu(
    hypotheses: list[str], references: list[str], tokens: str, lowercase: bool
) -> dict[str, Any]:
    """Step 4, with the tokeniser named in sacreBLEU's signature in place of `none`."""
    metric = BLEU(tokenize="none", smooth_method="none", lowercase=lowercase, force=True)
    result = _rounded(metric.corpus_score(hypotheses, [references]).score)
    version = importlib.metadata.version("sacremoses")
    signature = metric.get_signature()
    signature.update("tok", f"sacremoses-{version}-{tokens}")
    return {
        "score": result,
        "tokeniser": f"sacremoses {version}",
        "signature": str(signature),
    }


def _rounded(value: float) -> float:
    """Four decimals: more than anyone reads, few enough to be the same on every machine."""
    return round(float(value), 4)
