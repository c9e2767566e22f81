"""The keys of a job file that apply to one engine only."""
