"""Kinds of normalisation, the modules that `model.norm_kind` names.

Each has a class `Norm(d_model)`, [..., d_model] to [..., d_model], and says what it costs, as
`layernorm` does: `parameter_count` and `kept_bytes`. `REPEATS`: as of a feed-forward sub-layer.
"""
