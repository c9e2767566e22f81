"""Turn results into answers, with one file per command; the page and the terminal show the same answer."""
