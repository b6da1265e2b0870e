"""Images of videos and of image bytes, decoded by PyAV: one frame, at exactly its time."""

import io
from pathlib import Path
from typing import Any, Final

import numpy as np
from jaxtyping import UInt8

from arflow_eval import refusal
from arflow_eval.panel.extras import library

# Probing a file's content could take it for a playlist, which opens other files and addresses.
VIDEO: Final = "mp4"
PICTURES: Final = {b"\x89PNG\r\n\x1a\n": "png_pipe", b"\xff\xd8\xff": "jpeg_pipe"}
TOLERANCE: Final = 1e-4  # seconds between the time asked for and a frame's own
LONGEST: Final = 10_000_000  # seconds of a video
PIXELS: Final = 1 << 26  # of one image


def image_at(path: Path, seconds: float, *, where: str) -> UInt8[np.ndarray, "height width colour"]:
    """The frame whose presentation time is `seconds`, as RGB.

    Raises damage where no frame has that time within 1e-4 s: a neighbour is never taken.
    """
    av = library("av", extra="video")
    if not 0 <= seconds < LONGEST:
        raise refusal.damage(
            f"{where}: the time {seconds:g} s in a video",
            expected=f"seconds from 0 to {LONGEST:,}",
            remedy="leave the episode out of the panel",
        )
    nearest = float("inf")
    try:
        with av.open(str(path), format=VIDEO) as container:
            stream = _video(container, where=where)
            container.seek(max(0, int((seconds - TOLERANCE) / stream.time_base)), stream=stream)
            for frame in container.decode(stream):
                if frame.time is None:
                    continue
                away = frame.time - seconds
                nearest = away if abs(away) < abs(nearest) else nearest
                if abs(away) <= TOLERANCE:
                    return _rgb(frame, where=where)
                if away > TOLERANCE:
                    break
    except (av.FFmpegError, OSError, UnicodeDecodeError) as error:
        raise _undecodable(where, path.name, error) from error
    raise refusal.damage(
        f"{where}: {path.name} has no frame at {seconds:.6f} s (nearest {nearest:+.6f} s)",
        expected=f"a frame within {TOLERANCE:g} s",
        remedy="download the video again, or leave the episode out of the panel",
    )


def image_of(encoded: bytes, *, where: str) -> UInt8[np.ndarray, "height width colour"]:
    """An image from its PNG or JPEG bytes, as RGB."""
    av = library("av", extra="video")
    form = next((form for start, form in PICTURES.items() if encoded.startswith(start)), None)
    if form is None:
        raise refusal.damage(
            f"{where}: an image that starts with {encoded[:8]!r}",
            expected="PNG or JPEG",
            remedy="leave the dataset out of the panel",
        )
    try:
        with av.open(io.BytesIO(encoded), format=form) as container:
            stream = _video(container, where=where)
            return _rgb(next(container.decode(stream)), where=where)
    except (av.FFmpegError, OSError, UnicodeDecodeError, StopIteration) as error:
        raise _undecodable(where, "its image", error) from error


def _video(container: Any, *, where: str) -> Any:
    if not container.streams.video:
        raise refusal.damage(
            f"{where}: no video in the file", expected="one", remedy="download it again"
        )
    stream = container.streams.video[0]
    if stream.codec_context is None:
        raise refusal.damage(
            f"{where}: a codec that this PyAV does not know",
            expected="a video it can decode",
            remedy="install a PyAV with the codec, or leave the dataset out of the panel",
        )
    if stream.width * stream.height > PIXELS:
        raise refusal.damage(
            f"{where}: {stream.width} x {stream.height} pixels",
            expected=f"at most {PIXELS:,} pixels",
            remedy="leave the dataset out of the panel",
        )
    return stream


def _rgb(frame: Any, *, where: str) -> UInt8[np.ndarray, "height width colour"]:
    if frame.width * frame.height > PIXELS:
        raise refusal.damage(
            f"{where}: {frame.width} x {frame.height} pixels",
            expected=f"at most {PIXELS:,} pixels",
            remedy="leave the dataset out of the panel",
        )
    return np.ascontiguousarray(frame.to_ndarray(format="rgb24"))


def _undecodable(where: str, name: str, error: Exception) -> refusal.Refusal:
    return refusal.damage(
        f"{where}: {name} cannot be decoded ({error.__class__.__name__})",
        expected="a whole file",
        remedy="download it again, or leave the episode out of the panel",
    )
