"""`holdfast completion`: the completion script of a shell."""

import click
from click.shell_completion import get_completion_class

_INSTALL = {
    "bash": 'Put this line into ~/.bashrc:  eval "$(holdfast completion bash)"',
    "zsh": 'Put this line into ~/.zshrc, after compinit:  eval "$(holdfast completion zsh)"',
    "fish": "Run once:  holdfast completion fish > ~/.config/fish/completions/holdfast.fish",
}


@click.command()
@click.argument("shell", type=click.Choice(sorted(_INSTALL)))
def completion(shell: str) -> None:
    """Print the completion script for your shell, with how to install it on top.

    \b
    bash:  eval "$(holdfast completion bash)"    in ~/.bashrc
    zsh:   eval "$(holdfast completion zsh)"     in ~/.zshrc, after compinit
    fish:  holdfast completion fish > ~/.config/fish/completions/holdfast.fish
    """
    from holdfast.cli.main import cli

    found = get_completion_class(shell)
    assert found is not None  # click knows all three
    click.echo(f"# {_INSTALL[shell]}")
    click.echo(found(cli, {}, "holdfast", "_HOLDFAST_COMPLETE").source())
