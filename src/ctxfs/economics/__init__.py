"""What an eviction is worth: prices, parameters, the ledger, the planner."""

from ctxfs.economics.economy import CacheTerms, EvictionPricing
from ctxfs.economics.features import ToolClass
from ctxfs.economics.ledger import Added, Candidate, Held, Ledger, Outcome, ReadBack, Replied
from ctxfs.economics.parameters import EvictionParameters
from ctxfs.economics.planner import EconomicPlan, Eviction, EvictionDecision, Why, decisions, plan
from ctxfs.economics.prices import ANTHROPIC_RATES, CacheTtl, Prices, Rates, prices_for

__all__ = [
    "ANTHROPIC_RATES",
    "Added",
    "CacheTerms",
    "CacheTtl",
    "Candidate",
    "EconomicPlan",
    "Eviction",
    "EvictionDecision",
    "EvictionParameters",
    "EvictionPricing",
    "Held",
    "Ledger",
    "Outcome",
    "Prices",
    "Rates",
    "ReadBack",
    "Replied",
    "ToolClass",
    "Why",
    "decisions",
    "plan",
    "prices_for",
]
