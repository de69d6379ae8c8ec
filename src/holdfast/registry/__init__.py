"""The verbs: load, decide, commit."""
