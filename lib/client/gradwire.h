/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * @file
 * The C interface of gradwire's client library: open the daemon of this host, share memory with
 * it, form a group with the clients of other daemons, all-reduce and the other collectives.
 *
 * It is one file, however long: a program includes one header, and what it says is all of the
 * interface's reference.
 *
 * Link with -lgradwire (`pkg-config --libs gradwire`). C99 or C++. Every symbol has a version,
 * GRADWIRE_1.0 or the later one that brought it. No exception crosses this interface.
 *
 * Threads. Every function may be called from any thread, on any handle, at the same time as any
 * other, except that a handle must not be used during or after the call that frees it. The thread
 * that waits for an op need not be the one that posted it. Clients share nothing with each other.
 *
 * Bounds. No call waits for ever: those that wait take a timeout in milliseconds, or have the bound
 * that their description names. A daemon that dies is GW_UNAVAILABLE within a second, on every call
 * and wait under way and on every later one.
 *
 * Errors. A function that can fail returns gw_status; gw_last_error() then has a sentence for the
 * calling thread. Output parameters are written on GW_OK only, unless said otherwise.
 *
 * Fork. A child made by fork() without exec cannot use handles of its parent: every call gives
 * GW_UNAVAILABLE, and the functions that free do nothing. The child closes the parent's
 * connections on its side at once, so that the daemon still notices when the parent dies. Shared
 * memory stays mapped in the child. The child may gw_open() its own client. exec() closes all.
 *
 * Structs carry their size. Set `struct_bytes` to sizeof the struct, and zero what you do not set:
 * zero is every field's default. A field that is reserved, or that a newer header added, must be
 * zero for an older library, or the call is GW_UNSUPPORTED.
 *
 * Handles. Free order is free: groups, works and memory keep alive what they need. After
 * gw_close() the others give GW_UNAVAILABLE and still have to be freed.
 */
#ifndef GRADWIRE_H
#define GRADWIRE_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define GW_ABI_VERSION 1u
#define GW_RANK_INFO_BYTES 512u
/** gw_group_info.process of a client at a rank that has no processes. */
#define GW_NO_PROCESS UINT32_MAX
/** Daemons of one group, clients of one daemon in a group, and clients of a group in all. */
#define GW_MAX_RANKS 1024u
#define GW_MAX_MEMBERS 64u
#define GW_MAX_PROCESSES 65535u
/** Ops that one client may have posted and not finished. */
#define GW_MAX_OUTSTANDING 256u
/** The same of sends, receives, all-to-alls, gathers and scatters, which do not count as those. */
#define GW_MAX_TRANSFERS 768u
/** Orders that sends and receives between two processes can have. */
#define GW_MAX_STREAMS 64u

typedef struct gw_client gw_client; /**< a connection to the daemon */
typedef struct gw_memory gw_memory; /**< memory shared with the daemon */
typedef struct gw_group gw_group;   /**< this client's part in a group */
typedef struct gw_work gw_work;     /**< one op */

/* Enumerations cross as int32_t: the library refuses a value that it does not know, which an
 * enumeration's own type would not let it look at. */

/** What a call came to. The values never change. */
typedef int32_t gw_status;
enum {
  GW_OK = 0,
  GW_INVALID_ARGUMENT = 1,   /**< the caller's value is out of its bounds */
  GW_NOT_FOUND = 2,          /**< no such handle, group, file */
  GW_PERMISSION = 3,         /**< another user's thing, or the socket's mode */
  GW_BUSY = 4,               /**< in use, or too many at once: wait for an op, try again */
  GW_TIMED_OUT = 5,          /**< a bound passed; nothing was aborted */
  GW_ABORTED = 6,            /**< the group was aborted; the text says by whom and why */
  GW_UNAVAILABLE = 7,        /**< the daemon is not there, went away, is stopping or is draining */
  GW_RESOURCE_EXHAUSTED = 8, /**< quota, hugepages */
  GW_MISMATCH = 9,           /**< ranks or members called different things */
  GW_UNSUPPORTED = 10,       /**< well-formed, but not available here */
  GW_SYSTEM = 11,            /**< a system call failed; the text has its error */
  GW_INTERNAL = 12           /**< a bug of gradwire's */
};

/** Element types. The values never change. */
typedef int32_t gw_datatype;
enum {
  GW_FLOAT32 = 0,
  GW_FLOAT64 = 1,
  GW_FLOAT16 = 2,
  GW_BFLOAT16 = 3,
  GW_INT8 = 4,
  GW_INT32 = 5,
  GW_INT64 = 6,
  GW_UINT8 = 7
};

/** Reductions. fp16 and bf16 are summed in fp32 and rounded once per rank; GW_AVG divides by
 * the number of processes, once, before the last rounding; integers wrap, their average truncates
 * toward zero. The values never change. */
