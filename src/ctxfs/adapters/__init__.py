"""Adapters: one module for each framework that owns its history. Import the module of yours; none is imported here."""
