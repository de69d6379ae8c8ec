"""Small real file systems, and the switch that cuts their power.

All mounts live in a mount namespace of this process, and the loop device frees itself: when the last
process here is gone, however it went, nothing is left behind.
"""

import ctypes
import errno
import fcntl
import os
import struct
import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from types import TracebackType

_NEW_NAMESPACE = 0x00020000
_RECURSIVE, _PRIVATE = 0x4000, 0x40000
_GET_FREE_LOOP = 0x4C82
_CONFIGURE_LOOP = 0x4C0A
_FREE_ITSELF = 4
_LOOP_CONFIG_BYTES = 304
_LOOP_FLAGS_OFFSET = 8 + 52
_EXT4_SHUTDOWN = 0x8004587D  # _IOR('X', 125, __u32)
_LOG_FLUSH, _NO_LOG_FLUSH = struct.pack("I", 1), struct.pack("I", 2)
_UNMOUNT_TRIES = 1000

_libc = ctypes.CDLL(None, use_errno=True)


class Forbidden(Exception):
    """This kernel, or this user's rights, do not allow what the proof needs."""


def private_mounts() -> None:
    """Give this process and its children mounts of their own."""
    _call("unshare", lambda: _libc.unshare(_NEW_NAMESPACE))
    _mount(b"none", "/", None, _RECURSIVE | _PRIVATE)


def mount_tmpfs(folder: Path, mebibytes: int) -> None:
    folder.mkdir(exist_ok=True)
    _mount(b"tmpfs", folder, b"tmpfs", 0, f"size={mebibytes}m".encode())


def unmount(folder: Path) -> None:
    """Unmount as soon as nobody holds a file there: a killed process takes a moment to let go."""
    for _ in range(_UNMOUNT_TRIES):
        if _libc.umount2(os.fsencode(folder), 0) == 0:
            return
        if ctypes.get_errno() != errno.EBUSY:
            break
        time.sleep(0.002)
    raise OSError(ctypes.get_errno(), f"cannot unmount {folder}")


class LoopDisk:
    """An ext4 file system in a file. Mounted inside its `with` block, at `folder`."""

    def __init__(self, scratch: Path, mebibytes: int) -> None:
        self.folder = scratch / "disk"
        self._image = scratch / "disk.image"
        self._mebibytes = mebibytes
        self._loop = -1

    def __enter__(self) -> "LoopDisk":
        self.folder.mkdir()
        with self._image.open("wb") as image:
            image.truncate(self._mebibytes * 1024 * 1024)
        _make_ext4(self._image)
        self._loop, self._device = _attach(self._image)
        try:
            self.mount()
        except BaseException:
            os.close(self._loop)
            raise
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        try:
            unmount(self.folder)
        finally:
            os.close(self._loop)

    def mount(self) -> None:
        """Mount; after a cut this plays the file system's journal."""
        _mount(self._device.encode(), self.folder, b"ext4", 0)

    def unmount(self) -> None:
        unmount(self.folder)

    def cut(self, *, log_flush: bool = False) -> None:
        """From this instant nothing reaches the device: dirty pages are lost and every call that would
        write fails. The file system's running journal transaction goes with them, unless
        `log_flush`: then names and sizes may be newer than what the files hold."""
        switch = os.open(self.folder, os.O_RDONLY | os.O_DIRECTORY)
        try:
            fcntl.ioctl(switch, _EXT4_SHUTDOWN, _LOG_FLUSH if log_flush else _NO_LOG_FLUSH)
        except OSError as error:
            raise Forbidden(f"EXT4_IOC_SHUTDOWN is refused here: {error}") from error
        finally:
            os.close(switch)


def _make_ext4(image: Path) -> None:
    command = ["mkfs.ext4", "-q", "-F", "-J", "size=4", "-E", "lazy_itable_init=0", str(image)]
    try:
        subprocess.run(command, check=True, capture_output=True, timeout=60)
    except (OSError, subprocess.CalledProcessError) as error:
        raise Forbidden(f"mkfs.ext4 cannot be run here: {error}") from error


def _attach(image: Path) -> tuple[int, str]:
    """A loop device over the file. It is freed when its last user lets go of it."""
    backing = os.open(image, os.O_RDWR)
    try:
        control = os.open("/dev/loop-control", os.O_RDWR)
        try:
            return _first_free(control, backing)
        finally:
            os.close(control)
    except OSError as error:
        raise Forbidden(f"loop devices cannot be had here: {error}") from error
    finally:
        os.close(backing)


def _first_free(control: int, backing: int) -> tuple[int, str]:
    config = bytearray(_LOOP_CONFIG_BYTES)
    struct.pack_into("II", config, 0, backing, 0)
    struct.pack_into("I", config, _LOOP_FLAGS_OFFSET, _FREE_ITSELF)
    for _ in range(20):
        device = f"/dev/loop{fcntl.ioctl(control, _GET_FREE_LOOP)}"
        loop = os.open(device, os.O_RDWR | os.O_CLOEXEC)
        try:
            fcntl.ioctl(loop, _CONFIGURE_LOOP, bytes(config))
        except OSError as error:
            os.close(loop)
            if error.errno != errno.EBUSY:  # somebody else was faster
                raise
        else:
            return loop, device
    raise OSError(errno.EBUSY, "every free loop device was taken by somebody else")


def _mount(
    device: bytes, folder: Path | str, kind: bytes | None, flags: int, options: bytes | None = None
) -> None:
    target = os.fsencode(folder)
    _call(f"mount {folder}", lambda: _libc.mount(device, target, kind, flags, options))


def _call(what: str, call: Callable[[], int]) -> None:
    if call() != 0:
        code = ctypes.get_errno()
        raise Forbidden(f"{what} is refused here: {os.strerror(code)}")
