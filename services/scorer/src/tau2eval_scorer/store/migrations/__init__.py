"""The schema's history. Revisions take `op` as an argument: Alembic's own proxy is a global."""
