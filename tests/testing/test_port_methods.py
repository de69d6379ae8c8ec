"""A wrapper of a port has every method of it, with the port's parameters and defaults."""

from typing import Protocol, cast

from holdfast.testing.port_methods import Call, Intercepted, derive


class Port(Protocol):
    async def add(self, first: int, *, second: int = 2, third: int = ...) -> int: ...

    def describe(self) -> str: ...


class Adder:
    async def add(self, first: int, *, second: int = 0, third: int = 3) -> int:
        return first + second + third

    def describe(self) -> str:
        return "an adder"


async def test_an_intercepted_call_has_its_arguments_by_name_with_the_defaults_of_the_port() -> None:
    calls: list[Call] = []

    async def around(call: Call) -> int:
        calls.append(call)
        return -cast("int", await call.send())

    adder = cast("Port", Intercepted(Port, Adder(), around))

    assert await adder.add(1) == -6
    assert await adder.add(first=1, second=5, third=7) == -13
    assert [call.given for call in calls] == [
        {"first": 1, "second": 2},
        {"first": 1, "second": 5, "third": 7},
    ]


def test_a_method_that_is_not_asynchronous_is_that_of_the_implementation() -> None:
    async def around(call: Call) -> None:
        raise AssertionError(call.name)

    assert cast("Port", Intercepted(Port, Adder(), around)).describe() == "an adder"


async def test_a_class_derives_the_methods_that_it_does_not_define() -> None:
    class Derived:
        pass

    class Own:
        async def add(self) -> str:
            return "own"

    async def made(self: object) -> str:
        return "derived"

    derive(Derived, Port, lambda name: made)
    derive(Own, Port, lambda name: made)

    assert await Derived().add() == "derived"  # type: ignore[attr-defined]
    assert await Own().add() == "own"
    assert not hasattr(Derived, "describe")
