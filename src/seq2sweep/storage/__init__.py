"""Files and objects: whole or not there, locked, leased, retried. Knows nothing of runs."""

CHANGES_NO_RESULT = "where files are kept, and who waits for whom"
