"""Tables of SetNet: items that are sets of vectors."""
