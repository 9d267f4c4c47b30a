"""Settings, logging, gRPC server and client, errors and health for the services."""