typedef int32_t gw_redop;
enum {
  GW_SUM = 0,
  GW_AVG = 1,
  GW_MIN = 2,
  GW_MAX = 3,
  GW_PROD = 4,
  GW_BAND = 5, /**< bitwise and, or, exclusive or: of integers; refused for floats */
  GW_BOR = 6,
  GW_BXOR = 7,
  GW_PREMUL_SUM = 8 /**< sum of inputs, each times its process's own gw_call::factor; of floats.
                         By gw_post() alone */
};

/** What an op does. The values never change. */
typedef int32_t gw_collective;
enum {
  GW_ALL_REDUCE = 1,
  GW_REDUCE = 2,
  GW_BROADCAST = 3,
  GW_ALL_GATHER = 4,
  GW_REDUCE_SCATTER = 5,
  GW_GATHER = 6,
  GW_SCATTER = 7,
  GW_ALL_TO_ALL = 8,
  GW_SEND = 9,
  GW_RECV = 10,
  GW_BARRIER = 11
};

/** How elements of a sum may travel between ranks, if not as they are: gw_call.wire. Fewer bytes
 * cross the wire, and the result is not exact (doc/formats.md says what it loses). The values never
 * change. */
typedef int32_t gw_wire;
enum {
  GW_WIRE_SAME = 0, /**< in the datatype itself */
  GW_WIRE_BF16 = 1, /**< of fp32: its upper half, rounded */
  GW_WIRE_INT8 = 2  /**< of fp32 and bf16: a byte each, and a scale for 256 of them */
};

/** What a job wants of the packets of its groups (doc/security.md). A group has the highest that
 * any of its processes wants. The values never change. */
typedef int32_t gw_security;
enum {
  GW_SECURITY_DEFAULT = 0, /**< the environment's GRADWIRE_SECURITY ("off", "authenticate" or
                                "encrypt"), and without it the daemon's security.mode */
  GW_SECURITY_OFF = 1,
  GW_SECURITY_AUTHENTICATE = 2, /**< nobody on the path changes them */
  GW_SECURITY_ENCRYPT = 3       /**< nor reads what they carry */
};
#define GW_JOB_KEY_BYTES 32u

/* ---- Library ---- */

/** GW_ABI_VERSION of the library that is loaded. Never fails. */
uint32_t gw_abi_version(void);
/** "0.1.0". Static. */
const char* gw_version(void);
/** "GW_TIMED_OUT" and so on; "gw_status?" for a value outside the enumeration. Static. */
const char* gw_status_name(gw_status status);
/** The sentence of the calling thread's last call that did not return GW_OK; "" before the first.
 * Valid until the thread's next call that fails. */
const char* gw_last_error(void);

/* ---- Wire formats ---- */

/** What is left of values that travel in a format: encodes and decodes them here, as a rank of one
 * member does with its input, bit for bit, whatever the thread's floating-point control is. What is
 * lost can be added to the next input (error feedback). Needs no daemon, and memory of the host.
 * @param input     [count] of `datatype`, from the first element of an op on; of a reduce-scatter,
 *                  from the first one of a process's block. No alignment is needed.
 * @param output    [count] of `datatype`: what every rank makes of them; bf16 is rounded once more.
 *                  It may be `input`, or NULL.
 * @param residual  fp32 [count]: input less what it decodes to in fp32, 0 where that is no finite
 *                  number. It overlaps nothing. NULL: not wanted. Not both are NULL.
 * @return GW_UNSUPPORTED if `datatype` cannot travel so. GW_WIRE_SAME takes the same datatypes as
 * GW_WIRE_INT8, and loses nothing. */
gw_status gw_round_trip(gw_wire wire, gw_datatype datatype, uint64_t count, const void* input,
                        void* output, float* residual);

/* ---- Client ---- */

typedef struct gw_open_options {
  uint32_t struct_bytes;
  uint32_t connect_timeout_ms; /**< 0 = 5000; bound of gw_open() */
  uint32_t request_timeout_ms; /**< 0 = 10000; bound of the calls that ask the daemon something */
  /** A wait spins so long before it sleeps; 0 = 20, most 1000000. On the core of the daemon's lane
   * it sleeps at once, since spinning would keep the lane from running, and spins again for a while
   * if another program there makes it wake up late. */
  uint32_t spin_us;
  /** Staging memory that is kept for the next copied op; 0 = 268435456 (256 MiB). */
  uint64_t staging_cache_bytes;
} gw_open_options;

/** Connects to the daemon of this host.
 * @param socket_path  NULL: the environment's GRADWIRE_SOCKET, else /run/gradwire/gradwired.sock.
 * @param options      NULL: the defaults.
 * @return GW_UNAVAILABLE if no daemon listens, GW_PERMISSION if the socket's mode forbids it,
 * GW_UNSUPPORTED if the daemon speaks another version. Bound: connect_timeout_ms. */
gw_status gw_open(const char* socket_path, const gw_open_options* options, gw_client** client);

