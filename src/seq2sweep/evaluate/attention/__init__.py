"""What a model attends to: maps of sentence pairs, heads in numbers, and word alignments."""
