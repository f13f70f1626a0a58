"""The retrieval node: follows the store, swaps versions in, searches."""