/** Closes the connection and frees the handle; NULL is allowed. The daemon ends this client's ops
 * and groups (ranks elsewhere see the group abort). Waits of other threads return GW_UNAVAILABLE.
 * Memory stays mapped until gw_memory_free(); what is on a GPU is to be freed before, since the
 * daemon frees it within seconds, as CUDA would not have it. Does not wait. */
void gw_close(gw_client* client);

typedef struct gw_client_info {
  uint32_t struct_bytes; /**< set by the caller; the library fills no more than so much */
  uint32_t client_id;    /**< the daemon's number for this client, as its status shows it */
  uint64_t incarnation;  /**< random, of this run of the daemon */
  uint32_t lanes;
  uint32_t max_payload_bytes;
  int32_t numa_node; /**< of the daemon's ports; -1 unknown */
  uint32_t reserved;
} gw_client_info;

/** What the daemon said at gw_open(). Does not wait. */
gw_status gw_client_get_info(const gw_client* client, gw_client_info* info);

typedef struct gw_counters {
  uint32_t struct_bytes; /**< set by the caller; the library fills no more than so much */
  uint32_t reserved;
  uint64_t ops_posted;
  uint64_t ops_done;      /**< finished with GW_OK */
  uint64_t ops_failed;    /**< finished with anything else */
  uint64_t copies;        /**< copies into and out of shared memory, each way one */
  uint64_t copied_bytes;  /**< bytes of these copies */
  uint64_t staging_bytes; /**< shared memory that the library holds for copied ops, now */
  uint64_t sleeps;        /**< waits that spun in vain and slept */
  uint64_t doorbells;     /**< posts that had to wake the daemon */
} gw_counters;

/** Counters since gw_open(). Does not wait. */
gw_status gw_client_get_counters(const gw_client* client, gw_counters* counters);

/** A descriptor for poll() or epoll, level-triggered: readable while an op has finished that no
 * gw_test() or gw_wait() has reported yet, while a group has aborted that no gw_group_error() has
 * reported yet, and when the connection is broken. Use: test what you wait for; if nothing is
 * finished, poll; repeat. It belongs to the client: do not read, write or close it.
 *
 * It clears with the call that reports the last of what it told of, or that frees its handle: what
 * nobody can report any more, such as the end of an op whose work was freed, is not told. It may be
 * readable once for what turns out to concern nobody; any gw_test(), gw_group_error() or gw_flush()
 * takes that in. A broken connection stays readable until gw_close(). */
gw_status gw_client_get_completion_fd(gw_client* client, int* fd);

/** This daemon as other daemons reach it, for the job's own rendezvous: GW_RANK_INFO_BYTES opaque
 * bytes, to be given to every other rank unchanged. They hold a secret of this user's, by which
 * daemons tell a neighbor's packets from forged ones: give them to nobody else. The members of a
 * rank are all told the same. Bound: request_timeout_ms.
 * @param info_bytes  size of `info`, at least GW_RANK_INFO_BYTES. */
gw_status gw_client_describe(gw_client* client, void* info, size_t info_bytes);

typedef struct gw_describe_options {
  uint32_t struct_bytes;
  gw_security security;
  /** [job_key_bytes] a key of the job's own, random, the same for all its processes: others with
   * the same user id, or with the cluster's key, cannot take part then. NULL: that of the file that
   * the environment's GRADWIRE_JOB_KEY_FILE names, and without it none. */
  const void* job_key;
  uint64_t job_key_bytes; /**< GW_JOB_KEY_BYTES; 0 if job_key is NULL */
} gw_describe_options;

/** The same for a job that wants something of its packets, or has a key of its own. Pass the same
 * in gw_group_config. The library keeps no copy of the key; the daemon does, until this client and
 * its groups are gone.
 * @param options  NULL: the defaults, as for gw_client_describe().
 * @return GW_UNSUPPORTED if the daemon has no key, or can seal no packet. */
gw_status gw_client_describe_for(gw_client* client, const gw_describe_options* options, void* info,
                                 size_t info_bytes);

/** The status of a daemon as JSON text; needs no client, and opens none.
 * @param socket_path  as for gw_open().
 * @param timeout_ms   0 = 5000.
 * @param text         [text_bytes]; gets the text and a NUL. May be NULL if text_bytes is 0.
 * @param needed_bytes gets the size that the text needs, the NUL included, even if `text_bytes`
 *                     was too small; the call is GW_RESOURCE_EXHAUSTED then. */
gw_status gw_daemon_status(const char* socket_path, uint32_t timeout_ms, char* text,
                           size_t text_bytes, size_t* needed_bytes);

/* ---- Memory ---- */

/** Allocates memory that the daemon reads and writes in place: zeroed hugepages on the daemon's
 * NUMA node, aligned to a hugepage; or, if the daemon is configured so, zeroed memory of its
 * GPU, which CUDA opens for this process (see gw_memory_device()). An op whose input and output
 * both lie in such memory copies nothing. Bound: request_timeout_ms.
 * @param bytes  from 1; rounded up to hugepages.
 * @return GW_RESOURCE_EXHAUSTED if the quota, the hugepages or the GPU's memory do not suffice;
 * GW_UNSUPPORTED if the memory is a GPU's and CUDA is not available here, GW_NOT_FOUND if
 * this process does not see that GPU. */
