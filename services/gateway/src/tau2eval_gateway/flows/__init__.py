"""Control flows: verify, obligations and argcheck. No module in here knows a transport."""
