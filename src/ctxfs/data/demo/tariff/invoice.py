"""What is printed."""

from tariff.money import euros

RULE = "-" * 78


def heading(bill):
    """Whose bill it is."""
    one = bill.customer
    return [f"{one.number}  {one.name}  contract {one.contract}  {bill.year}-{bill.month:02}", RULE]


def kilowatt_hours(watt_hours):
    """Watt-hours as they are printed."""
    return f"{watt_hours / 1_000:10.3f}"


def hour_line(hour):
    """One hour, or a quarter of one."""
    offset = (hour.local - hour.utc).seconds // 3_600
    return (
        f"{hour.local:%a %Y-%m-%d %H:%M} +{offset:02}  {hour.zone:8}{kilowatt_hours(hour.watt_hours)} kWh"
        f"  {hour.cents_per_kwh:3} ct  {hour.amount / 1_000:9.3f} ct"
    )


def zone_lines(bill):
    """What each zone comes to."""
    return [
        f"{name:20}{kilowatt_hours(counted)} kWh {euros(amount):>12} EUR"
        for name, (counted, amount) in bill.by_zone().items()
    ]


def total_lines(bill):
    """The standing charge and the total."""
    return [
        RULE,
        *zone_lines(bill),
        f"{'standing charge':34} {euros(bill.standing):>12} EUR",
        f"{'total':34} {euros(bill.total):>12} EUR",
    ]


def render_month(bill):
    """A month, one line a day: what each zone counted."""
    lines = heading(bill)
    for day, hours in bill.by_day().items():
        zones = {}
        for hour in hours:
            zones[hour.zone] = zones.get(hour.zone, 0) + hour.watt_hours
        parts = "  ".join(f"{name} {counted / 1_000:7.3f}" for name, counted in sorted(zones.items()))
        lines.append(f"{day:%a %Y-%m-%d}  {len(hours)} h  {parts}  {euros(sum(h.amount for h in hours)):>8} EUR")
    return "\n".join([*lines, *total_lines(bill)])


def render_hours(bill):
    """A month, one line an hour."""
    return "\n".join([*heading(bill), *(hour_line(hour) for hour in bill.hours), *total_lines(bill)])


def render_day(customer, hours):
    """A day or a week, a line for each of ``hours``."""
    total = sum(hour.amount for hour in hours)
    head = f"{customer.number}  {customer.name}  contract {customer.contract}"
    return "\n".join([head, RULE, *(hour_line(hour) for hour in hours), RULE, f"{euros(total):>46} EUR"])


def render_totals(bills):
    """The totals of all customers."""
    lines = []
    for bill in bills:
        one = bill.customer
        counted = sum(hour.watt_hours for hour in bill.hours)
        lines.append(
            f"{one.number}  {one.name:16} {one.contract:9} {len(bill.hours):4} h {kilowatt_hours(counted)} kWh"
            f" {euros(bill.total):>12} EUR"
        )
    return "\n".join(lines)
