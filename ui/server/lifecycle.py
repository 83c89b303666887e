"""Starts the page and ends it: environment, port, guard, signals. Gradio is imported here and only after the checks."""

from __future__ import annotations

import contextlib
import logging
import os
import signal
import socket
import sys
import threading
import time
import webbrowser
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import uvicorn
from starlette.types import ASGIApp

from triforce_core import HANDBOOK, ConfigError, EngineConfig, is_loopback, read_document

from ..app import folders as places
from ..app.arguments import DEFAULT_PORT, Arguments, engine_config, engine_maker
from ..app.library import MAX_UPLOAD_BYTES
from ..app.models import model_is_open
from ..app.services import Services
from ..app.settings import ENGINE_SETTINGS
from ..page.html import where_text_goes
from . import guard
from .guard import Access, Bodies, Door, Guard

if TYPE_CHECKING:
    import gradio as gr
    from starlette.requests import Request
    from starlette.responses import Response

PORT_BUSY = "Port {port} is in use"
PORT_REMEDY = "Choose another with --port, or leave --port out to take the next free one."
PORTS_TRIED = 100
# What Gradio's login form is made of: open to those who have not logged in yet.
OF_THE_LOGIN = ("/", "/favicon.ico", "/robots.txt", "/manifest.json", "/theme.css", "/gradio_api/theme.css", "/assets/",
                "/static/", "/svelte/")
# Gradio would keep 10,000 events, and load pandas to sum them up after each.
NO_STATISTICS = {"GRADIO_ANALYTICS_MAX_EVENTS": "1", "GRADIO_ANALYTICS_CACHE_FREQUENCY": str(10**12)}
MOST_CONNECTIONS = 400  # and as many requests; uvicorn answers 503 to more. A tab has three.
LEAVE_WITHIN = 4.0  # seconds from the signal to the end, whatever hangs


def serve(arguments: Arguments, make_engine: Callable[[EngineConfig], Any] | None = None) -> int:
    """Run the app from its checks to its end. make_engine: see ``ui.main``."""
    logging.basicConfig(level=arguments.log_level.upper(), format="%(asctime)s %(name)s %(levelname)s %(message)s")
    if "GRADIO_VIBE_MODE" in os.environ:
        raise ConfigError("GRADIO_VIBE_MODE is set, which lets a browser run code on this machine",
                          remedy="Unset it and start again.")
    users = guard.read_users(arguments.auth_file) if arguments.auth_file else None
    access, origins = Access(guard.read_keys(arguments.api_key_file), users), guard.read_origins(arguments.allow_origin)
    if not is_loopback(arguments.host) and users is None:
        raise ConfigError(f"Listening on {arguments.host} would let others on the network in",
                          remedy="Give --auth-file with user:password lines, or leave --host at 127.0.0.1.")
    port = free_port(arguments.host, arguments.port)
    folders = places.make_folders(arguments.data_dir)
    try:
        hold = places.Hold(folders)
    except places.InUseError as error:
        if error.url and not arguments.no_browser and has_display():
            webbrowser.open(error.url)
        raise
    quiet_environment(folders.uploads)
    services = make_services(arguments, folders, make_engine)
    if services.database.set_aside:
        print(". ".join(services.database.set_aside), file=sys.stderr)
    from ..page.library import removed_readings

    if removed := removed_readings(*services.removed_readings):
        print(f"{removed[1]}. {removed[2]}", file=sys.stderr)
    leave = threading.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, _leaver(leave))
    page = None
    try:
        page, url = launch(services, folders, host=arguments.host, port=port, access=access,
                           allow_host=arguments.allow_host, allow_origin=origins)
        hold.announce(url)
        print(f"TriForce Chat is running at {url}\nStop with Ctrl+C.", flush=True)
        if services.sends_to:
            print(where_text_goes(services.sends_to), flush=True)
        services.queue.not_loaded = _print_not_loaded
        for problem in services.start(arguments.files, HANDBOOK):  # only now: the engine must not slow the page's start
            print(problem, file=sys.stderr)
        services.suggestions.start()
        if not arguments.no_browser and has_display():
            webbrowser.open(url)
        leave.wait()
        print("Stopping. Documents and conversations are kept.", flush=True)
    finally:
        _end_in_time()
        services.close()
        if page is not None:
            page.close(verbose=False)
        hold.release()
    return 0


def make_services(arguments: Arguments, folders: places.Folders,
                  make_engine: Callable[[EngineConfig], Any] | None = None) -> Services:
    config = engine_config(arguments, folders.saved_readings, folders.measurements)
    if not arguments.allow_download:
        os.environ["HF_HUB_OFFLINE"] = "1"
    fixed = [name for name in (*ENGINE_SETTINGS, "engine") if getattr(arguments, name) is not None]
    if not model_is_open(arguments):
        fixed.append("model")
    return Services(folders, make_engine or engine_maker(arguments), config, read_document, fixed=fixed,
                    plain=arguments.engine == "autoregressive")


