"""Items that are put, changed and deleted one by one: what a change is, and the journal of them in a folder."""
