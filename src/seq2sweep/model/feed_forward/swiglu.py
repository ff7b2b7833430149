"""A gated feed-forward sub-layer (Shazeer 2020, "GLU Variants Improve Transformer")."""

from __future__ import annotations

from torch import Tensor, nn
from torch.nn import functional as F

from seq2sweep.model.dropout import dropout
from seq2sweep.model.products import Linear


class FeedForward(nn.Module):
    """(SiLU(x W) * x V) W2, with dropout on the product; no biases, as there.

    It has three matrices: with 2/3 of the d_ff it costs what the paper's sub-layer does.
    """

    REPEATS = True
    KEPT = 4
    """Both inner layers, the gate and the product."""

    def __init__(self, d_model: int, d_ff: int, dropout: float = 0.0) -> None:
        super().__init__()
        self.gate = Linear(d_model, d_ff, bias=False)
        self.inner = Linear(d_model, d_ff, bias=False)
        self.outer = Linear(d_ff, d_model, bias=False)
        self.dropout = dropout
        for linear in (self.gate, self.inner, self.outer):
            nn.init.xavier_uniform_(linear.weight)

    def forward(self, x: Tensor) -> Tensor:
        """[..., d_model] to [..., d_model]."""
        gated = F.silu(self.gate(x)) * self.inner(x)
        out: Tensor = self.outer(dropout(gated, self.dropout, self.training))
        return out

    @staticmethod
    def parameter_count(d_model: int, d_ff: int) -> int:
        """Trainable numbers."""
        return 3 * d_model * d_ff

    @staticmethod
    def flops(d_model: int, d_ff: int) -> int:
        """Operations of a forward pass, for each token."""
        return 6 * d_model * d_ff
