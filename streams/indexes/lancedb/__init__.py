"""An index in LanceDB: one table, and a tag for what readers see."""
