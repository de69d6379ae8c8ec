"""The names in a source that say that it uses what only Linux has."""

LINUX_ONLY = (
    r"inotify|fanotify|prctl|/proc\b|(?<!/proc)/sys/|/dev/shm|cgroup|pidfd|memfd|eventfd|signalfd|timerfd|epoll|sendfile|splice"
    r"|SOCK_CLOEXEC|SOCK_NONBLOCK|MSG_CMSG_CLOEXEC|MSG_NOSIGNAL|SO_PEERCRED|TCP_(?!NODELAY)[A-Z_]+|POLLRDHUP|TIOCOUTQ|TIOCINQ"
    r"|sched_[gs]et\w+|sigtimedwait|sigwaitinfo|SIGRT\w+|fdatasync|posix_fallocate|posix_fadvise|copy_file_range"
    r"|O_TMPFILE|O_PATH|O_DIRECT\b|F_OFD_\w+|F_SETPIPE_SZ|pipe2|waitid|CLOCK_BOOTTIME|getxattr|setxattr|unshare"
    r"|setns|RLIMIT_(?!NOFILE)\w+|AF_UNIX|malloc_trim"
)
