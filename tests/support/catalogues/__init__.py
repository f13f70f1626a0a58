"""Catalogues, and what is searched in them or written of them."""
