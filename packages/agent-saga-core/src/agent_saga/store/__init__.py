"""Logs: the port, the SQLite and the memory log, owners, and what verifies them."""
