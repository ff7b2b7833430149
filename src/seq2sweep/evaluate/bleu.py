"""BLEU as sacreBLEU defines it, and as the paper's table was computed.

The two are not comparable: the same translations score about 1.5 points higher the paper's way
on newstest2014. Both are always reported, each with its signature.

The paper's way (section 6.1; the recipe is the script that went with the paper's code):

1. Unicode quotes and punctuation become ASCII (Moses' `replace-unicode-punctuation`).
2. Moses' tokenizer at its defaults, on hypothesis and reference alike: `&`, quotes, brackets and
   `|` are escaped, hyphens inside words are kept. The escapes stand for whole tokens or endings
   one to one, so they change no n-gram match; they are kept so that tokens equal the script's.
3. German only: compounds are split at hyphens, `\\1 ##AT##-##AT## \\2`. Where two hyphens stand one
   letter apart (`a-b-c`) only the first is split, as the script's single pass leaves it; a letter
   of two bytes (`a-ä-c`) separates two splits, as the script works on bytes.
4. Corpus BLEU of the tokens: n-grams up to 4, no smoothing, brevity penalty (multi-bleu.perl).

Of a language without blanks between words Moses leaves a whole clause one token, so that its score
would be about 0. There sacreBLEU's tokens stand for those of steps 1 to 3, as the signature says.

All other tokens come from sacremoses. They equal those of Moses' scripts of 2017 on every line of
newstest2013 and newstest2014 German and of newstest2014 French, and on German lines strewn with
soft hyphens, no-break and other Unicode spaces, tabs, control characters, dots, dashes, guillemets
and quotes of any kind. What is known to differ:

- Later versions of Moses' script also split the full stop off a last word that ends in a capital,
  a number or an abbreviation: 8 of the 3003 lines of newstest2014 German.
- In German or French text a Chinese or Korean character is a token of its own; there, a letter.
  Combining marks of Indian scripts are letters here and tokens there.
- A full-width digit one becomes `1`; the script makes it a quote, which must be its mistake.
- A line of nothing but white space has no tokens; the scripts count a no-break space as one.
"""

from __future__ import annotations

import importlib.metadata
import os
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from sacrebleu.metrics.base import Signature
from sacrebleu.metrics.bleu import BLEU
from sacrebleu.metrics.chrf import CHRF
from sacremoses import MosesDetokenizer, MosesPunctNormalizer, MosesTokenizer

from seq2sweep.config import is_language
from seq2sweep.errors import UserError
from seq2sweep.evaluate.references import read_texts

BOOTSTRAP_SAMPLES = 1000
# sacreBLEU draws all samples at once: 1000 x sentences x 10 floats, 200 MB at this size.
BOOTSTRAP_SENTENCES = 5000

_COMPOUND = re.compile(rb"(\S)-(\S)")
# A hyphen that stands apart because the text was prepared before: by the script of step 3, by the
# same script run twice (it splits its own mark), or by Moses' aggressive splitting (`@-@`).
_SPLIT_HYPHEN = re.compile(r" ?(?<!\S)(?:(?:##AT## )*##AT##-##AT##(?: ##AT##)*|@-@)(?!\S) ?")
# Python takes these for white space; Perl, and so the script, removes them.
_SEPARATORS = dict.fromkeys(range(0x1C, 0x20))
# Written without blanks between words, where other tokenisers leave a line or a clause one token:
# Japanese, Thai, Lao, Khmer, Burmese, Tibetan and Dzongkha. sacreBLEU has a tokeniser of Chinese.
_UNSPACED = {"zh": "zh", **dict.fromkeys(("ja", "th", "lo", "km", "my", "bo", "dz"), "char")}


def score(
    hypotheses: Sequence[str],
    references: Sequence[str],
    target_language: str,
    *,
    lowercase: bool = False,
) -> dict[str, Any]:
    """Score translations against one reference each.

    Args:
        hypotheses: detokenised translations, one sentence each; or text that was tokenised and
            split at hyphens before, see `plain_text`.
        references: the same number of reference sentences, likewise.
        lowercase: compare text that is lower-cased first, as `prepare.lowercase` does, and say so
            in the signatures (`case:lc`).
        target_language: code such as `de`; only German (`de`, `de-AT`) has compounds split.

    Returns:
        `bleu.sacrebleu` {score, signature, confidence}, `bleu.paper` and `bleu.tokenised` {score,
        signature, tokeniser}, `chrf` {score, signature}, `exact_match` (percent) and `sentences`.
        Scores run from 0 to 100. `tokenised` is `paper` without step 3, equal to it unless the
        target is German. `confidence` is sacreBLEU's 95 % bootstrap interval, `mean` ± `margin`
        of 1000 samples with its fixed seed (12345, or $SACREBLEU_SEED); absent above 5000
        sentences. Where `plain_text` took text back, `detokenised` names it: `hypothesis`,
        `reference` or both.

    Raises:
        ValueError: no sentences, or unequal numbers of them.
        UserError: $SACREBLEU_SEED is not a seed, or the language no code of two letters.
    """
    if len(hypotheses) != len(references) or not hypotheses:
        raise ValueError(f"{len(hypotheses)} hypotheses, {len(references)} references")
    language = base_language(target_language)
    plain, detokenised = plain_texts({"hypothesis": hypotheses, "reference": references}, language)
    hypotheses, references = plain.values()
    if lowercase:
        # Before Moses: what it takes for an abbreviation depends on case.
        hypotheses, references = ([line.lower() for line in lines] for lines in plain.values())
    hypothesis_tokens = _unsplit_tokens(hypotheses, language)
    reference_tokens = _unsplit_tokens(references, language)
    tokenised = _tokenised_bleu(hypothesis_tokens, reference_tokens, language, lowercase)
    paper = tokenised
    if language == "de":
        paper = _tokenised_bleu(
            split_compounds(hypothesis_tokens),
            split_compounds(reference_tokens),
            paper_tokens_name(language),
            lowercase,
        )
    chrf = CHRF(lowercase=lowercase)
    chrf_score = rounded(chrf.corpus_score(hypotheses, [references]).score)
    return {
        "bleu": {
            "sacrebleu": _sacrebleu(hypotheses, references, language, lowercase),
            "paper": paper,
            "tokenised": tokenised,
        },
        "chrf": {"score": chrf_score, "signature": str(chrf.get_signature())},
        "exact_match": exact_match(hypotheses, references),
        "sentences": len(hypotheses),
        **detokenised,
    }


