"""Single objects under compare-and-swap."""
