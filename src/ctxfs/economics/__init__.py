"""What an eviction is worth: prices, parameters, the ledger, the planner."""

from ctxfs.economics.economy import CacheTerms, EvictionPricing
from ctxfs.economics.features import ToolClass
from ctxfs.economics.held import Held, Outcome
from ctxfs.economics.ledger import Ledger
from ctxfs.economics.ledger_steps import Added, Billed, Candidate, Left, ReadBack, Replied
from ctxfs.economics.parameters import EvictionParameters
from ctxfs.economics.planner import EconomicPlan, Eviction, EvictionDecision, Why, decisions, plan
from ctxfs.economics.prices import ANTHROPIC_RATES, Rates, bill_usd

__all__ = [
    "ANTHROPIC_RATES",
    "Added",
    "Billed",
    "CacheTerms",
    "Candidate",
    "EconomicPlan",
    "Eviction",
    "EvictionDecision",
    "EvictionParameters",
    "EvictionPricing",
    "Held",
    "Ledger",
    "Left",
    "Outcome",
    "Rates",
    "ReadBack",
    "Replied",
    "ToolClass",
    "Why",
    "bill_usd",
    "decisions",
    "plan",
]
