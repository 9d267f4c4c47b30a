"""Dates, times, amounts and other numbers in text as the words that are spoken."""

from __future__ import annotations

import re
from collections.abc import Callable

from tau2eval_voice.speech.number_words import cardinal, digit_words, number, ordinal, year

MONTHS = (
    "January", "February", "March", "April", "May", "June", "July", "August", "September",
    "October", "November", "December",
)  # fmt: skip
_MONTH_BY_PREFIX = {month[:3].lower(): month for month in MONTHS}
_MONTH = (
    r"(Jan(?:uary)?|Feb(?:ruary)?|Mar(?:ch)?|Apr(?:il)?|May|June?|July?|Aug(?:ust)?|"
    r"Sept?(?:ember)?|Oct(?:ober)?|Nov(?:ember)?|Dec(?:ember)?)"
)
_NUMBER = r"(?:\d{1,3}(?:,\d{3}){1,4}|\d{1,20})(?:\.\d{1,20})?"
_SCALE = r"(?:\s?(hundred|thousand|million|billion|trillion|[kKMB])\b)?"
_SUFFIX = r"(?:\s?([AaPp])\.?\s?[Mm]\b\.?)"
_START = r"(?<![\w.,])"

_TIME_OF_DAY = r"(\d{1,2}):(\d{2})(?::(\d{2})(?:\.\d{1,9})?)?"
_ISO_DATE_TIME = re.compile(
    rf"{_START}(\d{{4}}-\d{{2}}-\d{{2}})[T ]{_TIME_OF_DAY}(?:Z|[+-]\d\d:?\d\d)?\b"
)
_ISO_DATE = re.compile(r"(?<!\d)(\d{4})-(\d{1,2})-(\d{1,2})(?!\d)")
_US_DATE = re.compile(r"(?<![\d/])(\d{1,2})/(\d{1,2})/(\d{4}|\d{2})(?![\d/])")
_MONTH_DAY = re.compile(
    rf"\b{_MONTH}\.?\s(?:the\s)?(\d{{1,2}})(?:st|nd|rd|th)?(?![\d:%\w])(?:(,?\s)(\d{{4}})(?![\d:%,]\d|\w))?"
)
_DAY_MONTH = re.compile(
    rf"{_START}(\d{{1,2}})(?:st|nd|rd|th)?\s(?:of\s)?{_MONTH}\b\.?(?:(,?\s)(\d{{4}})\b)?"
)
_TIME = re.compile(rf"{_START}{_TIME_OF_DAY}(?!\d){_SUFFIX}?")
_HOUR = re.compile(rf"{_START}(\d{{1,2}}){_SUFFIX}")
_MONEY = re.compile(rf"(-\s?)?(?:USD?\s?)?([$€£])\s?(-?)({_NUMBER}){_SCALE}(?:\s?USD\b)?")
_MONEY_AFTER = re.compile(rf"{_START}({_NUMBER})\s?(USD|EUR|GBP|€|¢)(?![\w])")
_PERCENT = re.compile(rf"{_START}({_NUMBER})\s?%")
_ORDINAL = re.compile(r"(?<![\w.])(\d{1,6})(?:st|nd|rd|th)\b", re.I)
_PHONE = re.compile(
    r"(?<![\w.])(?:\+?(\d{1,3})[ .-])?\(?(\d{3})\)?[ .-](\d{3})[ .-](\d{4})(?![\w-])"
)
_DIGITS_CONTEXT = re.compile(
    r"\b((?:ending|ends|end)\s(?:in|with)|last\s(?:four|4)(?:\sdigits)?(?:\s(?:are|is|of))?|"
    r"zip(?:\scode)?(?:\sis)?|postal\scode(?:\sis)?|[A-Z]{2}|flights?(?:\snumber)?|"
    r"(?:card|account|phone|id|reference)(?:\snumber)?(?:\sis)?|PIN|CVV)(:?\s)#?(\d{3,20})(?![\d,.]\d|\w|:|%)"
)
_YEAR = re.compile(rf"{_START}((?:19|20)\d{{2}})(?![\w%:]|[.,]\d)")
_RANGE = re.compile(rf"{_START}({_NUMBER})\s?-\s?({_NUMBER})(?![\w-])")
_FRACTION = re.compile(r"(?<![\w/.])(\d{1,2})/(\d{1,2})(?![\w/])")
_NUMBER_SIGN = re.compile(r"#(?=\d)|\b(?:No|Nos)\.\s?(?=\d)")
_SIGNED = re.compile(rf"(?<![\w.)-])-(?={_NUMBER})")
_ABOUT = re.compile(r"~\s?(?=[\d$])")
_LONG = re.compile(r"(?<![\d.,])\d{7,}(?![\d,]|\.\d)")
_GROUPED = re.compile(rf"(?<![\w.]){_NUMBER}(?![A-Za-z]|\d)")

