"""Training as in section 5: schedule, loss, one update, checkpoints and the loop."""
