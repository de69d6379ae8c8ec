"""`holdfast version`: which holdfast this is, and what it stands on."""

import platform
from importlib.metadata import PackageNotFoundError
from importlib.metadata import version as installed

import click

from holdfast import __version__


@click.command()
def version() -> None:
    """Print the version, and those of Python and the libraries that matter for a report."""
    click.echo(version_text())
    click.echo(f"Python {platform.python_version()} on {platform.system()} {platform.machine()}")
    for package in ("apsw", "click", "msgspec", "rich"):
        click.echo(f"{package} {_installed(package)}")


def version_text() -> str:
    return f"holdfast {__version__}"


def _installed(package: str) -> str:
    try:
        return installed(package)
    except PackageNotFoundError:
        return "(not installed)"
