# SPDX-License-Identifier: BSD-3-Clause
"""The C interface (gradwire.h) in ctypes: the library, its structs, its errors."""
import ctypes
import ctypes.util
import enum
import glob
import numbers
import operator
import os

ABI_VERSION = 1
MAX_U16 = 2**16 - 1
MAX_U32 = 2**32 - 1
MAX_U64 = 2**64 - 1
RANK_INFO_BYTES = 512


class Status(enum.IntEnum):
    """gw_status of the C interface."""

    OK = 0
    INVALID_ARGUMENT = 1
    NOT_FOUND = 2
    PERMISSION = 3
    BUSY = 4
    TIMED_OUT = 5
    ABORTED = 6
    UNAVAILABLE = 7
    RESOURCE_EXHAUSTED = 8
    MISMATCH = 9
    UNSUPPORTED = 10
    SYSTEM = 11
    INTERNAL = 12


class GradwireError(RuntimeError):
    """A call failed: ``code`` says how (a Status), ``text`` names the thing."""

    def __init__(self, code, text):
        super().__init__("%s (%s)" % (text, Status(code).name))
        self.code = Status(code)
        self.text = text

    def reword(self, text):
        """It says this from now on."""
        self.__init__(self.code, text)

    def __reduce__(self):
        return GradwireError, (self.code, self.text)


class OpenOptions(ctypes.Structure):
    _fields_ = [
        ("struct_bytes", ctypes.c_uint32),
        ("connect_timeout_ms", ctypes.c_uint32),
        ("request_timeout_ms", ctypes.c_uint32),
        ("spin_us", ctypes.c_uint32),
        ("staging_cache_bytes", ctypes.c_uint64),
    ]


class ClientInfo(ctypes.Structure):
    _fields_ = [
        ("struct_bytes", ctypes.c_uint32),
        ("client_id", ctypes.c_uint32),
        ("incarnation", ctypes.c_uint64),
        ("lanes", ctypes.c_uint32),
        ("max_payload_bytes", ctypes.c_uint32),
        ("numa_node", ctypes.c_int32),
        ("reserved", ctypes.c_uint32),
    ]


class Counters(ctypes.Structure):
    _fields_ = [
        ("struct_bytes", ctypes.c_uint32),
        ("reserved", ctypes.c_uint32),
        ("ops_posted", ctypes.c_uint64),
        ("ops_done", ctypes.c_uint64),
        ("ops_failed", ctypes.c_uint64),
        ("copies", ctypes.c_uint64),
        ("copied_bytes", ctypes.c_uint64),
        ("staging_bytes", ctypes.c_uint64),
        ("sleeps", ctypes.c_uint64),
        ("doorbells", ctypes.c_uint64),
    ]


class DescribeOptions(ctypes.Structure):
    _fields_ = [
        ("struct_bytes", ctypes.c_uint32),
        ("security", ctypes.c_int32),
        ("job_key", ctypes.c_char_p),
        ("job_key_bytes", ctypes.c_uint64),
    ]


GROUP_TRANSFERS_ALONE = 1


class GroupConfig(ctypes.Structure):
    _fields_ = [
        ("struct_bytes", ctypes.c_uint32),
        ("epoch", ctypes.c_uint32),
        ("group_id", ctypes.c_uint64),
        ("rank", ctypes.c_uint16),
        ("nranks", ctypes.c_uint16),
        ("member", ctypes.c_uint16),
        ("member_count", ctypes.c_uint16),
        ("timeout_ms", ctypes.c_uint32),
        ("folding_ranks", ctypes.c_uint16),
        ("flags", ctypes.c_uint16),
        ("rank_infos", ctypes.c_char_p),
        ("rank_infos_bytes", ctypes.c_uint64),
        ("security", ctypes.c_int32),
        ("job_key_bytes", ctypes.c_uint32),
        ("job_key", ctypes.c_char_p),
    ]


