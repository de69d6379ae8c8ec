"""Orders that are charged by one owner at a time, also when a frozen worker comes back.

    python payments.py

charges three orders at a bank. While the second one is checked for fraud, its worker is frozen, the
customer takes something back, and another worker charges the new total. Then the first worker is
thawed, and sends what it was about to send: the old total. The bank refuses it.
"""

import json
import os
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from pathlib import Path

import holdfast

ORDERS = Path("orders.json")
BANK = os.environ.get("BANK", "")

app = holdfast.App()


@app.job(lock="order-{order_id}", lease=2)
def charge(ctx: holdfast.Context, order_id: int) -> int:
    """Charge what the order costs now, in cents."""
    fence = ctx.guard()
    cents = int(json.loads(ORDERS.read_text())[str(order_id)])
    ctx.emit("priced", cents=cents)
    if cents > 5000:
        time.sleep(3)  # large orders are checked for fraud
    url = f"{BANK}/charges/{fence.resource}"
    body = str(cents).encode()
    request = urllib.request.Request(url, body, headers=fence.headers, method="PUT")
    try:
        urllib.request.urlopen(request, timeout=10).close()
    except urllib.error.HTTPError as error:
        if error.code == 409:
            raise holdfast.Fenced(error.read().decode()) from error
        raise
    return cents


def main() -> None:
    orders = {1001: 2500, 1002: 6000, 1003: 1200}
    ORDERS.write_text(json.dumps(orders))
    bank, os.environ["BANK"] = start_bank()
    jobs = [charge.enqueue(order_id) for order_id in orders]
    first = start_worker("first")
    wait_until_priced(jobs[1].job_id)
    frozen = tree(first.pid)
    for pid in frozen:
        os.kill(pid, signal.SIGSTOP)
    say("the first worker is frozen, about to charge 60.00 for order 1002")
    ORDERS.write_text(json.dumps({**orders, 1002: 5900}))
    say("the customer takes something back: order 1002 costs 59.00 now")
    second = start_worker("second", "--drain")
    second.wait(timeout=60)
    say(f"order 1002 is done: {jobs[1].result(timeout=60) / 100:.2f}, says the registry")
    say("the first worker is thawed, and goes on where it was")
    for pid in reversed(frozen):  # the handler first, before its worker can stop it
        os.kill(pid, signal.SIGCONT)
        time.sleep(1)
    first.terminate()
    first.wait(timeout=60)
    bank.terminate()
    bank.wait(timeout=60)


def start_bank() -> "tuple[subprocess.Popen[bytes], str]":
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    bank = subprocess.Popen([sys.executable, "bank.py", str(port)])
    for _ in range(300):
        with socket.socket() as probe:
            if probe.connect_ex(("127.0.0.1", port)) == 0:
                return bank, f"http://127.0.0.1:{port}"
        time.sleep(0.1)
    raise TimeoutError("The bank does not open.")


def start_worker(name: str, *options: str) -> "subprocess.Popen[bytes]":
    return subprocess.Popen(
        ["holdfast", "worker", "payments:app", "--name", name, *options], stderr=subprocess.DEVNULL
    )


def wait_until_priced(job_id: str) -> None:
    with holdfast.Client(app.url) as client:
        for event in client.events(job_id):
            if event.event_type == "custom":
                return


def tree(pid: int) -> list[int]:
    """A process and all its descendants, parents first."""
    found = [pid]
    for each in found:
        for task in Path(f"/proc/{each}/task").iterdir():
            found += map(int, (task / "children").read_text().split())
    return found


def say(words: str) -> None:
    print(f"   ** {words}", flush=True)


if __name__ == "__main__":
    main()
