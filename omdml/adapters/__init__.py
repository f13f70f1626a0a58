"""omdml's learners inside other libraries."""