def score_files(
    hypothesis: Path,
    reference: Path | str,
    target_language: str,
    source_language: str | None = None,
    *,
    lowercase: bool = False,
) -> dict[str, Any]:
    """`score` of text files, plain or .gz, one sentence a line; errors are those of `read_texts`.

    reference: a file, or the name of a sacreBLEU test set such as `wmt14/full`, which needs the
    source_language and adds `test_set` {name, sentences} to the scores.
    """
    texts = read_texts([hypothesis], reference, target_language, source_language)
    (hypotheses,) = texts.hypotheses
    result = score(hypotheses, texts.references, target_language, lowercase=lowercase)
    return result | texts.test_set


def corpus_bleu(hypotheses: Sequence[str], references: Sequence[str]) -> float:
    """sacreBLEU's standard score (13a) alone, 0 to 100, of at least one sentence."""
    # force: what is scored is detokenised; the warning otherwise would come once a call.
    return rounded(BLEU(force=True).corpus_score(hypotheses, [references]).score)


def exact_match(hypotheses: Sequence[str], references: Sequence[str]) -> float:
    """Percentage of hypotheses equal to their reference, spaces at the ends aside."""
    equal = sum(
        hypothesis.strip() == reference.strip()
        for hypothesis, reference in zip(hypotheses, references, strict=True)
    )
    return rounded(100 * equal / len(references))


def base_language(code: str) -> str:
    """`de` of `de`, `DE`, `de-AT` and `de_AT`.

    Raises UserError for anything else: `german` would be scored without its compounds split.
    """
    if not is_language(code):
        raise UserError(f"{code!r} is no language code of two letters, such as de or pt-BR")
    return re.split("[-_]", code.lower())[0]


def plain_text(
    lines: Sequence[str], language: str, references: Sequence[str] = ()
) -> Sequence[str]:
    """The lines themselves, or detokenised if they were tokenised and split at hyphens before.

    Output of fairseq and others, trained on prepared WMT data, looks like `der IT ##AT##-##AT##
    Chef sagte &quot; ja &quot; .` To tokenise, escape and split that again would be wrong. To join
    hyphens alone would also be, as all the rest is still in tokens, also in lines without a
    compound. To refuse it would send the user to do by hand what is done here. So one
    `##AT##-##AT##` or `@-@` between spaces, anywhere, says that the whole text is tokens: hyphens
    are joined, and Moses' detokenizer puts the rest together and undoes the escapes.

    Tokenising the result gives the same tokens again: on all lines of newstest2013 and newstest2014
    German and of newstest2014 French; a system's `30 . September` may become `30. September`, which
    moves a score by hundredths at most. sacreBLEU and chrF score what is left of the text:
    typographic quotes that were made ASCII stay lost.

    references: that the lines are scored against. Where they are tokens, so are the lines: of a
    system trained on such text one output may have a mark and the next one, by chance, none.
    """
    marked = any(join_hyphens(line) != line for line in (*references, *lines))
    return detokenise(lines, language) if marked else lines


def detokenise(lines: Sequence[str], language: str) -> Sequence[str]:
    """Tokens as text; the lines themselves where that changes none, as of text."""
    detokenizer = MosesDetokenizer(lang=language)
    plain = [detokenizer.detokenize(join_hyphens(line).split()) for line in lines]
    return lines if plain == [*lines] else plain


def plain_texts(
    given: Mapping[str, Sequence[str]], language: str
) -> tuple[dict[str, Sequence[str]], dict[str, list[str]]]:
    """`plain_text` of texts by name, one of them `reference`; beside it `detokenised`: the names of
    those that it changed, if there are any.
    """
    references = given["reference"]
    plain = {name: plain_text(lines, language, references) for name, lines in given.items()}
    changed = [name for name, lines in given.items() if plain[name] is not lines]
    return plain, {"detokenised": changed} if changed else {}


