"""Words that say whether a tool looks something up or changes something."""

from __future__ import annotations

from collections.abc import Iterable


def as_words(text: str) -> frozenset[str]:
    """Returns the words of a text."""
    return frozenset(text.split())


LOOKUPS = as_words(
    "get list find search lookup look fetch read retrieve query show view display describe "
    "check inspect count compare calculate compute estimate convert think reason browse "
    "preview track validate peek poll is has can whoami help status info explain summarize "
    "summarise analyze analyse examine determine calculator grep glob enumerate see"
)
"""Verbs (and a few names) of tools that change nothing."""

SUFFIX_LOOKUPS = frozenset(("get", "fetch", "lookup", "search", "query"))
"""End the names of lookups as well: web_search, order_lookup."""

CHANGES = as_words(
    "accept activate add adjust allocate amend append apply approve archive assign attach "
    "authorize authorise ban buy cancel clear clone confirm connect create deactivate debit "
    "decline deduct delete deliver deny deploy deposit destroy detach disable disconnect "
    "dismiss dispatch downgrade drop edit eject eliminate enable enroll enrol erase execute "
    "expire extend forget format generate grant hire import increase decrease insert "
    "install invite kill launch merge modify mutate notify onboard overwrite pay persist "
    "process provision publish purchase purge put reactivate reboot rebook recharge redeem "
    "refuel register reject remove rename renew reopen replace reply reschedule reseat reset "
    "resend restart restore restock resume revert revoke rotate save sell send ship submit "
    "subscribe suspend swap switch terminate toggle truncate unassign unblock unfreeze "
    "uninstall unlock unsubscribe update upgrade upload upsert vote waive wipe withdraw write"
)
"""Verbs that change something, whatever stands beside them."""

NOUN_LIKE_CHANGES = as_words(
    "book block change charge close comment credit document email escalate exchange file fix "
    "flag fund hold issue lock log mail mark message move note order patch place post record "
    "refund release report reserve return schedule set stop text transfer"
)
"""Verbs that change something and are as often nouns ("Order details")."""

THINGS_KNOWN = as_words(
    "availability count detail details history info information lookup price search status"
)
"""End a name whose first word is a noun: order_status."""

MUTATORS = as_words(
    "create delete destroy drop edit erase insert modify overwrite purge remove replace "
    "truncate upsert wipe write"
)
"""Behind a lookup verb these leave a doubt: search_replace."""

PARTICLES = {
    "check": frozenset(("in", "out", "off")),
    "get": frozenset(("rid",)),
    "look": frozenset(("after",)),
    "read": frozenset(("in",)),
    "see": frozenset(("off",)),
}
"""Words that turn a lookup verb into another one: check_in."""

DETERMINERS = as_words(
    "a all an another any both each either every her his it its multiple my new one or our "
    "several some that the their them these this those two up user your"
)

PREFACE = as_words(
    "a action agent agents allow allows also an and api are assistant be by call called can "
    "caller client command customer customers does endpoint enables first for function he "
    "help helps if in is it lets let method model must need needed of on only operation "
    "or please provide provides she should that the then they this to tool tools use used "
    "user users uses using utility want wants we when whenever which will with you"
)
"""Words before the first verb of a description that says "Use this tool to ..."."""

NAME_PREFACE = frozenset(("api", "batch", "bulk", "do", "fn", "func", "function", "http", "tool"))
"""Words before the verb of a name."""


def _forms(verb: str) -> Iterable[str]:
    """Gives a verb and its regular forms."""
    yield verb
    if verb.endswith("e"):
        yield from (verb + "s", verb + "d", verb[:-1] + "ing")
        return
    if verb.endswith("y") and verb[-2:-1] not in "aeiou":
        yield from (verb[:-1] + "ies", verb[:-1] + "ied", verb + "ing")
        return
    ending = "es" if verb.endswith(("s", "x", "z", "ch", "sh")) else "s"
    yield from (verb + ending, verb + "ed", verb + "ing")
    if verb[-1:] not in "aeiouwxy" and verb[-2:-1] in "aeiou":
        yield from (verb + verb[-1] + "ed", verb + verb[-1] + "ing")


_IRREGULAR = {
    "bought": "buy",
    "held": "hold",
    "paid": "pay",
    "sent": "send",
    "sold": "sell",
    "withdrawn": "withdraw",
    "withdrew": "withdraw",
    "written": "write",
    "wrote": "write",
    "overwritten": "overwrite",
    "resent": "resend",
    "rebuilt": "replace",
    "rewritten": "overwrite",
    "rewrites": "overwrite",
    "rewrite": "overwrite",
    "found": "find",
    "shown": "show",
}


def _table() -> dict[str, str]:
    table: dict[str, str] = {}
    for verbs in (LOOKUPS, NOUN_LIKE_CHANGES, CHANGES):
        for verb in sorted(verbs):
            for form in _forms(verb):
                table[form] = verb
    table.update(_IRREGULAR)
    return table


_BASE = _table()


def base_of(word: str) -> str:
    """Returns the verb that a lower-case word is a form of; the word itself for others."""
    return _BASE.get(word, word)
