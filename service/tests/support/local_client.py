"""A client of an application in the same process that asks under a name the application answers to."""

from __future__ import annotations

from functools import partialmethod

from starlette import testclient


class TestClient(testclient.TestClient):
    """Starlette's, at http://localhost instead of a host name that services refuse."""

    __init__ = partialmethod(
        testclient.TestClient.__init__, base_url="http://localhost"
    )
