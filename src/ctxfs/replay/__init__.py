"""Recorded sessions through eviction policies, without a model: what each would have cost, and what it would regret."""
