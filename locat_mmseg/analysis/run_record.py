"""What a run of a tool found, and how it came about, as JSON."""
import json
import os
import shlex
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import timm
import torch


def write_whole(path: Path, text: str) -> None:
    """Write a file whole or not at all, whoever else writes it; its folder is made if need be."""
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = path.with_name(f'{path.name}.{os.getpid()}.partial')
    partial.write_text(text, encoding='utf-8')
    partial.replace(path)


def check_target(path: Path) -> None:
    """Refuse a place where no file can be written, before what is to be written is computed.

    Raises:
        ValueError: it is a folder, or inside a file.
    """
    if path.is_dir():
        raise ValueError(f'{path} is a folder: give the name of a file')
    for folder in path.parents:
        if folder.exists() and not folder.is_dir():
            raise ValueError(f'{path} cannot be written, {folder} is a file: name another folder')


def write_json(path: Path, content: Any) -> None:
    """Write content as JSON, whole or not at all."""
    write_whole(path, json.dumps(content, indent=2) + '\n')


class Record:
    """A run from its command line to its results.

    Args:
        tool: the tool's file.
        argv: its command line without the tool; None: that of the process.

    Attributes:
        words: the command line without the tool.
        command: the whole.
    """

    def __init__(self, tool: str, argv: Sequence[str] | None) -> None:
        self.started = time.time()
        self.words = sys.argv[1:] if argv is None else list(argv)
        self.command = shlex.join(['python', f'tools/{Path(tool).name}', *self.words])

    def write(self, path: Path, device: str, **content: Any) -> None:
        """Write what was found, on which device, with command, seconds, end and machine."""
        write_json(path, dict(
            content, command=self.command, seconds=round(time.time() - self.started, 1),
            finished=time.strftime('%Y-%m-%d %H:%M:%S'),
            machine=dict(device=device, threads=torch.get_num_threads(), torch=torch.__version__,
                         timm=timm.__version__)))
