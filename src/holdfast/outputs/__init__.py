"""Outputs: where results are kept, how they are found, and the verdict on what is missing."""
