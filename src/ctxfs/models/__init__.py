"""What is known of models: windows, prices, prompt caches."""

from ctxfs.models.known import ModelInfo, UnknownModel, known_model
from ctxfs.models.prices import CacheTtl, Prices

__all__ = ["CacheTtl", "ModelInfo", "Prices", "UnknownModel", "known_model"]
