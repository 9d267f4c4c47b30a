"""Markup and typography out of a model's text, before it is spoken.

All patterns have bounded repeats next to each other, so the time is linear in the text's length.
"""

# ruff: noqa: RUF001 - look-alike characters are what this module is about.

from __future__ import annotations

import re
import unicodedata

_TYPOGRAPHY = str.maketrans(
    {
        "‘": "'", "’": "'", "‚": "'", "‛": "'", "ʼ": "'", "`": " ", "´": "'",
        "“": '"', "”": '"', "„": '"', "«": '"', "»": '"',
        "‐": "-", "‑": "-", "‒": "-", "–": "-", "−": "-", "—": " — ", "―": " — ",
        "…": "...", "•": "\n", "·": " ", "→": " to ", "⇒": " to ", "×": " times ", "⁄": "/",
        "≈": " about ", "≥": " at least ", "≤": " at most ", "\u200b": "", "\ufeff": "",
        "\r": "\n", "\t": " ", "\u2028": "\n", "\u2029": "\n", "\x0b": "\n", "\x0c": "\n",
        "\x1f": " ",
    }
)  # fmt: skip
_FENCE = re.compile(r"^[ ]?(?:```|~~~)[^\n]{0,80}$", re.M)
_IMAGE_OR_LINK = re.compile(r"!?\[([^\[\]\n]{0,300})\]\((?:[^()\s]{0,500})(?: [^()\n]{0,200})?\)")
_HTML = re.compile(r"</?[A-Za-z][^<>\n]{0,200}>|<!--[^<>]{0,500}-->")
_RULE = re.compile(r"^[ ]?(?:[-*_=|: +]{3,300})$", re.M)
_HEADING = re.compile(r"^[ ]?#{1,6}[ ]|[ ]#{1,6}[ ]?$", re.M)
_QUOTE = re.compile(r"^[ ]?(?:>[ ]?){1,9}", re.M)
_BULLET = re.compile(r"^[ ]?[-*+][ ](?:\[[ xX]\][ ])?", re.M)
_NUMBERED = re.compile(r"^[ ]?(\d{1,2})[.)][ ](?=\S)", re.M)
_ESCAPE = re.compile(r"\\([\\`*_{}\[\]()#+\-.!|>~$&])")
_UNDERSCORE_EMPHASIS = re.compile(r"(?<![A-Za-z0-9_])_{1,3}(?=\S)|(?<=\S)_{1,3}(?![A-Za-z0-9_])")
_STARS = re.compile(r"(?<=\d) ?\*{1,2} ?(?=\d)|\*+")
_URL = re.compile(r"\b(?:https?://|www\.)([^\s<>()\[\]\"']{1,500})")
_EMAIL = re.compile(r"(?<![\w.+-])[\w.+-]{1,80}@[\w-]{1,80}(?:\.[\w-]{1,30}){1,5}")
_ENTITIES = {"&amp;": "&", "&lt;": "<", "&gt;": ">", "&nbsp;": " ", "&quot;": '"', "&#39;": "'"}


def strip_markup(text: str) -> str:
    """Plain text of Markdown or simple HTML, in ASCII punctuation, with lines as sentences.

    Identifiers keep their underscores, dashes stay as "—", digits of other scripts become ASCII.
    """
    text = _ascii_digits(unicodedata.normalize("NFKC", text.translate(_TYPOGRAPHY)))
    text = re.sub(" {2,}", " ", text.translate(_TYPOGRAPHY))
    for entity, character in _ENTITIES.items():
        text = text.replace(entity, character)
    text = _FENCE.sub("", text)
    text = _IMAGE_OR_LINK.sub(r"\1", text)
    text = _HTML.sub(" ", text)
    text = _RULE.sub("", text)
    text = _QUOTE.sub("", text)
    text = _HEADING.sub("", text)
    text = _BULLET.sub("", text)
    text = _NUMBERED.sub(r"\1: ", text)
    text = _ESCAPE.sub(r"\1", text)
    text = _STARS.sub(lambda m: " times " if m[0].strip() and " " in m[0] else "", text)
    text = _UNDERSCORE_EMPHASIS.sub("", text)
    text = text.replace("~~", "")
    text = _URL.sub(lambda m: _address(m[1]), text)
    text = _EMAIL.sub(lambda m: _address(m[0]), text)
    return _join_lines(text)


def _ascii_digits(text: str) -> str:
    """Decimal digits of any script as ASCII; other numeric signs away."""
    if text.isascii():
        return text
    out = []
    for character in text:
        if not character.isascii() and unicodedata.category(character).startswith("N"):
            value = unicodedata.decimal(character, None)
            out.append(" " if value is None else str(value))
        else:
            out.append(character)
    return "".join(out)


def _address(text: str) -> str:
    """Reads a mail or web address aloud: "a at example dot com"."""
    tail = ""
    while text and text[-1] in ".,;:!?":
        tail, text = text[-1] + tail, text[:-1]
    for mark, word in (
        ("@", "at"),
        (".", "dot"),
        ("/", "slash"),
        ("-", "dash"),
        ("_", "underscore"),
    ):
        text = text.strip("/").replace(mark, f" {word} ")
    return text + tail


def _join_lines(text: str) -> str:
    """One line, where the end of a line ends a sentence unless punctuation says otherwise."""
    out: list[str] = []
    for raw in text.split("\n"):
        line = raw.replace("|", ", ").strip(" ,")
        if not line:
            continue
        if out and out[-1][-1] not in ".!?:;,—":
            out[-1] += "."
        out.append(line)
    return " ".join(out)
