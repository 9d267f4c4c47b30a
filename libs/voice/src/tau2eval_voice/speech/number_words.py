"""Numbers as American English words, without "and" and without digits."""

from __future__ import annotations

_ONES = (
    "zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten",
    "eleven", "twelve", "thirteen", "fourteen", "fifteen", "sixteen", "seventeen", "eighteen",
    "nineteen",
)  # fmt: skip
_TENS = ("", "", "twenty", "thirty", "forty", "fifty", "sixty", "seventy", "eighty", "ninety")
_SCALES = ((10**12, "trillion"), (10**9, "billion"), (10**6, "million"), (1000, "thousand"))
_ORDINALS = {
    "one": "first", "two": "second", "three": "third", "five": "fifth", "eight": "eighth",
    "nine": "ninth", "twelve": "twelfth",
}  # fmt: skip
# Longer numbers are spoken digit by digit.
MAX_CARDINAL_DIGITS = 12

DIGIT_WORDS = _ONES[:10]


def digit_words(digits: str, separator: str = ", ") -> str:
    """Reads digits one by one: "150" becomes "one, five, zero"."""
    return separator.join(DIGIT_WORDS[int(digit)] for digit in digits)


def cardinal(value: int) -> str:
    """1234 becomes "one thousand two hundred thirty-four". The value is from 0 to 10**15 - 1."""
    if value < 20:
        return _ONES[value]
    if value < 100:
        tens, ones = divmod(value, 10)
        return _TENS[tens] + (f"-{_ONES[ones]}" if ones else "")
    if value < 1000:
        hundreds, rest = divmod(value, 100)
        return f"{_ONES[hundreds]} hundred" + (f" {cardinal(rest)}" if rest else "")
    for scale, name in _SCALES:
        if value >= scale:
            count, rest = divmod(value, scale)
            return f"{cardinal(count)} {name}" + (f" {cardinal(rest)}" if rest else "")
    raise ValueError(f"{value} is out of range")


def ordinal(value: int) -> str:
    """21 becomes "twenty-first"."""
    words = cardinal(value)
    cut = max(words.rfind(" "), words.rfind("-")) + 1
    last = words[cut:]
    if last in _ORDINALS:
        last = _ORDINALS[last]
    elif last.endswith("y"):
        last = last[:-1] + "ieth"
    else:
        last += "th"
    return words[:cut] + last


def year(value: int) -> str:
    """2024 becomes "twenty twenty-four", 2005 "two thousand five", 1900 "nineteen hundred"."""
    century, rest = divmod(value, 100)
    if not 1000 <= value <= 2999 or value // 10 in (100, 200):
        return cardinal(value)
    if rest == 0:
        return cardinal(value) if century % 10 == 0 else f"{cardinal(century)} hundred"
    return f"{cardinal(century)} " + (f"oh {cardinal(rest)}" if rest < 10 else cardinal(rest))


def number(text: str) -> str:
    """Words of a plain number of ASCII digits, with grouping commas and one point allowed.

    A leading zero or more than twelve digits are read digit by digit.
    """
    whole, point, fraction = text.replace(",", "").partition(".")
    if len(whole) > MAX_CARDINAL_DIGITS or (len(whole) > 1 and whole.startswith("0")):
        words = digit_words(whole)
    else:
        words = cardinal(int(whole or "0"))
    if point and fraction:
        words += " point " + digit_words(fraction, " ")
    return words
