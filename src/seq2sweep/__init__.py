"""seq2sweep: the Transformer paper as a living, distributed experiment."""
