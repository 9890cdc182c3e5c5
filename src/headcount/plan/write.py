"""How is a file written whole or not at all?"""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

from headcount.errors import InputError

__all__ = ["write_whole"]


def write_whole(path: Path, content: bytes) -> None:
    """Write beside the target, then move it there: a killed run leaves the old file as it was.

    Raises:
        InputError: no such folder, a folder itself, not writable, disk full.
    """
    if not path.parent.is_dir():
        raise InputError.one(str(path), "its folder does not exist", f"mkdir -p {path.parent}")
    if path.is_dir():
        raise InputError.one(str(path), "is a folder", "the name of a file in it")
    part = ""
    try:
        if path.exists() and not path.is_file():  # /dev/stdout, a pipe: nothing to keep whole, nothing to replace
            path.write_bytes(content)
            return
        path = path.resolve()  # a link stays a link
        with tempfile.NamedTemporaryFile(dir=path.parent, prefix=f".{path.name}.", delete=False) as beside:
            part = beside.name
            beside.write(content)
        os.chmod(part, 0o644)
        os.replace(part, path)
    except OSError as error:
        if part:
            Path(part).unlink(missing_ok=True)
        raise InputError.one(str(path), f"cannot be written: {error.strerror or error}", "another folder") from None
