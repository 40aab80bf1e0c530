"""What is evicted, when and why, decided as values: plans, keep-recent, eager, budget, compaction, summary."""
