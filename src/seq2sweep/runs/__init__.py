"""A run on disk or in an object store: journal, checkpoints, status. Imports no Ray."""
