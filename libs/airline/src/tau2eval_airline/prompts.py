"""The words that surround tau2's own texts in the prompts of both sides.

The agent gets policy.md byte for byte and then one section of four notes, so that results stay
comparable with those of others who hand the policy over unchanged.
"""

from __future__ import annotations

NOTES_HEADING = "## Additional Notes to Follow"
"""Heads the one section that follows the policy."""

GENERAL_PROMPT = (
    "You are on the telephone. Everything you write is read aloud, so answer in short, plain "
    "sentences as people say them: no lists, headings, symbols, emoji or web addresses. Give one "
    "or two pieces of information at a time and ask one question at a time. State only what the "
    "caller told you, what this policy says or what a tool returned; if you do not know, say so."
)
"""Note 1: spoken plain prose without invented facts."""

VOICE_ALPHANUMERIC_RULE = (
    "When you say an identifier (a user id, a reservation code, a flight number, a payment id), "
    "spell it one character at a time with a comma after each, and say only the spelled form. "
    'For example "M, I, A, underscore, L, I, underscore, three, six, six, eight". When you hear '
    "a spelled identifier, put its characters together without spaces or commas before you use "
    "it."
)
"""Note 2, and the caller's only guideline: identifiers go character by character."""

END_CONVERSATION_GUIDELINE = (
    "End the call yourself. Once everything the caller asked for is done or refused, ask whether "
    "there is anything else; if not, say goodbye and call end_conversation. If you transfer the "
    "caller to a human, the transfer ends the call: do not call end_conversation as well. Never "
    "hang up while a request is open."
)
"""Note 3: when to end the call."""

EXECUTION_HONESTY_GUIDELINE = (
    "Say that something is booked, changed, cancelled, paid, refunded or sent only after the "
    "tool that does it has returned a result without an error in this call. If a tool reports an "
    "error, tell the caller that it did not work. Do not announce a step and then leave it out."
)
"""Note 4: claim only what was executed."""

AGENT_NOTES = (
    GENERAL_PROMPT,
    VOICE_ALPHANUMERIC_RULE,
    END_CONVERSATION_GUIDELINE,
    EXECUTION_HONESTY_GUIDELINE,
)
"""The four notes, in their order."""

USER_ROLE = (
    "You are a customer of an airline and have called its customer service by telephone. The "
    "other voice is the airline's agent. You are the caller: never act as the agent."
)
"""Who the simulated caller is."""

USER_GENERAL_RULES = (
    "Everything you write is spoken aloud: plain, natural speech, one or two short sentences a "
    "turn, no lists or symbols.",
    "Tell what you want step by step, and give details when they are asked for; do not recite "
    "everything at once.",
    "Use only what is written here. If you are asked for something that is not, say that you do "
    "not know or do not remember it; never make up a name, number, date or code.",
    "Stick to your request and to how you behave until the agent has settled or refused it.",
    "Do not hang up in the middle. When everything is settled, say that you need nothing else "
    "and say goodbye.",
)
"""How any simulated caller behaves."""


def agent_prompt(policy: str) -> str:
    """Returns the agent's system prompt.

    Args:
        policy: The text of policy.md; it opens the prompt unchanged.
    """
    return f"{policy}\n\n{NOTES_HEADING}\n\n" + "\n\n".join(AGENT_NOTES) + "\n"


def user_prompt(
    role: str,
    personality: str | None,
    task: str,
    guidelines: tuple[str, ...],
    known: str | None,
    unknown: str | None,
    name: str | None = None,
) -> str:
    """Returns the simulated caller's system prompt.

    Args:
        role: Who the caller is.
        personality: How this caller behaves.
        task: Why the caller calls.
        guidelines: Rules for speaking.
        known: What the caller knows.
        unknown: What the caller does not know; naming it keeps it from being invented.
        name: The caller's name, where it is not part of what is known.
    """
    rules = "\n".join(f"- {rule}" for rule in USER_GENERAL_RULES)
    parts = [f"# Your role\n\n{role}"]
    if name:
        parts[0] += f"\n\nYour name is {name}."
    if personality:
        parts.append(f"## How you behave\n\n{personality.strip()}")
    parts.append(f"## General rules\n\n{rules}")
    parts.append(f"# Your task\n\n{task.strip()}")
    if guidelines:
        parts.append("# Guidelines\n\n" + "\n".join(f"- {line}" for line in guidelines))
    if known:
        parts.append(f"# Things you know\n\n{known.strip()}")
    if unknown:
        parts.append(f"# Things you don't know\n\n{unknown.strip()}")
    return "\n\n".join(parts) + "\n"
