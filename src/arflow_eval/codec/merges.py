"""Reading a tokenizer.json, a file from outside."""

from pathlib import Path
from typing import Any

from tokenizers import Tokenizer


def read_tokenizer(path: Path) -> Any:
    """The tokenizer of a JSON file. Raises ValueError where it holds none."""
    try:
        return Tokenizer.from_file(str(path))
    except Exception as error:  # the library raises Exception itself
        raise ValueError(f"{path.name} holds no tokenizer: {error}") from error
