"""How omdml is run: containers, units, boards, and real services on one machine."""
