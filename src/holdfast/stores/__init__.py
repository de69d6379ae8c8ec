"""The stores: adapters that keep jobs in memory, in SQLite, in PostgreSQL or in objects."""
