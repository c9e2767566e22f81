"""From results to answers: one file for each thing that is asked. The page and the terminal show the same."""
