"""Output stores, the results in them, and the validation of what a job promised."""
