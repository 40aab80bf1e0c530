"""What an eviction is worth: prices, parameters, the ledger, the planner."""

from ctxfs.economics.belief import Billed
from ctxfs.economics.economy import CacheTerms, EvictionPricing
from ctxfs.economics.features import ItemKind
from ctxfs.economics.held import Candidate, Chain, Held, ItemBlock
from ctxfs.economics.ledger import Ledger, OpenReadBacks
from ctxfs.economics.outlook import decisions
from ctxfs.economics.parameters import EvictionParameters
from ctxfs.economics.planner import plan
from ctxfs.economics.plans import EconomicPlan, Eviction, EvictionDecision, Why
from ctxfs.economics.prices import ANTHROPIC_RATES, Rates, bill_usd

__all__ = [
    "ANTHROPIC_RATES",
    "Billed",
    "CacheTerms",
    "Candidate",
    "Chain",
    "EconomicPlan",
    "Eviction",
    "EvictionDecision",
    "EvictionParameters",
    "EvictionPricing",
    "Held",
    "ItemBlock",
    "ItemKind",
    "Ledger",
    "OpenReadBacks",
    "Rates",
    "Why",
    "bill_usd",
    "decisions",
    "plan",
]
