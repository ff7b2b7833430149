"""Kinds of feed-forward sub-layer (section 3.3), the modules that `model.feed_forward` names.

Each has a class `FeedForward(d_model, d_ff, dropout)`, [..., d_model] to [..., d_model], and says
what it costs, as `relu` does: `parameter_count`, `flops` and `KEPT`.
"""
