"""What a sweep trains, in which order, and what it keeps of each trial. Imports no Ray."""
