"""What tests of several kinds use: nothing here imports the product."""
