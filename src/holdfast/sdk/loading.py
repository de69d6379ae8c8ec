"""Loading an app by its name, `module:app`, as it is given on a command line."""

import importlib
import sys
from pathlib import Path

from holdfast.core.errors import Invalid
from holdfast.sdk.app import App


def load_app(name: str) -> App:
    """The app of that name, looked for in the current folder first. `Invalid` says what is wrong."""
    module_name, colon, attribute = name.partition(":")
    if not colon or not module_name or not attribute:
        raise Invalid(f"{name!r} names no app: write module:app, such as shop:app.")
    here = str(Path.cwd())
    if here not in sys.path:
        sys.path.insert(0, here)
    try:
        found: object = importlib.import_module(module_name)
    except ModuleNotFoundError as error:
        if error.name is not None and f"{module_name}.".startswith(f"{error.name}."):
            raise Invalid(
                f"There is no module {module_name} in {here} or on Python's path."
            ) from error
        raise Invalid(f"{module_name} could not be imported: {error}.") from error
    except (Exception, SystemExit) as error:
        raise Invalid(f"{module_name} could not be imported: {error!r}.") from error
    for part in attribute.split("."):
        if not hasattr(found, part):
            raise Invalid(f"{module_name} has no {attribute}.")
        found = getattr(found, part)
    if not isinstance(found, App):
        raise Invalid(f"{name} is a {type(found).__name__}, not a holdfast.App.")
    return found
