"""The server: job.v1 and holdfast.v1 over one registry. It keeps nothing; run as many as you like."""
