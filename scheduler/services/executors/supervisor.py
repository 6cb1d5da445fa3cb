"""Ends the commands of a worker that was killed: a small shell beside it, which outlives it by a moment.

The worker tells it which process groups run. When the pipe between them closes, however the worker ended, it kills
those that are left; so a job that another worker takes over does not run beside its former self. Nothing else ends it:
a service manager that stops the worker sends the signal to all of its processes.
"""

from __future__ import annotations

import contextlib
import subprocess

SCRIPT = """
trap "" HUP INT TERM
groups=" "
while read -r verb group; do
  case $verb in
    watch) groups="$groups$group " ;;
    forget) groups="${groups%% $group *} ${groups#* $group }" ;;
  esac
done
for group in $groups; do kill -s KILL -- "-$group"; done
"""


class Supervisor:
    """The shell, started with the first group. Used by one thread, but for ``close``.

    Should somebody kill it, the next group starts another one, which is told of all that run.
    """

    def __init__(self) -> None:
        self._process: subprocess.Popen[bytes] | None = None
        self._groups: set[int] = set()

    def watch(self, group: int) -> None:
        """From now on this process group ends with us. Raises OSError if the shell cannot be started."""
        self._groups.add(group)
        if self._process is not None and self._process.poll() is None:
            self._tell(f"watch {group}\n")
        else:
            self.close()
            self._process = self._started()
            self._tell("".join(f"watch {each}\n" for each in self._groups))

    def forget(self, group: int) -> None:
        """The group has ended. Call it before its leader is reaped: afterwards the number may be somebody else's."""
        self._groups.discard(group)
        self._tell(f"forget {group}\n")

    def close(self) -> None:
        """End the shell; call it when no command runs any more."""
        if self._process is not None and self._process.stdin is not None:
            self._process.stdin.close()
            self._process.wait()

    def _started(self) -> subprocess.Popen[bytes]:
        return subprocess.Popen(
            ["/bin/sh", "-c", SCRIPT, "sched-supervisor"],
            stdin=subprocess.PIPE,
            bufsize=0,  # nothing is left to be written when it is closed
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )

    def _tell(self, lines: str) -> None:
        # Somebody killed it, or the worker is ending and did not wait for this command: there is nobody to tell.
        with contextlib.suppress(BrokenPipeError, ValueError):
            if self._process is not None and self._process.stdin is not None:
                self._process.stdin.write(lines.encode())
