"""Tables of LAW: metrics from quadruplets, a Fantope regularizer, web pages."""
