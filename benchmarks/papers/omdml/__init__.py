"""Tables of OMDML: its peers, kernels, times, the bound on mistakes, a million items."""
