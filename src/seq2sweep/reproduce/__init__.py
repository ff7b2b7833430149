"""A recorded run made again: what is recorded for it, a worktree of it, and the verdict."""

CHANGES_NO_RESULT = "what is recorded of a result, and how a result is made again"
