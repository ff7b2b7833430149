"""What a BLEU score lost, and to what: `seq2sweep why`."""
