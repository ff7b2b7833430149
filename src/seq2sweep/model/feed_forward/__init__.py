"""Kinds of feed-forward sub-layer (section 3.3), the modules that `model.feed_forward` names.

Each has a class `FeedForward(d_model, d_ff, dropout)`, [..., d_model] to [..., d_model], and says
what it costs, as `relu` does: `parameter_count`, `flops` and `KEPT`. With `REPEATS = True` it says
that each pass of a shape starts the same kernels, so that it may be a CUDA graph: nothing in it is
decided or counted by Python, or asks a GPU for a number.
"""
