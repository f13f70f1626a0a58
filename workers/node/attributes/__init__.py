"""What items are beside their vectors: attributes that searches filter by, and that answers bring."""
