"""Voice bots: Pipecat pipeline over gRPC, speech recognition and synthesis."""
