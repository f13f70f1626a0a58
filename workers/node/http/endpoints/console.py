"""The console: pages that people look at, and nothing but a client of the other endpoints."""

from __future__ import annotations

from http import HTTPStatus
from pathlib import Path

from starlette.requests import Request
from starlette.responses import RedirectResponse, Response
from starlette.routing import Route

from omdml.workers.node.http.problems import error_reply

FOLDER = Path(__file__).parents[2] / "console"
MEDIA = {".html": "text/html", ".js": "text/javascript", ".css": "text/css", ".svg": "image/svg+xml"}
INDEX = "index.html"
FILES_OF = "/console/"
# Pages load nothing from other machines, run no script but these files, and no other page may frame them.
POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
HEADERS = {
    "content-security-policy": POLICY,
    "x-content-type-options": "nosniff",
    "referrer-policy": "no-referrer",
    # Browsers ask each time, so that a new release is not mixed with files of the one before.
    "cache-control": "no-cache",
}
FILES = {str(path.relative_to(FOLDER)): path.read_bytes() for path in sorted(FOLDER.rglob("*")) if path.suffix in MEDIA}


async def begin(_: Request) -> Response:
    """Redirect to the console by a relative address, because a proxy may put something before the path."""
    return RedirectResponse("console/")


async def file(request: Request) -> Response:
    """Answer with one of the console's files, or with 404."""
    name = request.path_params.get("file") or INDEX
    if name not in FILES:
        return error_reply(HTTPStatus.NOT_FOUND, "not_found", f"the console has no file {name!r}")
    return Response(FILES[name], media_type=MEDIA[Path(name).suffix], headers=HEADERS)


CONSOLE = [
    Route("/", begin, methods=["GET"]),
    Route("/console", begin, methods=["GET"]),
    Route(FILES_OF, file, methods=["GET"]),
    Route(FILES_OF + "{file:path}", file, methods=["GET"]),
]
