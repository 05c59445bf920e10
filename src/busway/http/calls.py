"""One request on its way: whose namespace it is for, what it is about, and whether it may.

`demand` is the only door: a room asks it before it looks anything up, so that who has no right
learns nothing (D-34).
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from uuid import UUID

from aiohttp import hdrs, web

from busway.gateway.auth import Access, Right
from busway.gateway.bearer import token_in
from busway.gateway.gateway import Gateway
from busway.http.replies import HttpError
from busway.http.services import Services
from busway.http.strangers import Caller
from busway.http.targets import Target
from busway.model.errors import UNAUTHORIZED, BusError, with_tracking

REQUEST_ID = "x-ms-client-request-id"
"""Client libraries find their request in a log by it, if it comes back (http.md 8)."""
REQUEST_ID_MAX = 128

BODY_WAIT_S = 60.0
"""A body that takes longer to arrive is a slow stranger's."""

CLAIM_WORDS = {
    Right.SEND: "Send",
    Right.LISTEN: "Listen",
    Right.SEND | Right.LISTEN: "Send, Listen",
    Right.MANAGE: "Manage",
}


def body_too_large(max_bytes: int) -> HttpError:
    return HttpError(
        413, f"The body of the request is larger than the {max_bytes} bytes that are allowed here."
    )


def echoed(request: web.BaseRequest) -> dict[str, str]:
    """What a reply repeats of its request."""
    request_id = request.headers.get(REQUEST_ID, "")
    usable = request_id.isascii() and 0 < len(request_id) <= REQUEST_ID_MAX
    return {REQUEST_ID: request_id} if usable else {}


class Call:
    def __init__(self, services: Services, request: web.BaseRequest, target: Target) -> None:
        self.services = services
        self.request = request
        self.target = target
        # Not `request.host`, which looks this machine's name up where there is no such header.
        self.authority = request.headers.get(hdrs.HOST) or "localhost"
        """Host and port as the client wrote them: they come back in ids, links and locations."""
        self.gateway: Gateway = services.gateway_of(self.authority)
        self.may_wait = True
        """Whether `demand` may raise `KeysAwaited`; the server then asks the room a second time."""

    # --- Who and where ---------------------------------------------------------------------------

    @property
    def method(self) -> str:
        return self.request.method

    @property
    def base(self) -> str:
        return f"{self.request.scheme}://{self.authority}"

    @property
    def uri(self) -> str:
        """For error texts."""
        return f"sb://{self.authority}{self.target.raw}"

    def now_ms(self) -> int:
        return self.services.host.now_ms()

    def clock_ms(self) -> int:
        """What tokens are judged by."""
        return self.services.host.clock_ms()

    def own_host(self, name: str) -> bool:
        """Whether a token for this host name may be shown with the request."""
        return self.gateway.answers_to(self.authority, name)

    # --- Whether it may --------------------------------------------------------------------------

    def demand(self, right: Right) -> Access:
        """What the request's token allows, if that includes `right` here; else 401."""
        header = self.request.headers.get(hdrs.AUTHORIZATION)
        if not header:
            raise HttpError(
                401,
                "MissingToken: claim is empty or token is invalid. Send a shared access signature "
                f"or a bearer token in the header Authorization. '{CLAIM_WORDS[right]}' claim(s) "
                "are required to perform this operation.",
                sub_code=40102,
                headers={"WWW-Authenticate": "SharedAccessSignature"},
            )
        target, clock_ms = self.target, self.clock_ms()
        found = self._verified(header, target.audience)
        caller = self.request.protocol
        if isinstance(caller, Caller):
            caller.share.left(caller)  # no stranger any more
        for access in found:
            if access.allows(target.audience, right, clock_ms, target.path):
                return access
        raise BusError(UNAUTHORIZED, claim=CLAIM_WORDS[right], uri=self.uri)

    def _verified(self, header: str, audience: str) -> Sequence[Access]:
        token = token_in(header)
        if token is not None:
            return self.gateway.verify_bearer(
                token,
                audience,
                self.own_host,
                entity=self.target.path or None,
                may_wait=self.may_wait,
            )
        return [self.gateway.tokens.verify(header, audience, self.clock_ms(), self.own_host)]

    # --- What it brings --------------------------------------------------------------------------

    async def body(
        self, max_bytes: int, too_large: Callable[[int], Exception] = body_too_large
    ) -> bytes:
        """The whole body; 413 if it is larger. Asked for after `demand`, so strangers send none."""
        request = self.request
        length = request.content_length
        if length is not None and length > max_bytes:
            raise too_large(max_bytes)
        if request.headers.get(hdrs.EXPECT, "").lower() == "100-continue":
            await request.writer.write(b"HTTP/1.1 100 Continue\r\n\r\n")
            # The interim reply is not part of the final one, which begins with its headers.
            request.writer.output_size = 0
        chunks: list[bytes] = []
        size = 0
        try:
            async with asyncio.timeout(BODY_WAIT_S):
                async for chunk in request.content.iter_any():
                    size += len(chunk)
                    if size > max_bytes:
                        raise too_large(max_bytes)
                    chunks.append(chunk)
        except TimeoutError:
            raise HttpError(408, "The body of the request did not arrive in time.") from None
        return b"".join(chunks)

    # --- What it is told -------------------------------------------------------------------------

    def detail(self, text: str, sub_code: int) -> str:
        """An error's text in the service's form: a sub-code first, tracking last."""
        tracking_id = UUID(bytes=self.services.host.random_bytes(16))
        node = self.gateway.settings.node
        now = datetime.fromtimestamp(self.now_ms() / 1000, UTC)
        return with_tracking(
            f"SubCode={sub_code}. {text}",
            f"{tracking_id}_{node}",
            f"{self.authority}:{self.target.path or self.target.raw}",
            now.strftime("%Y-%m-%dT%H:%M:%S"),
        )
