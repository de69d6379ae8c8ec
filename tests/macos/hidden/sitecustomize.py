"""Makes an interpreter as poor as one on macOS: what only Linux has is gone, what macOS refuses is refused.

Python runs this file at its start when its folder is on PYTHONPATH. It has all that the kernel of Linux gives to
programs beside POSIX; what macOS has in its place and Linux has not (kqueue, F_GETPATH) cannot be had here. What
is tried is written to the file that HIDDEN_TRIED names.
"""

# ruff: noqa
# mypy: ignore-errors

import select

for _name in [name for name in vars(select) if name.lower().startswith("epoll")]:
    delattr(select, _name)  # before anything imports `selectors`

import ctypes
import errno
import fcntl
import os
import resource
import signal
import socket
import stat
import subprocess
import sys
import termios
import time
import types

HIDDEN_FOLDERS = ("/proc", "/sys", "/dev/shm")  # a folder of Linux, not one for files
FULL_SYNC = 51
SUN_PATH_BYTES = 104
OPEN_MAX = 10_240
BOOT_SESSION = b"5E551011-B007-0000-0000-000000000001"

NAMES = {
    os: """
        pidfd_open memfd_create eventfd eventfd_read eventfd_write pipe2 splice copy_file_range fdatasync getrandom
        waitid waitid_result P_ALL P_PID P_PGID P_PIDFD WNOWAIT sched_getaffinity sched_setaffinity sched_getparam
        sched_setparam sched_getscheduler sched_setscheduler posix_fadvise posix_fallocate getxattr setxattr listxattr
        removexattr setresuid setresgid getresuid getresgid O_TMPFILE O_PATH O_DIRECT O_LARGEFILE O_NOATIME O_RSYNC
        unshare setns timerfd_create mkfifo_at accept4
        """,
    socket: """
        SOCK_CLOEXEC SOCK_NONBLOCK MSG_CMSG_CLOEXEC MSG_NOSIGNAL SO_PEERCRED SO_DOMAIN SO_PROTOCOL SO_BINDTODEVICE
        SO_INCOMING_CPU TCP_USER_TIMEOUT TCP_CORK TCP_QUICKACK TCP_DEFER_ACCEPT TCP_KEEPIDLE AF_NETLINK AF_PACKET
        AF_ALG AF_TIPC AF_CAN
        """,
    signal: "sigtimedwait sigwaitinfo pidfd_send_signal SIGRTMIN SIGRTMAX SIGPOLL SIGPWR SIGSTKFLT SIGCLD",
    time: "CLOCK_BOOTTIME CLOCK_TAI CLOCK_MONOTONIC_COARSE CLOCK_REALTIME_COARSE pthread_getcpuclockid",
    select: "POLLRDHUP",
    fcntl: "F_OFD_GETLK F_OFD_SETLK F_OFD_SETLKW F_SETPIPE_SZ F_GETPIPE_SZ F_ADD_SEALS F_GET_SEALS F_NOTIFY",
    resource: "prlimit RLIMIT_SIGPENDING RLIMIT_MSGQUEUE RLIMIT_NICE RLIMIT_RTPRIO RUSAGE_THREAD",
}
LIBC_NAMES = (
    "prctl",
    "unshare",
    "setns",
    "pidfd_",
    "memfd_",
    "eventfd",
    "signalfd",
    "timerfd",
    "fanotify",
    "sched_",
)
LIBC_NAMES += ("inotify", "epoll", "clone", "prlimit", "syscall", "getauxval", "gnu_", "malloc_trim")


def tried(what: str) -> None:
    if name := os.environ.get("HIDDEN_TRIED"):
        file = _open(name, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
        os.write(file, f"{what}\n".encode())
        os.close(file)


def is_hidden(path: object) -> bool:
    if isinstance(path, os.PathLike):
        path = os.fspath(path)
    if isinstance(path, bytes):
        path = os.fsdecode(path)
    return isinstance(path, str) and any(path == one or path.startswith(f"{one}/") for one in HIDDEN_FOLDERS)


def refuse(path: object) -> None:
    tried(str(path))
    raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), str(path))


def hide_folder(event: str, arguments: tuple[object, ...]) -> None:
    if event in ("open", "os.listdir", "os.scandir") and arguments and is_hidden(arguments[0]):
        refuse(arguments[0])


def hiding(call):
    def hidden(path, *arguments, **named):
        if is_hidden(path):
            refuse(path)
        return call(path, *arguments, **named)

    return hidden


