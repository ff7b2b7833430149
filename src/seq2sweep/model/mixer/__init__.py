"""Kinds of mixer, the sub-layer that lets positions of one sentence see each other.

They are the modules that `model.encoder_mixer` and `model.decoder_mixer` name. Self-attention is
the paper's; the others are the layers that section 4 compares it with. Each has a class
`Mixer(config, causal, layer)` with a `forward` from x [B, n, d_model], or packed, to the same
shape; causal: position i sees 0 ... i (a decoder's). `start` and `step` decode one position at a
time. It says what it costs, as `self_attention` does: `parameter_count`, `flops`, `kept_bytes`;
and of how many of the last positions a step needs keys and values: `reach`, 0 for none (it has a
state), `sys.maxsize` for all.
"""
