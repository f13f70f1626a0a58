"""What a search does besides measuring distances: codes, cells, query expansion, missing modalities, interleaving."""
