"""What the first answer of a server tells a command: whether the credentials count, and whether it works at all."""

from __future__ import annotations

from muster.cli.errors import BadInput, CommandError
from muster.client.connection import Connection
from muster.client.transport import Response


def check_first_answer(answer: Response, connection: Connection, failure: type[CommandError]) -> None:
    """Raise `BadInput` where the credentials are refused, and `failure` where the server fails."""
    check_credentials(answer, connection)
    if answer.status >= 500:
        raise failure(f"{connection.server}: answers with {answer.status}")


def check_credentials(answer: Response, connection: Connection) -> None:
    """Raise `BadInput` where the credentials are refused."""
    if answer.status == 401:
        where = f" ({connection.source})" if connection.source else ""
        raise BadInput(f"{connection.server} does not accept the credentials{where}: 401 Unauthorized")