gw_status gw_memory_alloc(gw_client* client, uint64_t bytes, gw_memory** memory);

/** Start of the memory; valid until gw_memory_free(). */
void* gw_memory_address(const gw_memory* memory);
/** Its size, rounded up to hugepages. */
uint64_t gw_memory_bytes(const gw_memory* memory);
/** NUMA node that the daemon placed it on; -1 unknown. */
int32_t gw_memory_numa_node(const gw_memory* memory);

/** CUDA's number, in this process, of the GPU that the memory is on: its address is then the GPU's,
 * in that GPU's primary context, and host code must not touch it. -1: memory of the host. */
int32_t gw_memory_device(const gw_memory* memory);

/** Gives the memory back, unmaps it and frees the handle; NULL is allowed. The host has its pages
 * back then, so a child of a fork that touches them gets SIGBUS.
 * @return GW_BUSY while an op that uses it is unfinished: then the handle stays as it was.
 * GW_TIMED_OUT if the daemon has not let go of it within request_timeout_ms: the handle stays,
 * call again. With a daemon that is gone it succeeds. */
gw_status gw_memory_free(gw_memory* memory);

/* ---- Group ---- */

/** The group is for transfers alone: gw_send() and what else is made of them (gw_all_to_all(),
 * gw_gather(), gw_scatter()). It is of two daemons, takes some KiB at each, sends nothing while
 * nobody waits for anything, and counts by limits.transfer_groups. Whether the other daemon lives
 * is asked by whoever waits for it. All members say so or none. */
#define GW_GROUP_TRANSFERS_ALONE 1u

typedef struct gw_group_config {
  uint32_t struct_bytes;
  uint32_t epoch;        /**< higher than that of any earlier group of this id */
  uint64_t group_id;     /**< the same for all; random, so that jobs do not meet */
  uint16_t rank;         /**< of this daemon, below nranks */
  uint16_t nranks;       /**< 1 ... GW_MAX_RANKS */
  uint16_t member;       /**< of this client within the rank, below member_count */
  uint16_t member_count; /**< 0 = 1; at most GW_MAX_MEMBERS; the same on every rank */
  uint32_t timeout_ms;   /**< for the whole formation; 0 = 30000, most 3600000 */
  /** So many of the last ranks have no members: hosts that only sum, for all-reduces in two steps.
   * One client joins at each, as member 0, with the member_count of the others, and then calls
   * gw_group_leave() at once, which waits there for the others. At most half of nranks. */
  uint16_t folding_ranks;
  uint16_t flags;            /**< GW_GROUP_TRANSFERS_ALONE, or 0 */
  const void* rank_infos;    /**< [nranks] x GW_RANK_INFO_BYTES, in rank order, from
                                gw_client_describe() of a client at each rank */
  uint64_t rank_infos_bytes; /**< nranks x GW_RANK_INFO_BYTES */
  gw_security security;      /**< this and the next as gw_client_describe_for() had them */
  uint32_t job_key_bytes;
  const void* job_key;
} gw_group_config;

/** Joins a group; returns when every member of every rank has joined. Collective. Each rank is one
 * daemon; the member_count clients of one daemon are its members.
 * Bound: timeout_ms and request_timeout_ms.
 * @return GW_TIMED_OUT or GW_ABORTED if the group was not formed: the text names who is
 * missing, as far as the daemon knows. */
gw_status gw_group_join(gw_client* client, const gw_group_config* config, gw_group** group);

typedef struct gw_processes_config {
  uint32_t struct_bytes;
  uint32_t epoch;       /**< higher than that of any earlier group of this id */
  uint64_t group_id;    /**< the same for all; random, so that jobs do not meet */
  uint32_t process;     /**< this client's number in the group, below processes */
  uint32_t processes;   /**< 1 ... GW_MAX_PROCESSES; 1 to GW_MAX_MEMBERS at each daemon */
  uint32_t timeout_ms;  /**< for the whole formation; 0 = 30000, most 3600000 */
  uint32_t flags;       /**< GW_GROUP_TRANSFERS_ALONE, or 0 */
  const void* infos;    /**< [processes] x GW_RANK_INFO_BYTES: what gw_client_describe() gave each
                           process, in the group's order, the same on all */
  uint64_t infos_bytes; /**< processes x GW_RANK_INFO_BYTES */
  /** Daemons without processes, as gw_group_config.folding_ranks says: what gw_client_describe()
   * gave at each. The client that joins at the i-th is process `processes` + i. */
  const void* folding_infos;
  uint64_t folding_infos_bytes; /**< a multiple of GW_RANK_INFO_BYTES; 0: there are none */
  gw_security security;         /**< this and the next as gw_client_describe_for() had them */
  uint32_t job_key_bytes;
  const void* job_key;
} gw_processes_config;