class ProcessesConfig(ctypes.Structure):
    _fields_ = [
        ("struct_bytes", ctypes.c_uint32),
        ("epoch", ctypes.c_uint32),
        ("group_id", ctypes.c_uint64),
        ("process", ctypes.c_uint32),
        ("processes", ctypes.c_uint32),
        ("timeout_ms", ctypes.c_uint32),
        ("flags", ctypes.c_uint32),
        ("infos", ctypes.c_char_p),
        ("infos_bytes", ctypes.c_uint64),
        ("folding_infos", ctypes.c_char_p),
        ("folding_infos_bytes", ctypes.c_uint64),
        ("security", ctypes.c_int32),
        ("job_key_bytes", ctypes.c_uint32),
        ("job_key", ctypes.c_char_p),
    ]


class GroupInfo(ctypes.Structure):
    _fields_ = [
        ("struct_bytes", ctypes.c_uint32),
        ("process", ctypes.c_uint32),
        ("processes", ctypes.c_uint32),
        ("rank", ctypes.c_uint16),
        ("nranks", ctypes.c_uint16),
        ("member", ctypes.c_uint16),
        ("member_count", ctypes.c_uint16),
    ]


class Call(ctypes.Structure):
    _fields_ = [
        ("struct_bytes", ctypes.c_uint32),
        ("collective", ctypes.c_int32),
        ("input", ctypes.c_void_p),
        ("output", ctypes.c_void_p),
        ("count", ctypes.c_uint64),
        ("datatype", ctypes.c_int32),
        ("redop", ctypes.c_int32),
        ("root", ctypes.c_uint32),
        ("tag", ctypes.c_uint32),
        ("factor", ctypes.c_double),
        ("stream", ctypes.c_void_p),
        ("on_stream", ctypes.c_uint32),
        ("wire", ctypes.c_int32),
        ("input_counts", ctypes.POINTER(ctypes.c_uint64)),
        ("output_counts", ctypes.POINTER(ctypes.c_uint64)),
        ("input_bytes", ctypes.c_uint64),
        ("output_bytes", ctypes.c_uint64),
        ("has_sizes", ctypes.c_uint32),
        ("reserved_sizes", ctypes.c_uint32),
        ("residual_in", ctypes.c_void_p),
        ("residual_out", ctypes.c_void_p),
        ("up_to", ctypes.c_uint32),
        ("pair_stream", ctypes.c_uint32),
    ]


ALL_REDUCE, REDUCE, BROADCAST, ALL_GATHER, REDUCE_SCATTER = 1, 2, 3, 4, 5
GATHER, SCATTER, ALL_TO_ALL, SEND, RECV, BARRIER = 6, 7, 8, 9, 10, 11
CALL_BYTES = ctypes.sizeof(Call)


_Handle = ctypes.c_void_p
_HandleOut = ctypes.POINTER(ctypes.c_void_p)
# group, input, output, count, datatype, redop, tag
_OP = [
    _Handle,
    ctypes.c_void_p,
    ctypes.c_void_p,
    ctypes.c_uint64,
    ctypes.c_int,
    ctypes.c_int,
    ctypes.c_uint32,
]

