def from_spoken(text: str) -> str:
    return text
