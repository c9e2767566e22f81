"""The page of the yard: `gpuyard serve` shows the answers of the API in a browser, live, and acts for the user who asks.

Views call `gpuyard.api` and the renderers of `gpuyard.report`; nothing is computed here a second time.
"""
