"""What is known of models: windows, prices, prompt caches."""
