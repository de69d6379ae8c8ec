"""A bank: it records what each order is charged, and refuses writes of an old owner.

    python bank.py 8080

serves PUT /charges/order-17, whose body is a number of cents. The token and the charge are compared
and written in one transaction, so no other request can come between them.
"""

import sqlite3
import sys
from http.server import BaseHTTPRequestHandler, HTTPServer

import holdfast
from holdfast import fencing
from holdfast.fencing import sqlite

CHARGE = """
INSERT INTO charge VALUES (?, ?)
ON CONFLICT (order_id) DO UPDATE SET cents = excluded.cents
"""


class Bank(BaseHTTPRequestHandler):
    """One request."""

    def do_PUT(self) -> None:
        order = self.path.rpartition("/")[2]
        cents = int(self.rfile.read(int(self.headers["Content-Length"])))
        try:
            fence = fencing.parse(self.headers.get(fencing.HEADER, ""))
            if fence.resource != order:
                raise holdfast.Invalid(f"This fence is for {fence.resource}.")
            with books:
                sqlite.admit(books, fence)
                books.execute(CHARGE, (order, cents))
        except holdfast.Invalid as error:
            self.respond(400, f"{order}: {error}")
        except (holdfast.Fenced, holdfast.Conflict) as error:
            self.respond(409, f"{order}: {cents / 100:.2f} refused. {error}")
        else:
            self.respond(200, f"{order}: {cents / 100:.2f} charged under token {fence.token}")

    def respond(self, status: int, words: str) -> None:
        print(f"bank: {words}", flush=True)
        self.send_response(status)
        self.end_headers()
        self.wfile.write(words.encode())

    def log_message(self, *_: object) -> None:
        """Print nothing but what `respond` prints."""


if __name__ == "__main__":
    books = sqlite3.connect("bank.db")
    sqlite.install(books)
    books.execute("CREATE TABLE IF NOT EXISTS charge (order_id TEXT PRIMARY KEY, cents INTEGER)")
    HTTPServer(("127.0.0.1", int(sys.argv[1])), Bank).serve_forever()
