"""Facts in words that are easy to say and to hear."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import date

_CITIES = {
    "ATL": "Atlanta",
    "BOS": "Boston",
    "CLT": "Charlotte",
    "DEN": "Denver",
    "DFW": "Dallas",
    "DTW": "Detroit",
    "EWR": "Newark",
    "IAH": "Houston",
    "JFK": "New York Kennedy",
    "LAS": "Las Vegas",
    "LAX": "Los Angeles",
    "LGA": "New York LaGuardia",
    "MCO": "Orlando",
    "MIA": "Miami",
    "MSP": "Minneapolis",
    "ORD": "Chicago",
    "PHL": "Philadelphia",
    "PHX": "Phoenix",
    "SEA": "Seattle",
    "SFO": "San Francisco",
}
_MONTHS = (
    "January",
    "February",
    "March",
    "April",
    "May",
    "June",
    "July",
    "August",
    "September",
    "October",
    "November",
    "December",
)


def place(airport: str) -> str:
    """Returns the city of an airport code, or the code itself when it is not of the domain."""
    return _CITIES.get(airport, airport)


def day(text: str) -> str:
    """Returns "May 24" for an ISO date or date and time; the text itself when it is neither."""
    try:
        value = date.fromisoformat(text[:10])
    except ValueError:
        return text
    return f"{_MONTHS[value.month - 1]} {value.day}"


def cabin(name: str) -> str:
    """Returns "basic economy" for "basic_economy"."""
    return name.replace("_", " ")


def series(items: Sequence[str]) -> str:
    """Returns "A, B and C"."""
    if len(items) < 2:
        return "".join(items)
    return f"{', '.join(items[:-1])} and {items[-1]}"


def dollars(amount: float) -> str:
    """Returns "348 dollars"; without the sign of the amount."""
    return f"{abs(round(amount))} dollar{'' if abs(round(amount)) == 1 else 's'}"


def counted(number: int, noun: str) -> str:
    """Returns "1 bag", "3 bags"."""
    return f"{number} {noun}{'' if number == 1 else 's'}"


def with_article(noun: str) -> str:
    """Returns "an economy", "a business"."""
    return f"{'an' if noun[0].lower() in 'aeiou' else 'a'} {noun}"
