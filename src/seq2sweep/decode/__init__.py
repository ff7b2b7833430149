"""From weights to translations: checkpoint averaging and beam search (section 6.1)."""
