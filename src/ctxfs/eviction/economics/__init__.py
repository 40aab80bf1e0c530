"""What an eviction is worth: prices, parameters, the ledger, the planner."""
