"""The paper's feed-forward sub-layer: two products with a ReLU between them."""

from __future__ import annotations

from torch import Tensor, nn
from torch.nn import functional as F

from seq2sweep.model.dropout import dropout
from seq2sweep.model.products import Linear


class FeedForward(nn.Module):
    """max(0, x W1 + b1) W2 + b2 (equation 2); dropout, zero in the paper, is on the inner layer."""

    REPEATS = True
    KEPT = 1
    """Numbers that the backward pass needs for each token and unit of d_ff, without dropout."""

    def __init__(self, d_model: int, d_ff: int, dropout: float = 0.0) -> None:
        super().__init__()
        self.inner = Linear(d_model, d_ff)
        self.outer = Linear(d_ff, d_model)
        self.dropout = dropout
        for linear in (self.inner, self.outer):
            nn.init.xavier_uniform_(linear.weight)
            nn.init.zeros_(linear.bias)

    def forward(self, x: Tensor) -> Tensor:
        """[..., d_model] to [..., d_model]."""
        inner = F.relu(self.inner(x), inplace=True)
        out: Tensor = self.outer(dropout(inner, self.dropout, self.training))
        return out

    @staticmethod
    def parameter_count(d_model: int, d_ff: int) -> int:
        """Trainable numbers."""
        return 2 * d_model * d_ff + d_ff + d_model

    @staticmethod
    def flops(d_model: int, d_ff: int) -> int:
        """Operations of a forward pass, for each token."""
        return 4 * d_model * d_ff
