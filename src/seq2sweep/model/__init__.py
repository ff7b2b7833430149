"""The Transformer of section 3, its parameters and its cost."""
