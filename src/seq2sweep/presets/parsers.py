"""Table 4 of the paper: F1 of English constituency parsing on section 23 of the WSJ, as printed.

Section 6.3: the Transformer has 4 layers with d_model 1024, decodes with beam 21 and alpha 0.3, and
was trained on about 40 000 sentences of the WSJ, or on about 17 million more (semi-supervised).
"""

from __future__ import annotations

from dataclasses import dataclass

TRAIN_SECTIONS, TEST_SECTIONS = tuple(range(2, 22)), (23,)
"""Of the WSJ, in the standard split that all rows share."""
TRAIN_TREES, TEST_TREES = 39_832, 2_416
"""Of these sections, where all files are there."""

WSJ_ONLY, SEMI_SUPERVISED = "WSJ only, discriminative", "semi-supervised"
TRANSFORMER = "Transformer (4 layers)"


@dataclass(frozen=True)
class Row:
    """One parser, what it was trained on, and its F1 in percent."""

    parser: str
    training: str
    f1: float


ROWS = (
    Row("Vinyals & Kaiser et al. (2014)", WSJ_ONLY, 88.3),
    Row("Petrov et al. (2006)", WSJ_ONLY, 90.4),
    Row("Zhu et al. (2013)", WSJ_ONLY, 90.4),
    Row("Dyer et al. (2016)", WSJ_ONLY, 91.7),
    Row(TRANSFORMER, WSJ_ONLY, 91.3),
    Row("Zhu et al. (2013)", SEMI_SUPERVISED, 91.3),
    Row("Huang & Harper (2009)", SEMI_SUPERVISED, 91.3),
    Row("McClosky et al. (2006)", SEMI_SUPERVISED, 92.1),
    Row("Vinyals & Kaiser et al. (2014)", SEMI_SUPERVISED, 92.1),
    Row(TRANSFORMER, SEMI_SUPERVISED, 92.7),
    Row("Luong et al. (2015)", "multi-task", 93.0),
    Row("Dyer et al. (2016)", "generative", 93.3),
)
"""In the paper's order."""
