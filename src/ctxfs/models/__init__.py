"""What is known of models: windows, prices, prompt caches."""

from ctxfs.models.known import ModelInfo, known_model
from ctxfs.models.prices import CacheTtl, Prices

__all__ = ["CacheTtl", "ModelInfo", "Prices", "known_model"]
