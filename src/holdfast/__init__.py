"""holdfast: the job registry that knows what really happened."""

__version__ = "0.1.0"
