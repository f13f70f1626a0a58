"""Building a catalogue from tables, and adding items to one."""
