"""The compiled parts of ``omdml/engines/second_order``: the walk of DCA, its experts, and matrix products by BLAS."""
