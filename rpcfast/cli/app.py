"""What can be typed: the commands, their options, their help. What each does stands in a file of its own.

Those files are imported when their command runs, so that no command pays for the others.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from functools import partial
from importlib.metadata import PackageNotFoundError, version
from platform import python_implementation, python_version
from typing import Annotated, Any, Literal

import typer

from rpcfast.cli.failure import USAGE, Failure
from rpcfast.cli.logs import Format, Level

__all__ = ["app", "run"]

app = typer.Typer(
    name="rpcfast",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def run(arguments: Sequence[str] | None = None) -> int:
    """Run the command and give its exit code; whatever is wrong with what was typed is told in one line."""
    try:
        code = app(arguments, standalone_mode=False, prog_name="rpcfast")
    except Failure as failure:
        print(failure.text, file=sys.stderr)
        return failure.code
    except Exception as error:
        explain = getattr(
            error, "format_message", None
        )  # what Typer's own errors have, wherever it keeps their classes
        if explain is None:
            raise
        if text := explain():
            command = getattr(getattr(error, "ctx", None), "command_path", "rpcfast")
            print(f"error: {text.rstrip('.')}; see {command} --help", file=sys.stderr)
        return USAGE
    return code if isinstance(code, int) else 0


def _show_version(wanted: bool) -> None:  # noqa: FBT001  # the signature of a Typer callback
    if wanted:
        try:
            number = version("rpcfast-framework")
        except PackageNotFoundError:
            number = "(not installed)"
        print(f"rpcfast {number} ({python_implementation()} {python_version()})")
        raise typer.Exit


@app.callback()
def top(
    *,
    version: Annotated[
        bool, typer.Option("--version", callback=_show_version, is_eager=True, help="Show the version and exit.")
    ] = False,
) -> None:
    """Serve typed Python functions, and call them.

    New here? See it all at work on this machine:  rpcfast demo
    """


def _option(panel: str, name: str, text: str, metavar: str | None = None, **more: Any) -> Any:
    """An option of `serve`, which the environment may give as RPCFAST_NAME."""
    variable = f"RPCFAST_{name.replace('-', '_').upper()}"
    return typer.Option(
        f"--{name}", help=text, metavar=metavar, envvar=variable, show_envvar=False, rich_help_panel=panel, **more
    )


_where, _how, _limit = partial(_option, "Where"), partial(_option, "How"), partial(_option, "Limits")


@app.command("serve")
def serve_command(
    context: typer.Context,
    target: Annotated[
        str | None,
        typer.Argument(metavar="TARGET", help="file.py, file.py:attribute or module:attribute."),
    ] = None,
    *,
    host: Annotated[
        str, _where("host", "Address to listen on; 0.0.0.0 is all of this machine's.", "HOST")
    ] = "127.0.0.1",
    port: Annotated[int, _where("port", "Port to listen on; 0 picks a free one.", "PORT", min=0, max=65535)] = 8000,
    uds: Annotated[str | None, _where("uds", "Listen on this Unix socket instead.", "PATH")] = None,
    fd: Annotated[int | None, _where("fd", "Listen on this inherited socket instead (systemd).", "N", min=0)] = None,
    stdio: Annotated[bool, _where("stdio", "Talk over standard input and output instead.")] = False,
    loop: Annotated[
        Literal["auto", "uvloop", "asyncio"], _how("loop", "Event loop; auto is uvloop where it is installed.")
    ] = "auto",
    log_level: Annotated[
        Level, _how("log-level", "Least level that is logged: debug, info, warning, error.", "LEVEL")
    ] = "info",
    log_format: Annotated[Format, _how("log-format", "Log text, or one JSON object a line.")] = "text",
    max_message_size: Annotated[int | None, _limit("max-message-size", "Largest message.", "BYTES")] = None,
    max_connections: Annotated[int | None, _limit("max-connections", "Most connections at once.", "N")] = None,
    max_in_flight: Annotated[int | None, _limit("max-in-flight", "Most calls at once on one connection.", "N")] = None,
    drain_timeout: Annotated[
        float | None, _limit("drain-timeout", "Time that running calls get when it stops.", "SECONDS")
    ] = None,
) -> None:
    """Serve the functions of a Python file until Ctrl-C.

    Example:  rpcfast serve quickstart.py --port 9000

    Without TARGET: main.py, app.py or server.py of this folder. Limits that are not given are those of the Server.

    Each option can be set in the environment too, such as RPCFAST_PORT=9000; what is typed goes first.
    """
    from rpcfast.cli.serving import serve

    elsewhere = "--uds" if uds is not None else "--fd" if fd is not None else "--stdio" if stdio else ""
    for name in ("host", "port"):
        source = context.get_parameter_source(name)
        if elsewhere and source is not None and source.name == "COMMANDLINE":
            raise Failure(f"error: --{name} and {elsewhere} exclude each other; choose one")
    serve(
        target,
        host=host,
        port=port,
        uds=uds,
        fd=fd,
        stdio=stdio,
        loop=loop,
        log_level=log_level,
        log_format=log_format,
        limits={
            "max_message_size": max_message_size,
            "max_connections": max_connections,
            "max_in_flight": max_in_flight,
            "drain_timeout": drain_timeout,
        },
    )


URL = Annotated[str, typer.Argument(metavar="URL", help="tcp://HOST:PORT, unix:///PATH or exec:COMMAND.")]


@app.command("call")
def call_command(
    url: URL,
    method: Annotated[str, typer.Argument(metavar="METHOD", help="The procedure's name, such as sum or text.upper.")],
    values: Annotated[
        list[str] | None,
        typer.Argument(metavar="NAME=VALUE", help="Parameters: JSON where it is JSON, text otherwise."),
    ] = None,
    *,
    json: Annotated[
        str | None, typer.Option("--json", metavar="TEXT", help="All parameters as JSON; - reads the standard input.")
    ] = None,
    metadata: Annotated[
        list[str] | None,
        typer.Option("--metadata", metavar="KEY=VALUE", help="Sent beside the parameters; may be repeated."),
    ] = None,
    timeout: Annotated[
        float | None,
        typer.Option("--timeout", metavar="SECONDS", help="How long it may take; 30 if not said."),
    ] = None,
    raw: Annotated[bool, typer.Option("--raw", help="Print text and bytes as they are, not as JSON.")] = False,
) -> None:
    """Call a procedure and print its result as one line of JSON.

    Example:  rpcfast call tcp://127.0.0.1:8000 sum a=2 b=3

    Values without a name go by position. Quote a text that looks like JSON:  text='"42"'

    Exit codes: 0 done, 1 the call failed, 2 wrong usage, 3 no connection.
    """
    from rpcfast.cli.calling import call

    if timeout is not None and not timeout > 0:
        raise Failure(f"error: --timeout must be more than 0 seconds, not {timeout:g}")
    call(url, method, values or [], json=json, metadata=metadata or [], timeout=timeout, raw=raw)


@app.command("inspect")
def inspect_command(
    source: Annotated[
        str, typer.Argument(metavar="TARGET|URL", help="What `serve` takes, or the URL of a running server.")
    ],
    *,
    format: Annotated[  # noqa: A002  # the option's name
        Literal["table", "json"], typer.Option("--format", help="A table, or the OpenRPC document.")
    ] = "table",
) -> None:
    """Show what a file or a running server serves: names, parameters, types.

    Example:  rpcfast inspect quickstart.py
    """
    from rpcfast.cli.inspecting import inspect

    inspect(source, format)


@app.command("demo")
def demo_command() -> None:
    """Serve the quick start and call it over every protocol: about six seconds.

    Example:  rpcfast demo
    """
    from rpcfast.cli.demo import demo

    demo()
