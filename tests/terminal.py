"""What a terminal shows of a command. Only a pseudo-terminal tells: into a pipe, lines are never broken or cut."""

import fcntl
import os
import pty
import struct
import subprocess
import termios
from collections.abc import Mapping, Sequence

from patience import HANGS_S


def on_a_terminal(
    command: Sequence[str], environment: Mapping[str, str], *, columns: int = 80, with_stderr: bool = False
) -> str:
    """What ``command`` prints, each line ended by a line feed. Raises ``AssertionError`` if it does not return 0."""
    terminal, end = pty.openpty()
    fcntl.ioctl(end, termios.TIOCSWINSZ, struct.pack("HHHH", 24, columns, 0, 0))
    stderr = end if with_stderr else None
    with subprocess.Popen(command, stdin=end, stdout=end, stderr=stderr, env=environment) as process:
        os.close(end)
        shown = b""
        try:
            while piece := os.read(terminal, 65_536):
                shown += piece
        except OSError:  # how Linux says that the other end is closed
            pass
        os.close(terminal)
        assert process.wait(HANGS_S) == 0
    return shown.decode().replace("\r\n", "\n")
