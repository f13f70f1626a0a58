"""What the walks of several learners have in common: open blocks, dot products, counts, Hedge, views of memory."""
