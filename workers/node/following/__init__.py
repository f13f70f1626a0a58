"""Which version a node answers with: how it hears of new ones, and how it loads and swaps them in."""