# name: (result, argument types). A result of None is nothing; Status is checked by call().
_FUNCTIONS = {
    "gw_abi_version": (ctypes.c_uint32, []),
    "gw_version": (ctypes.c_char_p, []),
    "gw_last_error": (ctypes.c_char_p, []),
    "gw_open": (
        ctypes.c_int,
        [ctypes.c_char_p, ctypes.POINTER(OpenOptions), _HandleOut],
    ),
    "gw_close": (None, [_Handle]),
    "gw_client_get_info": (ctypes.c_int, [_Handle, ctypes.POINTER(ClientInfo)]),
    "gw_client_get_counters": (ctypes.c_int, [_Handle, ctypes.POINTER(Counters)]),
    "gw_client_get_completion_fd": (ctypes.c_int, [_Handle, ctypes.POINTER(ctypes.c_int)]),
    "gw_client_describe": (ctypes.c_int, [_Handle, ctypes.c_void_p, ctypes.c_size_t]),
    "gw_client_describe_for": (
        ctypes.c_int,
        [_Handle, ctypes.POINTER(DescribeOptions), ctypes.c_void_p, ctypes.c_size_t],
    ),
    "gw_daemon_status": (
        ctypes.c_int,
        [
            ctypes.c_char_p,
            ctypes.c_uint32,
            ctypes.c_char_p,
            ctypes.c_size_t,
            ctypes.POINTER(ctypes.c_size_t),
        ],
    ),
    "gw_memory_alloc": (ctypes.c_int, [_Handle, ctypes.c_uint64, _HandleOut]),
    "gw_memory_address": (ctypes.c_void_p, [_Handle]),
    "gw_memory_bytes": (ctypes.c_uint64, [_Handle]),
    "gw_memory_numa_node": (ctypes.c_int32, [_Handle]),
    "gw_memory_device": (ctypes.c_int32, [_Handle]),
    "gw_memory_free": (ctypes.c_int, [_Handle]),
    "gw_group_join": (ctypes.c_int, [_Handle, ctypes.POINTER(GroupConfig), _HandleOut]),
    "gw_group_join_processes": (
        ctypes.c_int,
        [_Handle, ctypes.POINTER(ProcessesConfig), _HandleOut],
    ),
    "gw_group_get_info": (ctypes.c_int, [_Handle, ctypes.POINTER(GroupInfo)]),
    "gw_group_rank_of": (ctypes.c_int32, [_Handle, ctypes.c_uint32]),
    "gw_group_leave": (ctypes.c_int, [_Handle]),
    "gw_group_abort": (ctypes.c_int, [_Handle, ctypes.c_char_p]),
    "gw_group_error": (ctypes.c_int, [_Handle]),
    "gw_group_free": (None, [_Handle]),
    "gw_all_reduce": (ctypes.c_int, [*_OP, _HandleOut]),
    "gw_reduce_scatter": (ctypes.c_int, [*_OP, _HandleOut]),
    "gw_all_gather": (ctypes.c_int, [*_OP[:5], ctypes.c_uint32, _HandleOut]),
    "gw_broadcast": (ctypes.c_int, [*_OP[:5], ctypes.c_uint32, ctypes.c_uint32, _HandleOut]),
    "gw_reduce": (ctypes.c_int, [*_OP[:6], ctypes.c_uint32, ctypes.c_uint32, _HandleOut]),
    "gw_barrier": (ctypes.c_int, [_Handle, ctypes.c_uint32, _HandleOut]),
    "gw_send": (ctypes.c_int, [*_OP[:2], *_OP[3:5], ctypes.c_uint32, ctypes.c_uint32, _HandleOut]),
    "gw_recv": (ctypes.c_int, [*_OP[:2], *_OP[3:5], ctypes.c_uint32, ctypes.c_uint32, _HandleOut]),
    "gw_all_to_all": (ctypes.c_int, [*_OP[:5], ctypes.c_uint32, _HandleOut]),
    "gw_gather": (ctypes.c_int, [*_OP[:5], ctypes.c_uint32, ctypes.c_uint32, _HandleOut]),
    "gw_scatter": (ctypes.c_int, [*_OP[:5], ctypes.c_uint32, ctypes.c_uint32, _HandleOut]),
    "gw_all_reduce_on_stream": (ctypes.c_int, [*_OP, ctypes.c_void_p, _HandleOut]),
    "gw_post": (ctypes.c_int, [_Handle, ctypes.POINTER(Call), _HandleOut]),
    "gw_post_more": (ctypes.c_int, [_Handle, ctypes.POINTER(Call), _HandleOut]),
    "gw_flush": (ctypes.c_int, [_Handle]),
    "gw_test": (ctypes.c_int, [_Handle, ctypes.POINTER(ctypes.c_int)]),
    "gw_wait": (ctypes.c_int, [_Handle, ctypes.c_uint32]),
    "gw_wait_on_stream": (ctypes.c_int, [_Handle, ctypes.c_uint32, ctypes.c_void_p]),
    "gw_work_is_done": (ctypes.c_int, [_Handle]),
    "gw_work_op_seq": (ctypes.c_uint64, [_Handle]),
    "gw_work_bytes": (ctypes.c_uint64, [_Handle]),
    "gw_work_free": (None, [_Handle]),
    "gw_round_trip": (
        ctypes.c_int,
        [ctypes.c_int32, ctypes.c_int32, ctypes.c_uint64, *[ctypes.c_void_p] * 3],
    ),
}


