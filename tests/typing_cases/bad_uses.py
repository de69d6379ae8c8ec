"""Uses that the type checker refuses, each with the error it must give."""

from good_uses import add, app, fetch, resize, tidy

import holdfast
from holdfast import Client, Context

assert holdfast.Nothing  # expect: attr-defined
resize.enqueue(1)  # expect: arg-type
resize.enqueue()  # expect: call-arg
resize.enqueue("a", widht=3)  # expect: call-arg
resize.enqueue("a", width="b")  # expect: arg-type
resize.enqueue("a", 1, 2)  # expect: call-arg
resize.call(path=1)  # expect: arg-type
resize.configure(queue=1).enqueue("a")  # expect: arg-type
resize.configure(quee="a")  # expect: call-arg
resize.configure(delay=[5])  # expect: arg-type
resize.configure(delay=3).enqueue(1)  # expect: arg-type
resize.enqueue_many([add.call(1)])  # expect: list-item
add.enqueue("one")  # expect: arg-type
add("one")  # expect: arg-type
fetch.enqueue("a", 3)  # expect: call-arg
tidy.enqueue(1)  # expect: call-arg
number: str = add.enqueue(1).result()  # expect: assignment
app.job(queue=1)  # expect: call-overload
app.job(isolation="thread")  # expect: call-overload
app.job(outputs=[1])  # expect: list-item
app.job(tasks=())  # expect: call-overload
resize.configure(tasks=["a"])  # expect: list-item
app.jobs["add"].nothing()  # expect: attr-defined


async def coroutine(ctx: Context) -> None:
    await resize.enqueue_async(1)  # expect: arg-type
    await resize("a")  # expect: arg-type, call-arg
    await resize(ctx, 1)  # expect: arg-type
    ctx.follow_up(1)  # expect: arg-type


def watch(client: Client) -> None:
    client.status(1)  # expect: arg-type
    client.enqueue(1)  # expect: call-overload
    client.list(sates=["queued"])  # expect: call-arg
