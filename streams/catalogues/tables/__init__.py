"""Tables of items that a catalogue is built from: CSV, numpy, Parquet."""
