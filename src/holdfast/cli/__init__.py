"""The command line: one noun per file."""
