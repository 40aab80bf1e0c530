"""Amounts are whole thousandths of a cent, so that no sum depends on the order of its parts."""

THOUSANDTHS = 1_000
CENTS = 100


def cents(thousandths):
    """An amount in cents, rounded half up."""
    return (thousandths + THOUSANDTHS // 2) // THOUSANDTHS


def euros(thousandths):
    """An amount as it is printed: 12.34."""
    whole, rest = divmod(cents(thousandths), CENTS)
    return f"{whole:,}.{rest:02}"
