"""From text to batches: reading, cleaning, word pieces, encoded bitext, batching."""
