"""The contracts of everything that brings bytes in or takes bytes out; docstrings are the contract, suites test it."""
