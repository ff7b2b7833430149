"""What a sweep is and comes to."""