def paper_tokens(lines: Sequence[str], language: str) -> list[str]:
    """Steps 1 to 3: what the paper's BLEU counts n-grams of."""
    tokens = _unsplit_tokens(lines, language)
    return split_compounds(tokens) if language == "de" else tokens


def _unsplit_tokens(lines: Sequence[str], language: str) -> list[str]:
    """Steps 1 and 2, or what stands for them in a language without blanks between words."""
    if language not in _UNSPACED:
        return moses_tokens(lines, language)
    tokenizer = BLEU(tokenize=_UNSPACED[language]).tokenizer
    return [tokenizer(line) for line in lines]


def paper_tokens_name(language: str) -> str:
    """What the paper's tokens are called in a signature: `de-compounds`, or the language."""
    return f"{language}-compounds" if language == "de" else language


def moses_tokens(lines: Sequence[str], language: str) -> list[str]:
    """Steps 1 and 2: lines of space-separated Moses tokens.

    A language that Moses has no abbreviations of is tokenised with the English ones.
    """
    punctuation = MosesPunctNormalizer()
    tokenizer = MosesTokenizer(lang=language)
    return [
        tokenizer.tokenize(
            punctuation.replace_unicode_punct(line.translate(_SEPARATORS)), return_str=True
        )
        for line in lines
    ]


def split_compounds(lines: Sequence[str]) -> list[str]:
    """Step 3: `Text-Format` becomes `Text ##AT##-##AT## Format`, in one pass without overlap.

    What is split already is not split again.
    """
    return [
        _COMPOUND.sub(rb"\1 ##AT##-##AT## \2", join_hyphens(line).encode()).decode()
        for line in lines
    ]


def sacrebleu_metric(language: str, references: Sequence[str], lowercase: bool = False) -> BLEU:
    """sacreBLEU's standard for a language, its references counted already.

    Scripts without blanks get tokenisers of characters; all else is its standard, 13a.
    """
    return BLEU(
        tokenize=_UNSPACED.get(language, "13a"),
        lowercase=lowercase,
        force=True,
        references=[references],
    )


def token_metric(references: Sequence[str], lowercase: bool = False) -> BLEU:
    """Step 4: BLEU of text that is in tokens already, as multi-bleu.perl computes it."""
    return BLEU(
        tokenize="none",
        smooth_method="none",
        lowercase=lowercase,
        force=True,
        references=[references],
    )


def token_signature(signature: Signature, tokens: str) -> dict[str, str]:
    """`tokeniser`, and sacreBLEU's signature with that tokeniser in place of `none`.

    tokens: as `paper_tokens_name` has it, or the language.
    """
    package = "sacrebleu" if tokens in _UNSPACED else "sacremoses"
    version = importlib.metadata.version(package)
    signature.update("tok", _UNSPACED.get(tokens, f"{package}-{version}-{tokens}"))
    return {"tokeniser": f"{package} {version}", "signature": str(signature)}


def bootstrap_seed() -> str:
    """The seed sacreBLEU draws samples with: $SACREBLEU_SEED (`none`: another each time) or 12345.

    Raises:
        UserError: $SACREBLEU_SEED is not a seed.
    """
    seed = os.environ.get("SACREBLEU_SEED", "12345").lower()
    if seed != "none" and not (seed.isascii() and seed.isdecimal()):
        raise UserError(f"SACREBLEU_SEED={seed}: unset it, or set a whole number, or none")
    return seed


def _sacrebleu(
    hypotheses: Sequence[str], references: Sequence[str], language: str, lowercase: bool
) -> dict[str, Any]:
    metric = sacrebleu_metric(language, references, lowercase)
    result = {
        "score": rounded(metric.corpus_score(hypotheses, None).score),
        "signature": str(metric.get_signature()),
    }
    if len(hypotheses) <= BOOTSTRAP_SENTENCES:
        seed = bootstrap_seed()
        # After the signature is taken, which a bootstrap would mark `bs:1000|seed:12345`.
        sampled = metric.corpus_score(hypotheses, None, n_bootstrap=BOOTSTRAP_SAMPLES)
        result["confidence"] = {
            "mean": rounded(sampled._mean),
            "margin": rounded(sampled._ci),
            "samples": BOOTSTRAP_SAMPLES,
            "seed": seed,
        }
    return result


def _tokenised_bleu(
    hypotheses: list[str], references: list[str], tokens: str, lowercase: bool
) -> dict[str, Any]:
    metric = token_metric(references, lowercase)
    result = rounded(metric.corpus_score(hypotheses, None).score)
    return {"score": result, **token_signature(metric.get_signature(), tokens)}


def join_hyphens(line: str) -> str:
    """Without the marks of step 3, and without the spaces around them."""
    return _SPLIT_HYPHEN.sub("-", line)


def rounded(value: float) -> float:
    """Four decimals: more than anyone reads, few enough to be the same on every machine."""
    return round(float(value), 4)


def rounded_chance(value: float) -> float:
    """The same of a probability that is never 0: a smaller one has a digit."""
    return rounded(value) or float(f"{value:.1g}")
