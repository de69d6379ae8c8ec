"""The worker: claims jobs, renews their leases, runs them and reports how they ended."""
