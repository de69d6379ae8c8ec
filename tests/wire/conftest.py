"""Fixtures of the wire's tests: a server, as in the server's own."""

from tests.server.conftest import served

__all__ = ["served"]
