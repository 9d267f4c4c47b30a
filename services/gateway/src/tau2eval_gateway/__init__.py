"""The model gateway: OpenAI-compatible HTTP and gRPC over LiteLLM, with a spend ledger."""
