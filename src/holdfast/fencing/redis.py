"""A fence in the same Redis script as the write.

The mark is a key beside the data: a server that evicts keys may evict it, and then the next token is a
first one. For one server and its replicas; a cluster would need all keys in one slot.
"""

from collections.abc import Awaitable, Sequence
from typing import Any, Protocol, TypeAlias, cast

from holdfast.core.errors import Invalid
from holdfast.fencing.fence import Fence, check_fence, mixed, stale

MARK = "holdfast:mark:"
SCRIPT = """\
local seen = redis.call('HMGET', KEYS[1], 'source', 'token')
if seen[1] and seen[1] ~= ARGV[1] then
    return {'mixed', seen[1]}
end
local new, old = ARGV[2], seen[2]
-- As text: a number of more than 53 bits would be rounded here.
if old and (#new < #old or (#new == #old and new < old)) then
    return {'stale', old}
end
redis.call('HSET', KEYS[1], 'source', ARGV[1], 'token', new)
local replies, at = {'done'}, 3
while at <= #ARGV do
    local parts = tonumber(ARGV[at])
    replies[#replies + 1] = redis.call(unpack(ARGV, at + 1, at + parts))
    at = at + parts + 1
end
return replies
"""

PARTS_MAX = 7_000

Part: TypeAlias = str | bytes | int | float
Command: TypeAlias = Sequence[Part]


class RedisClient(Protocol):
    """What we use of redis-py's clients."""

    def register_script(self, script: Any, /) -> Any: ...  # noqa: ANN401


async def execute(client: RedisClient, fence: Fence, *commands: Command) -> list[Any]:
    """Run the commands, such as `("SET", "balance", 17)`, if the token is not stale: in one step.

    Return the reply of Redis to each; raise `Fenced` or `Conflict` if they must not run. A command that
    Redis refuses ends the script, and what came before it stays, as everywhere in Redis. A client that
    repeats a request without a reply, as redis-py does by default, may run them twice. For clients of
    `redis.asyncio`.
    """
    script = client.register_script(SCRIPT)
    replies = cast("Awaitable[list[Any]]", script(**_arguments(fence, commands)))
    return _replies(await replies, fence)


def execute_blocking(client: RedisClient, fence: Fence, *commands: Command) -> list[Any]:
    """As `execute`, for blocking clients."""
    script = client.register_script(SCRIPT)
    return _replies(script(**_arguments(fence, commands)), fence)


def _arguments(fence: Fence, commands: Sequence[Command]) -> dict[str, list[Part]]:
    check_fence(fence)
    arguments: list[Part] = [fence.source, fence.token]
    for command in commands:
        if isinstance(command, str | bytes) or not command:
            raise Invalid(f'A command is its name and arguments, ("DEL", "a"), not {command!r:.80}.')
        if len(command) > PARTS_MAX:
            raise Invalid(
                f"A command has {len(command):,} parts; a script takes {PARTS_MAX:,}: make several."
            )
        arguments += [len(command), *command]
    return {"keys": [f"{MARK}{fence.resource}"], "args": arguments}


def _replies(replies: list[Any], fence: Fence) -> list[Any]:
    verdict, *rest = replies
    match _text(verdict):
        case "mixed":
            raise mixed(fence, _text(rest[0]))
        case "stale":
            raise stale(fence, int(rest[0]))
    return rest


def _text(reply: str | bytes) -> str:
    return reply.decode() if isinstance(reply, bytes) else reply
