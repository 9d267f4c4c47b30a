"""The tau2_airline domain: fixtures, database, tools, gold replay, scenarios."""