def hide_files() -> None:
    sys.addaudithook(hide_folder)
    for name in ("stat", "lstat", "readlink", "access", "statvfs"):
        call = getattr(os, name)
        hidden = hiding(call)
        for supported in (
            os.supports_dir_fd,
            os.supports_fd,
            os.supports_follow_symlinks,
            os.supports_effective_ids,
        ):
            if call in supported:
                supported.add(hidden)
        setattr(os, name, hidden)


def hide_names() -> None:
    for module, names in NAMES.items():
        for name in names.split():
            for place in (module, sys.modules.get(f"_{module.__name__}"), sys.modules.get("posix")):
                if place is not None and hasattr(place, name) and (place is module or module in (os, socket)):
                    delattr(place, name)


class Libc(ctypes.CDLL):
    """The library of the system, without what macOS does not have in it."""

    def __getattr__(self, name: str):
        if name == "sysctlbyname":
            return sysctlbyname
        if name.startswith(LIBC_NAMES):
            tried(name)
            raise AttributeError(name)
        return super().__getattr__(name)


def sysctlbyname(name, text, size, new, new_size) -> int:
    """What macOS says of the name of this boot, by the same arguments."""
    if name != b"kern.bootsessionuuid" or new is not None or size._obj.value <= len(BOOT_SESSION):
        return -1
    ctypes.memmove(text, BOOT_SESSION + b"\0", len(BOOT_SESSION) + 1)
    size._obj.value = len(BOOT_SESSION) + 1
    return 0


_open, _fcntl, _ioctl, _setrlimit, _unlink = os.open, fcntl.fcntl, fcntl.ioctl, resource.setrlimit, os.unlink
_bind, _connect, _popen = socket.socket.bind, socket.socket.connect, subprocess.Popen.__init__


def unlink(path, *, dir_fd=None) -> None:
    try:
        if stat.S_ISDIR(os.lstat(path, dir_fd=dir_fd).st_mode):
            raise PermissionError(errno.EPERM, os.strerror(errno.EPERM), path)
    except FileNotFoundError:
        pass
    _unlink(path, dir_fd=dir_fd)


def with_full_sync(file, command, argument=0):
    if command != FULL_SYNC:
        return _fcntl(file, command, argument)
    if stat.S_ISDIR(os.fstat(file).st_mode):
        raise OSError(errno.EINVAL, os.strerror(errno.EINVAL))
    tried("F_FULLFSYNC")
    return os.fsync(file)


def ioctl(file, command, *arguments):
    number = file if isinstance(file, int) else file.fileno()
    if command == termios.TIOCOUTQ and stat.S_ISSOCK(os.fstat(number).st_mode):
        tried("TIOCOUTQ")
        raise OSError(errno.ENOTTY, os.strerror(errno.ENOTTY))
    return _ioctl(file, command, *arguments)


def setrlimit(kind, limits) -> None:
    if kind == resource.RLIMIT_NOFILE and limits[0] > OPEN_MAX:
        tried("RLIMIT_NOFILE")
        raise ValueError("current limit exceeds maximum limit")
    _setrlimit(kind, limits)


def checking_path(call):
    def checked(self, address):
        if self.family == socket.AF_UNIX and len(os.fsencode(address)) >= SUN_PATH_BYTES:
            raise OSError("AF_UNIX path too long")
        return call(self, address)

    return checked


def popen(self, args, *rest, **named) -> None:
    """Start our small programs with this file too: they are run with -I -S, which leave it out."""
    if not isinstance(args, str | bytes | os.PathLike) and any(
        str(one).endswith("reaper.py") for one in args
    ):
        args = [one if one != "-I" else "-P" for one in args if one != "-S"]
    _popen(self, args, *rest, **named)


def change_what_differs() -> None:
    sys.platform = "darwin"
    sys.modules["_scproxy"] = proxies = types.ModuleType("_scproxy")
    proxies._get_proxy_settings = proxies._get_proxies = dict
    ctypes.CDLL = Libc
    time.CLOCK_UPTIME_RAW = time.CLOCK_MONOTONIC_RAW
    fcntl.F_FULLFSYNC = FULL_SYNC
    fcntl.fcntl, fcntl.ioctl, resource.setrlimit = with_full_sync, ioctl, setrlimit
    os.unlink = os.remove = unlink
    os.supports_dir_fd |= {unlink}
    socket.socket.bind, socket.socket.connect = checking_path(_bind), checking_path(_connect)
    subprocess.Popen.__init__ = popen


hide_names()
hide_files()
change_what_differs()
