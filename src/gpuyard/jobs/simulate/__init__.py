"""What would have happened: a trace of jobs, run through a policy on machines that are only numbers."""
