"""The compiled parts of SetNet: its walk, and the vectors of sets (MATHS 8)."""
