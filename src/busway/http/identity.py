"""`/msi/token`: tokens for applications on this machine, as a managed identity of App Service has
them (`--dev-tokens`).

`azure-identity` in all languages finds it by the variables IDENTITY_ENDPOINT and IDENTITY_HEADER.
Who asks must be on this machine and know the secret; the errors have the form that App Service
gives them, so that the library shows their text.
"""

from __future__ import annotations

import hmac

from aiohttp import web

from busway.http.calls import Call
from busway.http.replies import HttpError
from busway.model.errors import BusError
from busway.model.names import is_loopback

SECRET_HEADER = "X-IDENTITY-HEADER"
NO_STORE = {"Cache-Control": "no-store"}


async def answer(call: Call) -> web.StreamResponse:
    issuer, secret = call.services.dev_issuer, call.services.identity_header
    if issuer is None or secret is None:
        raise HttpError(
            404, "This broker issues no tokens. Start it with --dev-tokens, for development only."
        )
    if not _is_near(call.request):
        return refused(403, "Tokens of --dev-tokens are for applications on this machine only.")
    shown = call.request.headers.get(SECRET_HEADER, "")
    if not hmac.compare_digest(shown.encode(errors="surrogateescape"), secret.encode()):
        return refused(
            401,
            f"The header {SECRET_HEADER} is missing or wrong. Set IDENTITY_HEADER as 'busway env' "
            "prints it.",
        )
    if call.method != "GET":
        return refused(405, "Tokens are asked for with GET.")
    query = call.request.query
    client_id = query.get("client_id") or query.get("object_id") or query.get("mi_res_id")
    try:
        token = issuer.issue(query["resource"], client_id, call.clock_ms(), call.own_host)
    except BusError as error:
        return refused(400, error.text)
    return web.json_response(
        {
            "access_token": token.text,
            "expires_on": str(token.expires_s),
            "resource": token.resource,
            "token_type": "Bearer",
            "client_id": token.client_id,
        },
        headers=NO_STORE,
    )


def _is_near(request: web.BaseRequest) -> bool:
    peer = None if request.transport is None else request.transport.get_extra_info("peername")
    address = peer[0] if isinstance(peer, tuple) and peer else ""
    return is_loopback(address.removeprefix("::ffff:"))


def refused(status: int, message: str) -> web.Response:
    return web.json_response(
        {"statusCode": status, "message": message}, status=status, headers=NO_STORE
    )
