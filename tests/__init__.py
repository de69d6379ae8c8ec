"""The tests, in the folders of what they test. Their programs find them by the root of the repository."""

from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
