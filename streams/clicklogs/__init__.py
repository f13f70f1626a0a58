"""Click logs as other programs write them, read as result pages: CSV, UBI, Metarank."""
