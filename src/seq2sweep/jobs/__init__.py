"""Stages as jobs on a cluster: what goes there, runs there and comes back."""

CHANGES_NO_RESULT = "where a stage runs"
