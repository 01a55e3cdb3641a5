"""Stores in one SQLite file: for one machine that must survive a restart."""
