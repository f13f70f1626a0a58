"""How omdml is run: configuration, access rights, and real services on one machine."""
