"""A trained model that answers: over HTTP, and as MLflow loads it."""
