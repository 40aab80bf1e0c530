"""Adapters: one module for each framework that owns its history. Import the one for yours; none is imported here."""