/** gw_group_join() for processes in any order, any number of them at each daemon, such as a part of
 * a job's processes or those of one host alone: each passes what all of them got from
 * gw_client_describe(). Roots and blocks go by the processes' numbers here. Collective.
 *
 * A daemon's rank, which errors name, is its place in the order in which processes name daemons;
 * gw_group_rank_of() tells it. A rank's members are its processes in the order of their numbers,
 * and that is the order in which they are summed. Bound and return values: as gw_group_join(). */
gw_status gw_group_join_processes(gw_client* client, const gw_processes_config* config,
                                  gw_group** group);

typedef struct gw_group_info {
  uint32_t struct_bytes; /**< set by the caller; the library fills no more than so much */
  uint32_t process; /**< this client's number in the group; GW_NO_PROCESS at a rank without any */
  uint32_t processes;
  uint16_t rank; /**< of its daemon */
  uint16_t nranks;
  uint16_t member;       /**< of this client within the rank */
  uint16_t member_count; /**< of this rank: others may have another */
} gw_group_info;

/** Where this client stands in the group. Does not wait. */
gw_status gw_group_get_info(const gw_group* group, gw_group_info* info);

/** The rank of a process, as errors and the status name ranks; -1 if the group has no such
 * process. */
int32_t gw_group_rank_of(const gw_group* group, uint32_t process);

/** Leaves: nothing more will be posted on it. Ops of it that are unfinished are aborted, here and
 * elsewhere. Returns when the daemon has closed its part. Bound: request_timeout_ms. The handle
 * stays, for gw_group_free().
 *
 * If the rank has other members, the daemon closes its part when they have left too, so this call
 * may end with GW_TIMED_OUT: call it again to wait on, or gw_group_free(), which does not wait. The
 * others may go on with what needs nothing of this client. An op that it has not posted and that
 * another member of the rank, or the next rank, has posted aborts the group at once, and so does a
 * transfer of another member with it: the text names both. Whatever else waits for it, such as a
 * transfer from another rank, ends when the others have left, or have not for the daemon's
 * timeouts.leave_grace_ms.
 *
 * At a rank without members (gw_group_config.folding_ranks) the daemon goes on to sum for the
 * others until they leave or the group aborts, and only then is its part closed: call this again
 * after GW_TIMED_OUT, and gw_group_error() after GW_OK. If its client ends before, the group
 * aborts. */
gw_status gw_group_leave(gw_group* group);

/** Aborts the group on every rank, with this client's process and `reason` (may be NULL) in
 * everyone's error text; what is not UTF-8 and control characters are shown as '?'. Waits for this
 * daemon's word only: on GW_OK the group is aborted here. Bound: request_timeout_ms. */
gw_status gw_group_abort(gw_group* group, const char* reason);

/** @return GW_OK while the group works, GW_ABORTED with the reason once it was aborted,
 * GW_UNAVAILABLE when the daemon is gone. Does not wait. */
gw_status gw_group_error(gw_group* group);

/** Frees the handle, and tells the daemon to leave if that was not done; NULL is allowed. Works of
 * the group stay valid, and those that are unfinished end with GW_ABORTED. Does not wait. */
void gw_group_free(gw_group* group);

/* ---- Ops ---- */

/* What holds for every op stands at gw_all_reduce(): order, memory, copies, errors.
 *
 * Processes. Those of a group are numbered as gw_group_join_processes() was told, or by
 * gw_group_join() rank x member_count + member. P is how many there are; a root, and the blocks of
 * an all-gather and a reduce-scatter, go by these numbers. */

/** Posts an all-reduce. Every member of every rank posts the same ops in the same order with equal
 * count, datatype, redop and tag; what differs is told as GW_MISMATCH or GW_ABORTED. Does not wait
 * for anyone (it may ask the daemon for staging memory: then its bound is request_timeout_ms).
 *
 * `input` and `output` are [count] of `datatype`, aligned to nothing in particular, and equal (in
 * place) or disjoint. Memory of gw_memory_alloc() is used where it lies. Other memory is copied
 * through staging memory of the library, whole: a large op is never cut into several, since the
 * order of summation depends on where an op's segments lie, and the result must not depend on
 * where its memory came from. The input is copied within this call. The output is written by the
 * gw_test() or gw_wait() that reports the op, in the thread that calls it. Copies are counted.
 *
 * Until the op is reported as done its memory belongs to it: do not write the input, do not touch
 * the output. An op that overlaps an unfinished one's memory is refused, unless both only read.
 * After an op that failed, the contents of its output are undefined.
 *
 * @param tag   the caller's own number, the same on all; 0 if you need none.
 * @param work  the op; free it with gw_work_free().
 * @return GW_BUSY when GW_MAX_OUTSTANDING ops are unfinished or memory is in use by one. */
gw_status gw_all_reduce(gw_group* group, const void* input, void* output, uint64_t count,
                        gw_datatype datatype, gw_redop redop, uint32_t tag, gw_work** work);

