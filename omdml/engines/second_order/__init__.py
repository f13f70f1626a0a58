"""The engine of DCA: second moments of near and far pairs, and the metrics that are made from them (MATHS 12)."""
