"""The HTTP side of the live page: which requests are answered, and what is sent with each.

The page itself has no data and needs no token; the browser gets the token in the fragment of the
URL, which it never sends, and the page sends it in a header. A page of another site cannot
know it. Host and Origin are checked as well, so that a name which an attacker makes resolve to this
machine (DNS rebinding) reaches nothing.
"""

from __future__ import annotations

import hmac
from collections.abc import Awaitable, Callable
from functools import partial
from importlib.resources import files

from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import JSONResponse, PlainTextResponse, Response
from starlette.routing import Route

from jflow.cli.dashboard.looks import Looks
from jflow.errors import OpError

_WAIT_S = 10.0
"""How long a viewer waits for a step to end, in seconds."""
_TYPES = {"html": "text/html", "js": "text/javascript", "css": "text/css"}
_PAGE = ("index.html", "dashboard.js", "dashboard.css")
_HEADERS = {
    "Cache-Control": "no-store",
    "Content-Security-Policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; "
        "img-src 'self' data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    ),
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
}

_Endpoint = Callable[[Request], Awaitable[Response]]


def application(looks: Looks, token: str, port: int) -> Starlette:
    """Returns the application.

    Args:
      looks: what is known of the cluster.
      token: what requests for data must have.
      port: the port of this machine's loopback on which it is served.
    """
    hosts = {f"{name}:{port}" for name in ("127.0.0.1", "localhost", "[::1]")}

    def guarded(endpoint: _Endpoint, *, has_data: bool) -> _Endpoint:
        async def answer(request: Request) -> Response:
            refusal = _refusal(request, hosts, token if has_data else None)
            try:
                response = refusal or await endpoint(request)
            except (OpError, ValueError) as error:
                response = JSONResponse({"error": str(error)}, status_code=400)
            response.headers.update(_HEADERS)
            return response

        return answer

    async def state(request: Request) -> Response:
        return JSONResponse(looks.state())

    async def variables(request: Request) -> Response:
        first = max(int(request.query_params.get("first", "0")), 0)
        task = request.query_params.get("task", "")
        return JSONResponse(await run_in_threadpool(looks.variables, task, first))

    async def step(request: Request) -> Response:
        wait_s = min(float(request.query_params.get("wait", _WAIT_S)), _WAIT_S)
        return JSONResponse(await run_in_threadpool(looks.next_step, wait_s))

    data = {"/api/state": state, "/api/variables": variables, "/api/step": step}
    routes = [Route(path, guarded(one, has_data=True)) for path, one in data.items()]
    for name in _PAGE:
        path = "/" if name == "index.html" else f"/{name}"
        routes.append(Route(path, guarded(partial(_file, name), has_data=False)))
    return Starlette(routes=routes)


async def _file(name: str, request: Request) -> Response:
    text = (files("jflow.cli.dashboard") / "page" / name).read_text(encoding="utf-8")
    return Response(text, media_type=_TYPES[name.rpartition(".")[2]])


def _refusal(request: Request, hosts: set[str], token: str | None) -> Response | None:
    """Returns the answer to a request that may not be made; None if it may."""
    headers = request.headers
    if headers.get("host", "") not in hosts:
        return PlainTextResponse("this page is for browsers on its own machine", 403)
    origin = headers.get("origin")
    if origin is not None and origin.removeprefix("http://") not in hosts:
        return PlainTextResponse("pages of other sites may not ask", 403)
    if token is None:
        return None
    if headers.get("sec-fetch-site", "same-origin") not in ("same-origin", "none"):
        return PlainTextResponse("pages of other sites may not ask", 403)
    given = headers.get("authorization", "")
    if not hmac.compare_digest(given.encode(), f"Bearer {token}".encode()):
        return PlainTextResponse("open the whole URL, with what follows the #", 401)
    return None
