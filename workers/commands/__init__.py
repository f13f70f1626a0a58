"""Commands of operators, a file a noun; what they do lies beside, in workers/."""
