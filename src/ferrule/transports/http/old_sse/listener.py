"""The HTTP+SSE pair as a listener: where old clients look first, with Streamable HTTP beside it."""

from __future__ import annotations

from typing import Any

from ferrule.transports.http.listener import Http


class Sse(Http):
    """Lets clients reach us over HTTP+SSE; `path` is where the stream is opened, all else is as for `Http`."""

    def __init__(self, **options: Any) -> None:
        if "path" in options:
            options["sse_path"] = options.pop("path")
        super().__init__(**{"sse": True, **options})

    @property
    def url(self) -> str:
        """Where clients find us, once we listen."""
        settings = self._endpoint_settings
        return super().url.removesuffix(settings.path) + settings.sse_path
