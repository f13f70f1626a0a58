"""What a search may ask for beside its query: several queries, expansion, explanation, versions compared."""