def library_path():
    """Where libgradwire is looked for: $GRADWIRE_LIBRARY, beside this package, the loader's."""
    named = os.environ.get("GRADWIRE_LIBRARY")
    if named:
        return named
    beside = sorted(glob.glob(os.path.join(os.path.dirname(__file__), "libgradwire.so*")))
    if beside:
        return beside[0]
    return ctypes.util.find_library("gradwire") or "libgradwire.so.1"


def _load():
    path = library_path()
    try:
        library = ctypes.CDLL(path)
    except OSError as error:
        raise ImportError(
            "libgradwire could not be loaded (%s): install it, or name it in GRADWIRE_LIBRARY"
            % error
        ) from None
    for name, (result, arguments) in _FUNCTIONS.items():
        function = getattr(library, name, None)
        if function is None:
            raise ImportError(
                "%s, gradwire %s, has no %s: it is older than this package: install both from one "
                "release" % (path, library.gw_version().decode(), name)
            )
        function.restype = result
        function.argtypes = arguments
    abi = library.gw_abi_version()
    if abi != ABI_VERSION:
        raise ImportError(
            "%s has ABI version %d, but this package needs %d: install both from one release"
            % (path, abi, ABI_VERSION)
        )
    return library


lib = _load()


def version():
    """Version of the library that is loaded."""
    return lib.gw_version().decode()


def error_of(status):
    """The exception for a status of the call that this thread has just made."""
    return GradwireError(status, lib.gw_last_error().decode(errors="replace"))


def check(status):
    """Raises where the call that this thread has just made failed."""
    if status != Status.OK:
        raise error_of(status)


SECURITY = {None: 0, "off": 1, "authenticate": 2, "encrypt": 3}


def wants(security=None, job_key=None):
    """What a job wants of its packets, as fields of a struct."""
    if security not in SECURITY:
        raise ValueError(
            "security is %r: it must be 'off', 'authenticate' or 'encrypt', or None for "
            "$GRADWIRE_SECURITY or the daemon's" % (security,)
        )
    if job_key is not None and (not isinstance(job_key, bytes) or len(job_key) != 32):
        raise ValueError("job_key must be 32 bytes, or None for that of $GRADWIRE_JOB_KEY_FILE")
    return {
        "security": SECURITY[security],
        "job_key": job_key,
        "job_key_bytes": 0 if job_key is None else len(job_key),
    }


def describe_options(**wanted):
    return DescribeOptions(struct_bytes=ctypes.sizeof(DescribeOptions), **wants(**wanted))


def integer(value, name, least, most):
    """An argument as the integer that it has to be. ctypes would cut off what does not fit."""
    try:
        number = operator.index(value)
    except TypeError:
        raise TypeError(
            "%s is %r: it must be an integer from %d to %d" % (name, value, least, most)
        ) from None
    if not least <= number <= most:
        raise ValueError("%s is %d: it must be %d to %d" % (name, number, least, most))
    return number


def milliseconds(seconds, name="timeout"):
    """Seconds as the C interface's milliseconds; at most an hour."""
    if isinstance(seconds, bool) or not isinstance(seconds, numbers.Real):
        raise TypeError(
            "%s is %r: it must be a number of seconds from 0 to 3600" % (name, seconds)
        )
    if not 0 <= seconds <= 3600:
        raise ValueError("%s is %r s: it must be 0 to 3600" % (name, seconds))
    return int(seconds * 1000 + 0.999)
