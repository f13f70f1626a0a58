"""A model that is learned in parts: how far each part is in it, what all of them know, and how it begins."""
