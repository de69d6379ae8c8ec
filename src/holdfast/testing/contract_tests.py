"""Contract tests are coroutines that a decorator makes plain tests: a contract needs no plugin of pytest."""

import asyncio
from collections.abc import Callable, Coroutine
from contextlib import AbstractAsyncContextManager
from inspect import Parameter, signature
from pathlib import Path
from typing import Any, TypeAlias

Test: TypeAlias = Callable[..., Coroutine[Any, Any, None]]


def contract_test(
    opened: Callable[[Any, Path], AbstractAsyncContextManager[Any]],
) -> Callable[[Test], Callable[..., None]]:
    """Return a decorator for the methods of a contract: each gets as its first argument what `opened`
    yields for the contract and an empty folder."""

    def decorate(test: Test) -> Callable[..., None]:
        wanted = "tmp_path" in signature(test).parameters

        def run(self: Any, tmp_path: Path, **more: Any) -> None:
            async def main() -> None:
                async with opened(self, tmp_path) as subject:
                    await test(self, subject, **more, **({"tmp_path": tmp_path} if wanted else {}))

            asyncio.run(main())

        run.__name__, run.__qualname__, run.__doc__ = test.__name__, test.__qualname__, test.__doc__
        run.__module__ = test.__module__
        itself, _, *more = signature(test).parameters.values()
        folder = Parameter("tmp_path", Parameter.POSITIONAL_OR_KEYWORD)
        parameters = [itself, folder, *(one for one in more if one.name != folder.name)]
        run.__signature__ = signature(run).replace(parameters=parameters)  # type: ignore[attr-defined]
        return run

    return decorate
