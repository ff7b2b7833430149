"""Models as other programs read them, each checked in its new engine before it is there."""
