"""Recorded sessions under eviction policies, without a model: what each would have cost, with its read-backs."""
