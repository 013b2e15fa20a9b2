# SPDX-License-Identifier: BSD-3-Clause
"""The C++ extension of the backend, if this user has built it: where it lies, and whether it fits.

    GRADWIRE_TORCH_EXTENSION  "off": it is not used, even if it is there
    XDG_CACHE_HOME            where caches lie; ~/.cache if it is not set

``python -m gradwire.torch.build`` builds it. It lies in a folder whose name says for which torch,
Python and gradwire it was built, so that none is ever loaded by another one.
"""
import hashlib
import importlib.machinery
import importlib.util
import logging
import os
import stat
import sysconfig
import threading

import torch

from .._native import version

log = logging.getLogger("gradwire.torch")

NAME = "_gradwire_torch"
HOW_TO_BUILD = "python -m gradwire.torch.build builds it"
_SOURCES = os.path.join(os.path.dirname(os.path.abspath(__file__)), "cpp")


def sources():
    """[(path, text)] of what it is built of, headers too."""
    found = []
    for name in sorted(os.listdir(_SOURCES)) if os.path.isdir(_SOURCES) else ():
        if name.endswith((".cc", ".h")):
            path = os.path.join(_SOURCES, name)
            with open(path, encoding="utf-8") as file:
                found.append((path, file.read()))
    return found


def uses_new_strings():
    """Whether torch's C++ has the strings of C++11, as a number for the compiler."""
    return int(getattr(torch._C, "_GLIBCXX_USE_CXX11_ABI", True))


def key():
    """The name of the folder: of this torch, Python, gradwire and these sources."""
    digest = hashlib.sha256()
    for _, text in sources():
        digest.update(text.encode())
    digest.update(("%s %d" % (torch.version.git_version, uses_new_strings())).encode())
    return "torch-%s-%s-gradwire-%s-%s" % (
        torch.__version__, sysconfig.get_config_var("SOABI"), version(), digest.hexdigest()[:8]
    )


def path():
    """Where it lies, or would lie."""
    caches = os.environ.get("XDG_CACHE_HOME")
    if not caches or not os.path.isabs(caches):
        caches = os.path.expanduser("~/.cache")
    return os.path.join(caches, "gradwire", key(), NAME + ".so")


def why_not(where):
    """None if the file may be loaded, else why not: who can write it can run code as this user."""
    for each in (where, os.path.dirname(where)):
        try:
            found = os.stat(each)
        except OSError:
            return "it is not built for this torch, Python and gradwire: " + HOW_TO_BUILD
        if found.st_uid not in (os.getuid(), 0):
            return "%s belongs to user %d, and this process runs as %d" % (
                each, found.st_uid, os.getuid())
        if stat.S_IMODE(found.st_mode) & 0o022:
            return "others may write to %s: chmod go-w it" % each
    return None


def load(where):
    """The module in this file. Raises ImportError if it cannot be loaded."""
    loader = importlib.machinery.ExtensionFileLoader(NAME, where)
    spec = importlib.util.spec_from_file_location(NAME, where, loader=loader)
    module = importlib.util.module_from_spec(spec)
    loader.exec_module(module)
    if module.torch_version != torch.__version__.split("+")[0]:
        raise ImportError("it was built for torch %s" % module.torch_version)
    return module


_lock = threading.Lock()
_found = None  # (the module or None, what is said of it)


def _look():
    if os.environ.get("GRADWIRE_TORCH_EXTENSION") == "off":
        return None, "not used: GRADWIRE_TORCH_EXTENSION is off"
    where = path()
    why = why_not(where)
    if why is not None:
        if os.path.exists(where):
            log.warning("gradwire: the C++ extension is not used: %s", why)
        else:
            log.info("gradwire: without the C++ extension: %s", why)
        return None, "not used: " + why
    try:
        module = load(where)
    except ImportError as error:
        why = "%s cannot be loaded: %s. %s anew" % (where, error, HOW_TO_BUILD)
        log.warning("gradwire: the C++ extension is not used: %s", why)
        return None, "not used: " + why
    log.info("gradwire: with the C++ extension: %s", where)
    return module, "used: " + where


def extension():
    """The module, or None. It is looked for once; what was found is said once in the log."""
    global _found
    with _lock:
        if _found is None:
            _found = _look()
        return _found[0]


def recorder():
    """The module, if it can tell torch's Flight Recorder of ops, or None. It can from torch 2.15
    on."""
    module = extension()
    return module if hasattr(module, "recorded") else None


def said():
    """"used: PATH" or "not used: WHY", once it was looked for."""
    return "not looked for yet" if _found is None else _found[1]
