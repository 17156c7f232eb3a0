"""Runnable comparisons: `python -m benchmarks NAME`. Each prints one JSON object as its last line."""
