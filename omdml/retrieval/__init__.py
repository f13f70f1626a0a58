"""What a search does beside measuring distances: expands queries, fills modalities that are missing, mixes rankings."""