def launch(services: Services, folders: places.Folders, *, host: str, port: int, access: Access | None = None,
           allow_host: tuple[str, ...] = (), allow_origin: tuple[str, ...] = ()) -> tuple[gr.Blocks, str]:
    """Open the page (in a thread of its own) and return it with its address. The environment must be quiet by now.
    Raises ConfigError.

    The server is ours and Gradio's app a part of it, so that the guard stands before everything that answers."""
    import gradio as gr
    from fastapi import FastAPI
    from starlette.middleware import Middleware

    from ..page import layout, theme
    from .routes import Assets, own_routes

    access = access or Access()
    page = layout.build(services, secret=places.secret(folders))
    # As Gradio has it on Windows; elsewhere its queue looks a thousand times a second, which an engine on a CPU feels.
    queue = page.queue(max_size=64)._queue
    queue.sleep_when_free = queue.progress_update_sleep_when_free = 0.05
    assets = Assets(theme.files())
    ours = [*assets.routes(), *own_routes(services, access), *(guard.login_routes(access) if access.users else [])]
    app = FastAPI(routes=ours, openapi_url=None, redirect_slashes=False)
    gr.mount_gradio_app(
        app, page, "/", server_name=host, server_port=port, show_error=True, allowed_paths=[],
        max_file_size=MAX_UPLOAD_BYTES, footer_links=[], run_history=False, enable_monitoring=False, ssr_mode=False,
        pwa=False, mcp_server=False, auth=_nobody if access.users else None, theme=theme.theme(),
        head=theme.head(assets.address), favicon_path=str(theme.ASSETS / "logo.svg"), app_kwargs={
            "openapi_url": None, "exception_handlers": {OSError: _disk_full},
            "middleware": [Middleware(Door, access=access.of_the_page, open_to_all=OF_THE_LOGIN), Middleware(Bodies)]})
    page.app = app.routes[-1].app  # type: ignore[attr-defined]  # as page.launch sets it, and page.close wants it
    page.has_launched = True  # as page.launch does; else Gradio's own look at paths is off
    access.guards(page.app)
    layout.Sessions(page).keep_nothing()
    server = Server(Guard(app, guard.allowed_hosts(host, allow_host), allow_origin), host, port)
    page.server = server  # type: ignore[assignment]
    server.start()
    shown = f"[{host}]" if ":" in host else host
    return page, f"http://{shown}:{port}/"


def _print_not_loaded(why: str) -> None:
    """Say it in the terminal; the page says it, too, but perhaps nobody looks at it."""
    print(f"The model could not be loaded: {' '.join(why.split())}", file=sys.stderr, flush=True)


def _nobody(user: str, password: str) -> bool:
    """Refuse: of Gradio's login only the form is used."""
    return False


def _disk_full(request: Request, error: OSError) -> Response:
    """Answer an upload that the disk has no room for; Gradio shows these words."""
    from starlette.responses import PlainTextResponse

    if error.errno not in places.FULL:
        raise error
    return PlainTextResponse(str(places.refusal(error, Path(os.environ["GRADIO_TEMP_DIR"]) / "upload")), 507)


def quiet_environment(uploads: Path) -> None:
    """Set the environment before Gradio is imported: no analytics, no version check, uploads in our private folder."""
    os.environ.update(GRADIO_ANALYTICS_ENABLED="False", HF_HUB_DISABLE_TELEMETRY="1", DO_NOT_TRACK="1",
                      MPLBACKEND="agg",  # or Gradio's first event tries them all, half a second, where there are any
                      GRADIO_TEMP_DIR=str(uploads), **NO_STATISTICS)


def free_port(host: str, wanted: int | None) -> int:
    """Return the wanted port, or the first free one from the default on. Raises ConfigError (busy, or none free)."""
    last = DEFAULT_PORT + PORTS_TRIED
    for port in range(DEFAULT_PORT, last) if wanted is None else (wanted,):
        if _is_free(host, port):
            return port
    raise ConfigError(PORT_BUSY.format(port=wanted) if wanted else f"No free port between {DEFAULT_PORT} and {last}",
                      remedy=PORT_REMEDY)


def has_display() -> bool:
    return sys.platform in ("darwin", "win32") or bool(os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY"))


def _is_free(host: str, port: int) -> bool:
    try:
        family, kind, *_, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)[0]
    except OSError as error:
        raise ConfigError(f"There is no address {host}", remedy="Give --host an address of this machine, or leave it "
                                                                "at 127.0.0.1.") from error
    with socket.socket(family, kind) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(address)
        except OSError:
            return False
    return True


def _leaver(leave: threading.Event) -> Callable[..., None]:
    """Return a handler that leaves in order at the first signal, at once at the second."""
    def on_signal(number: int, frame: object) -> None:
        if leave.is_set():
            os._exit(128 + number)
        leave.set()

    return on_signal


def _end_in_time() -> None:
    """End the process in time, whatever hangs on the way out."""
    timer = threading.Timer(LEAVE_WITHIN, os._exit, (0,))
    timer.daemon = True
    timer.start()


class Server(uvicorn.Server):
    """uvicorn in a thread of its own, with our limits; it closes a connection that is idle for five seconds."""

    def __init__(self, app: ASGIApp, host: str, port: int) -> None:
        super().__init__(uvicorn.Config(
            app, host=host, port=port, log_level="warning", http="h11", ws="none", server_header=False,
            limit_concurrency=MOST_CONNECTIONS, timeout_graceful_shutdown=1))
        self._thread = threading.Thread(target=self._run, name="server", daemon=True)

    def start(self) -> None:
        """Return when it listens. Raises ConfigError where it cannot."""
        self._thread.start()
        while not self.started and self._thread.is_alive():
            time.sleep(0.01)
        if not self.started:
            raise ConfigError(PORT_BUSY.format(port=self.config.port), remedy=PORT_REMEDY)

    def close(self) -> None:
        self.should_exit = True
        self._thread.join(5.0)

    def _run(self) -> None:
        with contextlib.suppress(SystemExit):  # uvicorn has logged why it does not listen
            self.run()