/** gw_all_reduce() of what a CUDA stream is still computing: it returns at once, and the input is
 * read when the stream has passed what it was given before this call. gw_post() does the same for
 * every collective.
 *
 * `input` and `output` are in gw_memory_alloc()'s memory, or wherever CUDA's copies reach; what is
 * elsewhere is copied, and counted. When the op is reported the result is in the output for every
 * stream; see also gw_wait_on_stream(). Only what this stream was given before this call is waited
 * for: an output that another stream still reads is the caller's to order.
 *
 * If the daemon's gradient memory is on a GPU (gw_memory_device() is not -1) the daemon waits for
 * the stream. The input is copied in the order of the stream; the output by the gw_test() or
 * gw_wait() that reports the op, which waits for that copy. Sends, receives, all-to-alls, gathers
 * and scatters cannot be on a stream then.
 *
 * If it is the host's, `input` or `output` is memory of a GPU, and the other that or gradient
 * memory. They are copied through memory that CUDA has pinned, on streams beside the caller's. The
 * op is given to the daemon when the input's copy is done, by the next call of this client that
 * posts, tests or waits, so some thread has to do so; gw_client_get_completion_fd() does not tell
 * of streams. Later ops of the group keep their order behind it. If the stream fails, the op ends
 * with GW_SYSTEM and CUDA's text, and its group is aborted with it. An op that uses memory to which
 * an earlier op's result is still copied, after gw_wait_on_stream(), comes after that copy,
 * whatever stream it is on; without a stream it is refused with GW_BUSY.
 *
 * @param stream  a CUstream or cudaStream_t of the primary context of that GPU; NULL is its default
 *                stream.
 * @return as gw_all_reduce(); GW_SYSTEM with CUDA's text if CUDA refuses, such as a stream of
 * another GPU; GW_INVALID_ARGUMENT if CUDA does not know the memory; GW_UNSUPPORTED if the stream
 * is being captured into a CUDA graph, which cannot have an op in it: the capture goes on. */
gw_status gw_all_reduce_on_stream(gw_group* group, const void* input, void* output, uint64_t count,
                                  gw_datatype datatype, gw_redop redop, uint32_t tag, void* stream,
                                  gw_work** work);

/** Posts a reduce-scatter: the inputs of all processes are reduced, and process p gets block p.
 *
 * `input` is [P x count], `output` [count]: they are disjoint, or the output is this process's own
 * block of the input, `input` + process x count elements; the other blocks then stay as they are.
 *
 * @param count  elements that each process gets; the same on all.
 * @return as gw_all_reduce(); GW_UNSUPPORTED, by the op's outcome, if the daemon cannot do it. */
gw_status gw_reduce_scatter(gw_group* group, const void* input, void* output, uint64_t count,
                            gw_datatype datatype, gw_redop redop, uint32_t tag, gw_work** work);

/** Posts an all-gather: every process gets the inputs of all, block p from process p. Bytes are
 * moved as they are: what has no gw_datatype goes as GW_UINT8.
 *
 * `input` is [count], `output` [P x count]: they are disjoint, or the input is this process's own
 * block of the output, `output` + process x count elements.
 *
 * @param count  elements that each process gives; the same on all.
 * @return as gw_reduce_scatter(). */
gw_status gw_all_gather(gw_group* group, const void* input, void* output, uint64_t count,
                        gw_datatype datatype, uint32_t tag, gw_work** work);

/** Posts a broadcast: every process gets the root's input, the root too. Bytes are moved as they
 * are.
 *
 * `input` is [count] and read on the root only: elsewhere it may be NULL. `output` is [count];
 * on the root equal to `input` or disjoint from it.
 *
 * @param root  a process, below P; the same on all.
 * @return as gw_reduce_scatter(). */
gw_status gw_broadcast(gw_group* group, const void* input, void* output, uint64_t count,
                       gw_datatype datatype, uint32_t root, uint32_t tag, gw_work** work);

/** Posts a reduce: the inputs of all processes are reduced, and the root gets the result.
 *
 * `input` is [count]. `output` is [count] and written on the root only: elsewhere it may be NULL.
 * On the root it is equal to `input` or disjoint from it.
 *
 * @param root  a process, below P; the same on all.
 * @return as gw_reduce_scatter(). */
gw_status gw_reduce(gw_group* group, const void* input, void* output, uint64_t count,
                    gw_datatype datatype, gw_redop redop, uint32_t root, uint32_t tag,
                    gw_work** work);

/** Posts a barrier: it is done when every process has posted it. It says nothing of the ops before
 * it: wait for those by their own works.
 * @return as gw_reduce_scatter(). */
gw_status gw_barrier(gw_group* group, uint32_t tag, gw_work** work);

