"""The jobs of the web application. Its workers load this module, and not the web framework:

holdfast worker tasks:app
"""

import holdfast

app = holdfast.App()  # the store that HOLDFAST_STORE or holdfast.toml names, else holdfast.db in this folder


@app.job(timeout="1m")
def count_words(ctx: holdfast.Context, text: str) -> dict[str, int]:
    """Count the words of a text, and tell how far it is."""
    found: dict[str, int] = {}
    lines = text.splitlines()
    for n, line in enumerate(lines, 1):
        for word in line.lower().split():
            found[word] = found.get(word, 0) + 1
        ctx.progress(n, len(lines))
    return found
