"""Programs that use omdml as a newcomer would; tests run them."""