_FRACTIONS = {2: "half", 4: "quarter"}
_CURRENCIES = {
    "$": ("dollar", "dollars", "cent", "cents"),
    "€": ("euro", "euros", "cent", "cents"),
    "£": ("pound", "pounds", "penny", "pence"),
    "¢": ("cent", "cents", "", ""),
}
_CURRENCY_CODES = {"USD": "$", "EUR": "€", "GBP": "£"}
_SCALES = {"k": "thousand", "m": "million", "b": "billion"}
_UNITS = {
    "kg": ("kilogram", "kilograms"), "lb": ("pound", "pounds"), "lbs": ("pound", "pounds"),
    "km": ("kilometer", "kilometers"), "mi": ("mile", "miles"), "cm": ("centimeter", "centimeters"),
    "in": ("inch", "inches"), "ft": ("foot", "feet"), "h": ("hour", "hours"),
    "hr": ("hour", "hours"), "hrs": ("hour", "hours"), "min": ("minute", "minutes"),
    "mins": ("minute", "minutes"), "s": ("second", "seconds"), "sec": ("second", "seconds"),
    "x": ("times", "times"), "k": ("thousand", "thousand"),
}  # fmt: skip
_WITH_UNIT = re.compile(r"(\d{1,6})([A-Za-z]{1,4})")
_DURATION = re.compile(r"(\d{1,3})h(\d{1,2})m?", re.I)
_SPACED_UNIT = re.compile(rf"{_START}({_NUMBER})\s(kg|lbs?|km|mi|cm|hrs?|mins?)\b\.?")


def expand_quantities(text: str) -> str:
    """Writes out what has a form of its own; bare numbers glued to letters are left as they are."""
    for pattern, replace in _RULES:
        text = pattern.sub(replace, text)
    return text


def expand_unit(token: str) -> str | None:
    """Reads "10kg" as "ten kilograms"; None when the token is no number with a unit."""
    if match := _DURATION.fullmatch(token):
        return f"{_count(match[1], 'hour', 'hours')} {_count(match[2], 'minute', 'minutes')}"
    match = _WITH_UNIT.fullmatch(token)
    if match is None or match[2] not in _UNITS:
        return None
    return _count(match[1], *_UNITS[match[2]])


def _count(digits: str, one: str, many: str) -> str:
    return f"{number(digits)} {one if digits == '1' else many}"


def _date(year_digits: str | None, month: int, day: int, comma: str = ", ") -> str | None:
    if not (1 <= month <= 12 and 1 <= day <= 31):
        return None
    words = f"{MONTHS[month - 1]} {ordinal(day)}"
    return f"{words}{comma}{year(int(year_digits))}" if year_digits else words


def _iso_date(match: re.Match[str]) -> str:
    return _date(match[1], int(match[2]), int(match[3])) or match[0]


def _iso_date_time(match: re.Match[str]) -> str:
    parts = match[1].split("-")
    date = _date(parts[0], int(parts[1]), int(parts[2]))
    time = _clock(match[2], match[3], match[4], None)
    return f"{date} at {time}" if date and time else match[0]


def _us_date(match: re.Match[str]) -> str:
    month, day = int(match[1]), int(match[2])
    if month > 12:
        month, day = day, month
    digits = match[3] if len(match[3]) == 4 else ("19" if int(match[3]) > 40 else "20") + match[3]
    return _date(digits, month, day) or match[0]


def _month_day(match: re.Match[str]) -> str:
    if not 1 <= int(match[2]) <= 31:
        return match[0]
    month = _MONTH_BY_PREFIX[match[1][:3].lower()]
    return f"{month} {ordinal(int(match[2]))}" + _year_after(match[3], match[4])


def _day_month(match: re.Match[str]) -> str:
    if not 1 <= int(match[1]) <= 31:
        return match[0]
    month = _MONTH_BY_PREFIX[match[2][:3].lower()]
    return f"{month} {ordinal(int(match[1]))}" + _year_after(match[3], match[4])


def _year_after(comma: str | None, digits: str | None) -> str:
    return f"{', ' if comma and ',' in comma else ' '}{year(int(digits))}" if digits else ""


