"""Commands about what a store holds: models, their versions, backups."""
