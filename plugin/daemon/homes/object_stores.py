"""Stores of objects by URL, as homes of index logs: ``file://``, ``s3://``, and all others of fsspec.

Invariants: fsspec is imported only when a URL needs it; neither a URL nor a broker's conf file has a secret:
keys and endpoints come from the sources of the storage's own client (the environment, its own files, the
machine's role) and from fsspec's configuration; every call has an end.
"""

from __future__ import annotations

import asyncio
import re
import secrets
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from threading import Lock
from typing import Any
from urllib.parse import unquote, urlsplit

from tidegate.index.log import FolderObjects, Objects
from tidegate.plugin.shared.extras import how_to_get
from tidegate.plugin.shared.shown import one_line, shown

FILE = "file"
THREADS = 16
URL_BYTES_MAX = 1_024
REMOTE_INTERVAL_MS = 1_000
"""Appends are gathered for so long where each request has a price."""

TAIL_ENTRIES_MAX = 512
_URL = re.compile(r"[a-z][a-z0-9+.-]*://[!-~]+", re.ASCII)
_WORDS_MAX = 200
_S3 = ("s3", "s3a")
_WITHOUT_FOLDERS = (*_S3, "gs", "gcs", "az", "abfs", "abfss", "adl", "oss", "oci", "r2")
"""Making a folder there may make a bucket."""

_READ_ONLY = ("http", "https")

_S3_OPTIONS = {
    "config_kwargs": {"connect_timeout": 3, "read_timeout": 5, "retries": {"max_attempts": 2}},
}


def is_url(text: str) -> bool:
    """True if the text looks like a URL."""
    return "://" in text


def checked_url(text: str) -> str:
    """The URL as it stands in conf files and pointers. Raises ValueError with the reason if it is wrong."""
    if len(text) > URL_BYTES_MAX or not _URL.fullmatch(text):
        raise ValueError("it must be a URL such as file:///srv/tidegate or s3://bucket/folder")
    url = urlsplit(text)
    if "@" in url.netloc:
        raise ValueError(
            "a URL must have no name and password in it: the storage's client has its own place for them"
        )
    if url.query or url.fragment or "?" in text or "#" in text or "\\" in text:
        raise ValueError("it must be a URL without query, fragment and backslash")
    if ".." in unquote(url.path).split("/"):
        raise ValueError("it must be a URL without ..")
    if url.scheme != FILE and set(url.path) & set("*["):
        # fsspec takes the name as a pattern, and would remove everything that fits: others' logs.
        raise ValueError("it must be a URL without * and [ in its path")
    if url.scheme == FILE and (url.netloc or not url.path.strip("/")):
        raise ValueError("a file URL names an absolute path, such as file:///srv/tidegate")
    if url.scheme != FILE and not url.netloc:
        raise ValueError("it must name a bucket or host, such as s3://bucket/folder")
    return text.rstrip("/")


def check_known(url: str) -> None:
    """Raise ValueError if the installed fsspec does not know a checked URL's scheme.

    Without fsspec it passes: see `advice_on`.
    """
    try:
        _load(urlsplit(url).scheme)
    except ValueError:
        raise ValueError(
            f"fsspec, as installed here, knows no {urlsplit(url).scheme}://: "
            "correct it, or install the package that brings it"
        ) from None
    except ImportError:
        return


def _load(scheme: str) -> None:
    """Raise ValueError for an unknown scheme, ImportError for a missing package."""
    if scheme != FILE:
        from fsspec import get_filesystem_class  # noqa: PLC0415 few have such a home

        get_filesystem_class(scheme)


def missing_folder(url: str) -> Path | None:
    """A checked file URL's folder if missing, else None."""
    parts = urlsplit(url)
    folder = Path(unquote(parts.path))
    return folder if parts.scheme == FILE and not folder.is_dir() else None


def advice_on(url: str) -> str | None:
    """Why a checked URL would keep nothing, and the remedy; None if it would."""
    parts = urlsplit(url)
    if parts.scheme == "memory":
        return f"{url} keeps nothing beyond the end of the daemon: choose a store that outlives it"
    if (folder := missing_folder(url)) is not None:
        return f"there is no folder {shown(str(folder))} here: make or mount it, nothing is kept there before"
    if parts.scheme in _READ_ONLY:
        return f"{parts.scheme}:// can only be read, so nothing is kept there: choose a store of objects"
    try:
        _load(parts.scheme)
    except (ImportError, ValueError) as error:
        return f"nothing is kept there before the daemon's Python has it: {_not_loaded(parts.scheme, error)}"
    return None