/* Transfers: send, recv, all-to-all, gather and scatter move bytes between pairs of processes.
 *
 * Each ordered pair of processes has an order of its own (several, if calls say so: see
 * gw_call::pair_stream): the n-th call of one that sends to the
 * other meets the n-th call of the other that receives from it, and both must be of the same
 * function, with equal bytes and tag (or fewer bytes than a recv takes, see gw_call::up_to); what
 * differs is GW_ABORTED, and the text names both processes and both calls. Nothing else is ordered:
 * a recv whose sender is late holds back neither other pairs nor the group's other ops. Processes
 * may post in any order; a send is done when all of it has come at the other process, which has to
 * have posted its recv for that.
 *
 * At most GW_MAX_TRANSFERS of them may be unfinished, beside GW_MAX_OUTSTANDING other ops. They are
 * GW_UNSUPPORTED, and the text says why, in a group that has a daemon whose gradient memory or
 * packets are a GPU's, or ranks whose ports do not lead to each other. Memory, copies and errors
 * are as at gw_all_reduce().
 */

/** Posts a send of `input`, [count], to process `destination`, which may be this one. Bytes are
 * moved as they are.
 * @return as gw_all_reduce(); GW_BUSY when GW_MAX_TRANSFERS are unfinished. */
gw_status gw_send(gw_group* group, const void* input, uint64_t count, gw_datatype datatype,
                  uint32_t destination, uint32_t tag, gw_work** work);

/** Posts a receive of what process `source` sends, to `output`, [count].
 * @return as gw_send(). */
gw_status gw_recv(gw_group* group, void* output, uint64_t count, gw_datatype datatype,
                  uint32_t source, uint32_t tag, gw_work** work);

/** Posts an all-to-all: every process sends block p of its input to process p, and gets there block
 * q of the output from process q. `input` and `output` are [P x count] and disjoint. For blocks of
 * other sizes see gw_call::input_counts.
 * @param count  elements of each block; the same on all.
 * @return as gw_send(). */
gw_status gw_all_to_all(gw_group* group, const void* input, void* output, uint64_t count,
                        gw_datatype datatype, uint32_t tag, gw_work** work);

/** Posts a gather: the root gets the inputs of all processes, block p from process p.
 *
 * `input` is [count]. `output` is [P x count] and written on the root only: elsewhere it may be
 * NULL. On the root they are disjoint, or the input is the root's own block of the output.
 * @param root  a process, below P.
 * @return as gw_send(). */
gw_status gw_gather(gw_group* group, const void* input, void* output, uint64_t count,
                    gw_datatype datatype, uint32_t root, uint32_t tag, gw_work** work);

/** Posts a scatter: process p gets block p of the root's input.
 *
 * `input` is [P x count] and read on the root only: elsewhere it may be NULL. `output` is [count].
 * On the root they are disjoint, or the output is the root's own block of the input; the input then
 * stays as it is, since that block is the root's own already.
 * @return as gw_gather(). */
gw_status gw_scatter(gw_group* group, const void* input, void* output, uint64_t count,
                     gw_datatype datatype, uint32_t root, uint32_t tag, gw_work** work);

/** An op of any collective, with what the functions above have no parameter for. Fields that the
 * collective does not take are zero, or the call is refused by their name: so are the input of a
 * recv, the output of a send, both of a barrier, `up_to` of all but a recv, `pair_stream` of all
 * but those and a send, `factor` beside another redop, `stream` without on_stream, and `count`
 * beside counts for both sides. Each is described at the collective's own function. */
