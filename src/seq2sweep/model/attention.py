"""Multi-head scaled dot-product attention (section 3.2).

Shapes: B sentences, n queries, m keys, h heads; d_k and d_v are independent of d_model / h.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional as F


class MultiHeadAttention(nn.Module):
    """Concat(head_1, ..., head_h) W^O with head_i = Attention(Q W_i^Q, K W_i^K, V W_i^V).

    W^Q, W^K and W^V of all heads are stacked in one matrix, so that self-attention projects in
    one product. No biases: the paper's equations have none.
    """

    def __init__(self, d_model: int, heads: int, d_k: int, d_v: int) -> None:
        super().__init__()
        self.heads, self.d_k, self.d_v = heads, d_k, d_v
        self.query_width = heads * d_k
        self.projection = nn.Parameter(torch.empty(heads * (2 * d_k + d_v), d_model))
        self.output = nn.Linear(heads * d_v, d_model, bias=False)
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Xavier uniform for each of W^Q, W^K, W^V and W^O on its own."""
        with torch.no_grad():
            widths = [self.query_width, self.query_width, self.heads * self.d_v]
            for matrix in self.projection.split(widths):
                nn.init.xavier_uniform_(matrix)
            nn.init.xavier_uniform_(self.output.weight)

    def forward(self, x: Tensor, mask: Tensor | None = None, causal: bool = False) -> Tensor:
        """Self-attention of x [B, n, d_model].

        mask: bool, broadcastable to [B, h, n, n], True where a query may look at a key.
        """
        queries, keys, values = self.project(x)
        return self.attend(queries, keys, values, mask, causal)

    def project(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Queries, keys [B, h, n, d_k] and values [B, h, n, d_v] of x [B, n, d_model]."""
        widths = [self.query_width, self.query_width, self.heads * self.d_v]
        queries, keys, values = F.linear(x, self.projection).split(widths, dim=-1)
        return self._by_head(queries), self._by_head(keys), self._by_head(values)

    def project_queries(self, x: Tensor) -> Tensor:
        """Queries [B, h, n, d_k] of x [B, n, d_model]."""
        return self._by_head(F.linear(x, self.projection[: self.query_width]))

    def project_memory(self, memory: Tensor) -> tuple[Tensor, Tensor]:
        """Keys [B, h, m, d_k] and values [B, h, m, d_v] of memory [B, m, d_model]."""
        widths = [self.query_width, self.heads * self.d_v]
        keys, values = F.linear(memory, self.projection[self.query_width :]).split(widths, dim=-1)
        return self._by_head(keys), self._by_head(values)

    def attend(
        self,
        queries: Tensor,
        keys: Tensor,
        values: Tensor,
        mask: Tensor | None = None,
        causal: bool = False,
    ) -> Tensor:
        """softmax(Q K^T / sqrt(d_k)) V (equation 1), heads joined by W^O: [B, n, d_model]."""
        heads = F.scaled_dot_product_attention(
            queries, keys, values, attn_mask=mask, is_causal=causal
        )
        joined: Tensor = self.output(heads.transpose(1, 2).flatten(2))
        return joined

    def _by_head(self, x: Tensor) -> Tensor:
        """[B, n, h * d] to [B, h, n, d]."""
        split: Tensor = x.unflatten(-1, (self.heads, -1))
        return split.transpose(1, 2)
