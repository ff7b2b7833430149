"""Text of one's own: what params.yaml names of it, and pairs that are held out of training."""