typedef struct gw_call {
  uint32_t struct_bytes;
  gw_collective collective;
  const void* input;
  void* output;
  uint64_t count;
  gw_datatype datatype;
  gw_redop redop;
  uint32_t root; /**< of a send or a recv: the other process */
  uint32_t tag;
  /** Of GW_PREMUL_SUM: what this process's input is multiplied by, as fp64 for fp64 and as fp32 for
   * the other floats, before it is summed. Each process has its own; nobody compares them. */
  double factor;
  void* stream;       /**< as in gw_all_reduce_on_stream(), if on_stream is 1 */
  uint32_t on_stream; /**< 0 or 1 */
  /** How elements travel: for all-reduce, reduce-scatter and reduce, by GW_SUM and GW_AVG, of the
   * datatypes that gw_wire names. All processes pass the same, or the group aborts by a mismatch.
   * GW_UNSUPPORTED if the call cannot have the format; the wait's GW_UNSUPPORTED says why the group
   * can have none, such as transport.tiles = "never". With one rank nothing travels. */
  gw_wire wire;
  /** [P] elements each, or NULL: every block has `count`. Blocks lie one after the other. What this
   * process sends to each in an all-to-all, and on the root of a scatter; elsewhere not read. The
   * call has read them when it returns. An all-to-all's own block, from this process to itself, is
   * of one size on both sides; it has a `count` only if one side's counts are NULL. */
  const uint64_t* input_counts;
  /** What this process gets from each in an all-to-all, and on the root of a gather. A gather's and
   * a scatter's own `count` is that of this process's own block. */
  const uint64_t* output_counts;
  /** How many bytes of memory there are at `input` and at `output`, if has_sizes is 1. A call that
   * needs more than that is refused before anything is posted, and the text names the side, what it
   * has and what it needs. A side that this process does not take part in is not compared. Without
   * sizes, and in the functions above, the library believes `count`, except in memory of
   * gw_memory_alloc(), whose end it knows: pass sizes if you know them. */
  uint64_t input_bytes;
  uint64_t output_bytes;
  uint32_t has_sizes;      /**< 0 or 1 */
  uint32_t reserved_sizes; /**< 0 */
  /** Error feedback, of a call with a format other than GW_WIRE_SAME, at member 0 of each rank:
   * fp32, as many as the input has elements, in memory of the host that gw_memory_alloc() gave.
   * What is read at `residual_in` is added to the sum of the rank's members before it is encoded,
   * and what the encoding loses is written to `residual_out`, 0 where that is no finite number: it
   * is the next call's `residual_in`. NULL: nothing is added, or what is lost is not wanted.
   * residual_out overlaps nothing that the call reads or writes, so two buffers take turns, and
   * both belong to the call until it is done, as input and output do: GW_BUSY for another. With one
   * rank nothing is lost or added: residual_in is copied to residual_out. */
  const float* residual_in;
  float* residual_out;
  /** 1: of a recv, `count` is the most that is taken. Its sender may send less, from nothing on,
   * and gw_work_bytes() tells how much came; the rest of `output` stays as it is. More than that is
   * a mismatch, as ever. 0: the sizes must be equal. */
  uint32_t up_to;
  /** Of a send and a recv: which of the orders, the streams, that the pair of processes has, below
   * GW_MAX_STREAMS. Calls of one stream meet calls of the same one at the other process, and wait
   * for none of another. A message of stream 0, where all other calls are, is spread over the
   * daemons' lanes; one of another takes a lane. A group in which a daemon has more than 64 pairs
   * of processes has fewer streams (4,096 for all pairs of a daemon), and one with a daemon of an
   * older release has stream 0 alone: a call of a stream that is not there is refused, by its
   * number. */
  uint32_t pair_stream;
} gw_call;

/** Posts the op that `call` describes. Does not wait for anyone.
 * @return as the collective's own function. */
gw_status gw_post(gw_group* group, const gw_call* call, gw_work** work);

/** gw_post() of a call that others of this client follow at once: a daemon that sleeps is woken for
 * all of them together, by the next gw_post() of this client, even if it is refused, or its next
 * gw_flush(), gw_test() or wait. Without any of these the op may begin some milliseconds later. A
 * sender and receiver of small messages saves a wake-up. */
gw_status gw_post_more(gw_group* group, const gw_call* call, gw_work** work);

/** Nothing follows what was posted by gw_post_more().
 * @return GW_INVALID_ARGUMENT if `client` is NULL. */
gw_status gw_flush(gw_client* client);

/** Whether the op is done. Does not wait.
 * @param done  set to 0 or 1, even if the op failed.
 * @return the op's own outcome once it is done, the same at each call; GW_OK before. */
gw_status gw_test(gw_work* work, int* done);

/** Waits until the op is done: spins as gw_open_options.spin_us says, then sleeps.
 * @param timeout_ms  0 asks once.
 * @return the op's own outcome, or GW_TIMED_OUT: then the op goes on as if nothing had been asked,
 * and the text says which op it is, how long it has run and, if the daemon can tell, whom it
 * waits for (asking for that takes up to 0.2 s more). gw_work_is_done() tells the two apart. */
gw_status gw_wait(gw_work* work, uint32_t timeout_ms);

/** gw_wait() for an op on a stream, which does not wait for the copy of the result to the GPU:
 * `stream`, of the output's GPU, has the result for all that it is given after this call. If CUDA
 * does not let it, this call waits for the copy, as a later gw_wait() does. For an op whose result
 * is not copied on a stream of CUDA's it is gw_wait(). GW_UNSUPPORTED: the stream is being captured
 * into a CUDA graph; the op goes on. */
gw_status gw_wait_on_stream(gw_work* work, uint32_t timeout_ms, void* stream);

/** 1 after a gw_test() or gw_wait() has reported the outcome. */
int gw_work_is_done(const gw_work* work);

/** The number of the op in its group, from 1; 0 while it is not known (before it is done), for a
 * command that the daemon refused and for transfers, which have none. */
uint64_t gw_work_op_seq(const gw_work* work);

/** How many bytes a send or a receive moved, once a gw_test() or gw_wait() has reported its good
 * end. Of a receive with gw_call::up_to that is what came. 0 before, and for any other op. */
uint64_t gw_work_bytes(const gw_work* work);

/** Frees the handle; NULL is allowed. An unfinished op goes on and nobody will be told of its end:
 * its memory still belongs to it, and output that had to be copied is never written. */
void gw_work_free(gw_work* work);

#ifdef __cplusplus
}
#endif

#endif /* GRADWIRE_H */