def _clock(hours: str, minutes: str, seconds: str | None, half: str | None) -> str | None:
    hour, minute = int(hours), int(minutes)
    if hour > 24 or minute > 59:
        return None
    # Written in 24 hours: said with a.m. and p.m., as callers do.
    if half is None and (hour > 12 or hours.startswith("0") or hour == 0):
        half = "p" if 12 <= hour < 24 else "a"
    if half is not None:
        hour = hour % 12 or 12
    words = cardinal(hour)
    if minute:
        words += (" oh " if minute < 10 else " ") + cardinal(minute)
    elif half is None:
        words += " o'clock"
    if seconds and int(seconds):
        words += f" and {cardinal(int(seconds))} seconds"
    return f"{words} {half}.m." if half else words


def _time(match: re.Match[str]) -> str:
    half = match[4].lower() if match[4] else None
    words = _clock(match[1], match[2], match[3], half)
    return match[0] if words is None else words + _full_stop(match, words)


def _hour(match: re.Match[str]) -> str:
    words = _clock(match[1], "00", None, match[2].lower())
    return match[0] if words is None else words + _full_stop(match, words)


def _full_stop(match: re.Match[str], words: str) -> str:
    """The blank that a dot of "p.m." must not swallow."""
    following = match.string[match.end() : match.end() + 1]
    return " " if words.endswith(".") and following.isalnum() else ""


def _money(match: re.Match[str]) -> str:
    minus = "minus " if match[1] or match[3] else ""
    return minus + _amount(match[2], match[4], match[5])


def _money_after(match: re.Match[str]) -> str:
    return _amount(_CURRENCY_CODES.get(match[2], match[2]), match[1], None)


def _amount(sign: str, digits: str, scale: str | None) -> str:
    one, many, small_one, small_many = _CURRENCIES[sign]
    if scale:
        return f"{number(digits)} {_SCALES.get(scale.lower(), scale)} {many}"
    whole, point, fraction = digits.replace(",", "").partition(".")
    whole = whole.lstrip("0") or "0"
    if point and (len(fraction) > 2 or not small_one):
        return f"{number(digits)} {many}"
    cents = int(fraction.ljust(2, "0")) if fraction else 0
    small = f"{cardinal(cents)} {small_one if cents == 1 else small_many}"
    if cents and whole == "0":
        return small
    words = f"{number(whole)} {one if whole == '1' else many}"
    return f"{words} and {small}" if cents else words


def _phone(match: re.Match[str]) -> str:
    return ", ".join(digit_words(group) for group in match.groups() if group)


def _digits(match: re.Match[str]) -> str:
    return f"{match[1]}{match[2]}{digit_words(match[3])}"


def _fraction(match: re.Match[str]) -> str:
    top, bottom = int(match[1]), int(match[2])
    if 0 < top < bottom <= 10:
        unit = _FRACTIONS.get(bottom) or ordinal(bottom)
        plural = "halves" if unit == "half" else f"{unit}s"
        return f"{cardinal(top)} {unit if top == 1 else plural}"
    return _date(None, top, bottom) or f"{cardinal(top)} {cardinal(bottom)}"


_Replace = str | Callable[[re.Match[str]], str]
# In this order: each rule may rely on the earlier ones having taken what is theirs.
_RULES: tuple[tuple[re.Pattern[str], _Replace], ...] = (
    (_ISO_DATE_TIME, _iso_date_time),
    (_ISO_DATE, _iso_date),
    (_US_DATE, _us_date),
    (_MONTH_DAY, _month_day),
    (_DAY_MONTH, _day_month),
    (_TIME, _time),
    (_HOUR, _hour),
    (_ABOUT, "about "),
    (_MONEY, _money),
    (_MONEY_AFTER, _money_after),
    (_PERCENT, lambda m: f"{number(m[1])} percent"),
    (_ORDINAL, lambda m: ordinal(int(m[1]))),
    (_PHONE, _phone),
    (_DIGITS_CONTEXT, _digits),
    (_FRACTION, _fraction),
    (_NUMBER_SIGN, "number "),
    (_SPACED_UNIT, lambda m: _count(m[1], *_UNITS[m[2]])),
    (_RANGE, lambda m: f"{number(m[1])} to {number(m[2])}"),
    (_YEAR, lambda m: year(int(m[1]))),
    (_SIGNED, "minus "),
    (_LONG, lambda m: digit_words(m[0])),
    (_GROUPED, lambda m: number(m[0])),
)
