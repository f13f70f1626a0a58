"""The items' vectors: building, reading, and vectors that events bring along."""
