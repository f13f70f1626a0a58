"""Catalogues in Redis, for machines that share no folder."""
