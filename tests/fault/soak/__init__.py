"""The soak: many models for a long time under mixed faults, and whether memory, files and threads stay flat."""