def _not_loaded(scheme: str, error: ImportError | ValueError) -> str:
    """The missing package or scheme, and the remedy, in one line."""
    if isinstance(error, ValueError):
        return f"fsspec knows nothing of {scheme}://: {one_line(str(error))}"
    return (
        f"{scheme}:// needs a package that is not installed ({one_line(str(error))}): "
        f"for S3 run {how_to_get('s3')}; for others see what fsspec's documentation names"
    )


class ObjectStores:
    """One daemon's stores, each opened once."""

    def __init__(self) -> None:
        self._executor: ThreadPoolExecutor | None = None
        self._opened: dict[str, Objects] = {}
        self._lock = Lock()

    async def offload(self, work: Callable[[], object]) -> object:
        """Run blocking work."""
        if self._executor is None:
            self._executor = ThreadPoolExecutor(THREADS, thread_name_prefix="tidegate-objects")
        return await asyncio.get_running_loop().run_in_executor(self._executor, work)

    def opened(self, url: str) -> Objects:
        """The store, opened if necessary. Blocks. Raises OSError."""
        with self._lock:
            if url not in self._opened:
                self._opened[url] = open_objects(url)
            return self._opened[url]

    def close(self) -> None:
        """Begin nothing more; work under way ends."""
        if self._executor is not None:
            self._executor.shutdown(wait=False, cancel_futures=True)


def interval_ms(url: str) -> int:
    """How long appends to a store are gathered."""
    return 0 if urlsplit(url).scheme == FILE else REMOTE_INTERVAL_MS


def open_objects(url: str) -> Objects:
    """A checked URL's store. Blocks. Raises OSError."""
    parts = urlsplit(url)
    if parts.scheme == FILE:
        return FolderObjects(Path(unquote(parts.path)))
    return FsspecObjects(url)


class FsspecObjects:
    """A store by fsspec's file system for its URL.

    creates_once is tried at the opening: not every file system heeds it.
    """

    def __init__(self, url: str) -> None:
        scheme = urlsplit(url).scheme
        options: dict[str, Any] = _S3_OPTIONS if scheme in _S3 else {}
        self._has_folders = scheme not in _WITHOUT_FOLDERS
        try:
            from fsspec.core import url_to_fs  # noqa: PLC0415 few have such a home, and it takes its time

            self._files, self._root = url_to_fs(
                url, use_listings_cache=False, skip_instance_cache=True, **options
            )
        except (ImportError, ValueError) as error:
            raise OSError(_not_loaded(scheme, error)) from error
        except Exception as error:
            raise _translated(error) from error
        self.creates_once = self._creates_once()

    def _creates_once(self) -> bool:
        name = f"probe/{secrets.token_hex(8)}"
        try:
            self.create(name, b"1")
            self.create(name, b"2")
        except FileExistsError:
            return True
        finally:
            self.remove(name)
        return False

    def create(self, name: str, data: bytes) -> None:
        """See `Objects`."""
        make = partial(self._files.pipe_file, self._path(name), data, mode="create")
        try:
            self._do(make)
        except FileNotFoundError:
            if not self._has_folders:
                raise
            self._do(partial(self._files.makedirs, self._path(name).rpartition("/")[0], exist_ok=True))
            self._do(make)

    def read(self, name: str) -> bytes:
        """See `Objects`."""
        return bytes(self._do(partial(self._files.cat_file, self._path(name))))

    def sizes(self, folder: str) -> dict[str, int]:
        """See `Objects`."""
        path = self._path(folder)
        self._files.invalidate_cache(path)
        try:
            rows = self._do(partial(self._files.ls, path, detail=True))
        except FileNotFoundError:
            return {}
        names = ((str(row["name"]).rstrip("/"), row["size"]) for row in rows)
        return {name.rpartition("/")[2]: int(size or 0) for name, size in names if name != path.rstrip("/")}

    def remove(self, name: str) -> None:
        """See `Objects`."""
        try:
            self._do(partial(self._files.rm, self._path(name), recursive=True))
        except FileNotFoundError:
            return

    def _path(self, name: str) -> str:
        return f"{self._root}/{name}"

    def _do(self, work: Callable[[], Any]) -> Any:
        try:
            return work()
        except (FileExistsError, FileNotFoundError):
            raise
        except Exception as error:
            # Each file system has its own errors.
            raise _translated(error) from error


def _translated(error: Exception) -> OSError:
    """The error in one line; cut short, as some clients include whole requests."""
    words = one_line(str(error))[:_WORDS_MAX]
    return OSError(f"{type(error).__name__}: {words}" if words else type(error).__name__)
