"""Opening a registry from Python."""
