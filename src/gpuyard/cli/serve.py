"""`gpuyard serve`: the page of the yard in a browser."""

from pathlib import Path
from typing import Annotated, Literal

import typer

from gpuyard.cli.output import JsonOption, show
from gpuyard.errors import MissingRequirement

app = typer.Typer(invoke_without_command=True, no_args_is_help=False)
token_app = typer.Typer(
    no_args_is_help=True, help="Create, list, and revoke tokens for --auth token."
)
app.add_typer(token_app, name="token")


@app.callback()
def serve(
    context: typer.Context,
    *,
    host: Annotated[
        str,
        typer.Option(
            metavar="ADDRESS", help="Address to listen on; others than 127.0.0.1 need --auth."
        ),
    ] = "127.0.0.1",
    port: Annotated[
        int, typer.Option(min=0, max=65535, help="Port to listen on; 0: any free one.")
    ] = 8642,
    socket: Annotated[
        Path | None,
        typer.Option(
            metavar="PATH",
            help="Unix socket to listen on instead; the kernel identifies its users.",
        ),
    ] = None,
    auth: Annotated[
        Literal["token", "proxy"] | None,
        typer.Option(metavar="token|proxy", help="Way to identify users at other addresses."),
    ] = None,
    proxy: Annotated[
        list[str] | None,
        typer.Option(
            metavar="ADDRESS", help="Address of a trusted proxy, with --auth proxy; repeatable."
        ),
    ] = None,
    proxy_header: Annotated[
        str, typer.Option(metavar="NAME", help="Header in which the proxy names the user.")
    ] = "X-Forwarded-User",
    host_name: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME", help="Further name of this server in browsers; repeatable."),
    ] = None,
    certificate: Annotated[
        Path | None, typer.Option(metavar="FILE", help="PEM file with the TLS certificate.")
    ] = None,
    key: Annotated[
        Path | None, typer.Option(metavar="FILE", help="PEM file with the key of the certificate.")
    ] = None,
    slurm: Annotated[
        bool, typer.Option("--slurm", help="Also show the nodes and jobs of the Slurm cluster.")
    ] = False,
    deployment: Annotated[
        list[Path] | None,
        typer.Option(
            metavar="FILE", help="Also show the machines of this deployment over ssh; repeatable."
        ),
    ] = None,
) -> None:
    """Show this machine, its jobs, and gpuyard's answers in a browser; print only the address on stdout.

    By default, only you can open the page, on this machine or through ssh -L 8642:127.0.0.1:8642. Actions run as the
    user who asks.

    Example: gpuyard serve
    """
    if context.invoked_subcommand is not None:
        return
    try:
        import fastapi  # noqa: F401
        import uvicorn  # noqa: F401
    except ImportError:
        raise MissingRequirement(
            "gpuyard serve needs FastAPI and uvicorn, which are not installed: pip install 'gpuyard[web]'"
        ) from None
    from gpuyard.web.settings import create_settings

    settings = create_settings(
        host=host,
        port=port,
        socket=socket,
        auth=auth,
        proxies=proxy or (),
        proxy_header=proxy_header,
        host_names=host_name or (),
        certificate=certificate,
        key=key,
        slurm=slurm,
        deployments=[str(file) for file in deployment or ()],
    )
    from gpuyard.web.server import serve as run

    run(settings, _print_address)


def _print_address(address: str) -> None:
    import sys

    sys.stdout.write(f"{address}\n")
    sys.stdout.flush()


@token_app.command("new")
def new(
    *,
    user: Annotated[
        str | None, typer.Option(metavar="NAME", help="Account that it is for (default: yours).")
    ] = None,
    for_: Annotated[
        str, typer.Option("--for", metavar="TIME", help="Time until it ends.")
    ] = "30 days",
) -> None:
    """Create a token and print only the token on stdout; it cannot be shown again.

    Example: gpuyard serve token new --user alice --for "7 days"
    """
    import os
    import pwd
    import sys

    from gpuyard.errors import UserMistake
    from gpuyard.share.caller import user_name
    from gpuyard.units import parse_seconds
    from gpuyard.web.tokens import TokenStore

    name = user or user_name(os.getuid())
    try:
        pwd.getpwnam(name)
    except KeyError:
        raise UserMistake(f"--user: the account {name!r} was not found on this machine") from None
    _, text = TokenStore().create(name, parse_seconds(for_))
    sys.stdout.write(f"{text}\n")


@token_app.command("list")
def list_(*, json_output: JsonOption = False) -> None:
    """List the tokens that have not ended, without their secrets.

    Example: gpuyard serve token list
    """
    from gpuyard.report.answer import Answer, Column, Sentence, Table
    from gpuyard.share.clock import iso_timestamp
    from gpuyard.web.tokens import TokenStore

    rows = [
        {
            "id": token.id,
            "user": token.user,
            "created": iso_timestamp(token.created),
            "expires": iso_timestamp(token.expires),
        }
        for token in TokenStore().list()
    ]
    table = Table(
        "",
        ("token", "user", Column("created", 1), "expires"),
        [list(map(str, row.values())) for row in rows],
    )
    parts = (
        [table]
        if rows
        else [Sentence("There are no tokens; create one with: gpuyard serve token new")]
    )
    show(Answer(parts, {"tokens": rows}, verb="serve", rows="tokens"), json_output=json_output)


@token_app.command("revoke")
def revoke(
    token: Annotated[str, typer.Argument(metavar="ID", help="ID of the token; see `list`.")],
) -> None:
    """Revoke a token; it stops working at once.

    Example: gpuyard serve token revoke 1f3a09c2
    """
    from gpuyard.report.terminal import print_line
    from gpuyard.web.tokens import TokenStore

    revoked = TokenStore().revoke(token)
    print_line(f"Revoked token {revoked.id} of {revoked.user}.")
