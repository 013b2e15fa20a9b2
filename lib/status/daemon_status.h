// SPDX-License-Identifier: BSD-3-Clause
/// @file
/// The status of a daemon in one struct. The control thread fills it for each request
/// (control/status.cc), and everything that anybody reads is made from it: the JSON of the control
/// socket (to_json() below), Prometheus metrics, DPDK's telemetry, and the views of the operator's
/// tool, which reads the JSON back into the same struct. Plain data; any thread; it allocates.
///
/// A member has the same name in the JSON. daemon_status.cc lists each struct's members once, for
/// writing and reading, counter_table.h what lanes count, and neither compiles if one is missing.
/// 64-bit ids are hexadecimal texts, because many JSON readers turn numbers into doubles; what
/// other users may not know is null or "hidden-HANDLE". Names end in their unit; a "since" time
/// says how long ago.
#pragma once

#include <cstdint>
#include <map>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <vector>

#include "base/counts.h"
#include "status/port.h"

namespace gradwire::status {

/// Left out of the JSON if there is none; std::optional is null there.
template <class T>
struct Maybe : std::optional<T> {
  using std::optional<T>::optional;
};

/// By reason.
using Drops = std::map<std::string, std::uint64_t>;
/// By the collective's name.
using Collectives = std::map<std::string, std::uint64_t>;

struct Address {
  std::uint16_t port = 0;
  std::string address;  ///< "10.0.0.1/24"
};

/// What a user took of the control thread.
struct User {
  std::uint32_t uid = 0;
  std::uint64_t control_steps = 0;
  std::uint64_t control_waits = 0;  ///< how often it had used up its share
  bool waits = false;               ///< it has to wait now
};

struct Daemon {
  std::string version;
  std::int64_t pid = 0;
  std::string state;  ///< "running", "draining", "drained", "stopping", "closing"
  double uptime_s = 0;
  std::string incarnation;
  std::uint32_t lanes = 0;
  std::uint32_t max_payload_bytes = 0;
  std::uint32_t features = 0;
  std::uint32_t base_udp_port = 0;
  int numa_node = -1;  ///< -1: none
  std::vector<Address> addresses;
  std::string security = "off";          ///< what groups want whose jobs say nothing
  std::string security_minimum = "off";  ///< a job that wants less is refused
  std::vector<std::string> keys;         ///< ids of the cluster's keys, the first one first
  std::vector<std::string> datapath;     ///< facts found at the start, one line each
  std::vector<std::string> warnings;
  std::uint64_t requests_outstanding = 0;  ///< that lanes have not answered
  // The longest of the last minute; a step is about a microsecond's work, and does not depend on
  // the machine.
  std::uint64_t control_round_us_max = 0;
  std::uint64_t control_round_steps_max = 0;
  std::uint64_t open_questions = 0;     ///< MAC addresses that groups have asked for in turn
  std::uint64_t log_lines_dropped = 0;  ///< since nobody read the log
  std::vector<User> users;              ///< who asked for something in the last time
};

/// Counters of all shards on a lane, or of one shard. base/counts.h says what they mean.
struct Transport : ShardCounts {
  Drops drops;
};

struct LaneCounters : LaneCounts, CommandCounts {
  Collectives ops;  ///< whole ops that are done; lane 0 alone counts them
  Drops drops;
};

/// counts[i] ops took at most bounds_ns[i] and more than the bound before; the last count has no
/// upper bound.
struct OpLatency {
  std::uint64_t sum_ns = 0;
  std::vector<std::uint64_t> bounds_ns;
  std::vector<std::uint64_t> counts;
};

struct Mempool {
  std::string mempool;
  std::uint32_t free = 0;
  std::uint32_t mbufs = 0;
};

struct LanePort {
  std::string device;
  std::string driver;
  std::string link;
};

struct Lane {
  std::uint32_t lane = 0;
  std::uint32_t lcore = 0;
  std::string polling;
  Maybe<int> nice;
  bool isolated = false;
  std::string isolation_problems;
  Maybe<std::uint64_t> involuntary_switches;
  std::vector<LanePort> ports;
  std::string mempool_ops;
  std::uint32_t packet_mbufs_free = 0;
  std::uint64_t requests_unsent = 0;  ///< not sent because its ring was full
  std::uint64_t round_us_max = 0;     ///< the longest round of the last minute
  std::uint64_t round_steps_max = 0;  ///< the one with most steps: lane/lane.h says what those are
  std::uint64_t heap_bytes = 0;       ///< scratch memory that its groups' ops have used
  LaneCounters counters;
  Maybe<OpLatency> op_latency;  ///< lane 0's
  std::vector<Mempool> mempools;
  Transport transport;  ///< of all groups so far, including ended ones, so that no sum decreases
};

/// What shards reduced, by backend and path.
struct Reduce {
  std::string backend;
  std::string path;
  std::uint64_t chunks_reduced = 0;
  std::uint64_t chunks_moved = 0;
  std::uint64_t bytes = 0;
  std::uint64_t batches = 0;  ///< of a GPU
};

struct FaultCounts {
  std::uint64_t frames = 0;
  std::uint64_t dropped = 0;
  std::uint64_t duplicated = 0;
  std::uint64_t reordered = 0;
  std::uint64_t corrupted = 0;
  std::uint64_t delayed = 0;
  std::uint64_t passed_full = 0;
  std::uint64_t no_mbuf = 0;
  std::uint64_t held = 0;
};

/// Faults injected on a port, now or earlier.
struct Faults {
  std::string port;
  bool active = false;
  std::string settings;
  std::uint64_t seed = 0;
  double drop = 0;
  double duplicate = 0;
  double reorder = 0;
  std::uint32_t reorder_frames = 0;
  double corrupt = 0;
  double delay = 0;
  std::uint32_t delay_us = 0;
  FaultCounts counters;
};

struct Member {
  std::uint64_t member = 0;
  std::uint64_t process = 0;  ///< its number in the group
  std::uint32_t client = 0;
  std::int64_t pid = 0;
  std::string state;  ///< "missing", "joined", "left"
};

struct Path {
  std::uint16_t port = 0;
  std::string local_ip;
  std::string remote_ip;
  std::optional<std::string> remote_mac;  ///< none until it has answered
};

struct Neighbor {
  std::uint16_t rank = 0;
  std::optional<std::string> incarnation;  ///< none: hidden
  std::vector<Path> paths;                 ///< lane i takes path i modulo their number
};

struct Shard {
  std::uint32_t lane = 0;
  std::string state;
  std::uint64_t posted_op_seq = 0;
  std::uint64_t done_op_seq = 0;
  std::uint64_t downstream_posted_op_seq = 0;
  double upstream_silence_s = 0;
  double downstream_silence_s = 0;
  std::uint64_t bytes_in_flight = 0;
  std::uint64_t packets_in_flight = 0;
  std::uint64_t window_bytes = 0;
  std::uint64_t credit_chunks = 0;
  std::uint64_t chunks_sent = 0;
  std::uint64_t transit_queued = 0;
  std::uint64_t early_held = 0;
  double smoothed_rtt_us = 0;
  double latest_rtt_us = 0;  ///< 0: no sample yet
  double min_rtt_us = 0;
  double rttvar_us = 0;
  std::uint64_t pto_count = 0;
  std::uint64_t packets_lost = 0;
  std::uint64_t ecn_ce_reported = 0;
  bool upstream_heard = false;
  bool downstream_heard = false;
  std::uint64_t in_backend = 0;
  std::string downstream_ip;                 ///< to which data goes: each rank may have several
  double downstream_ip_s = 0;                ///< for so long, if it was another before
  std::string upstream_ip;                   ///< to which acknowledgements go
  std::uint32_t downstream_source_port = 0;  ///< UDP, from which data goes
  std::uint32_t upstream_source_port = 0;    ///< and acknowledgements
  bool on_other_path = false;  ///< data does not go to the address that the lane began with
  std::uint64_t peers_on_other_path = 0;  ///< the same of packets off the ring: how many ranks
  std::string backend;
  std::string backend_path;
  Transport counters;
};

/// A rank for which the ops of a group have waited: its processes had not posted them, or it was
/// silent.
struct LateRank {
  std::uint16_t rank = 0;
  double waited_s = 0;  ///< in all
  double last_s = 0;    ///< since they waited for it last
};

struct Group {
  std::string group_id;
  std::uint32_t epoch = 0;
  std::uint64_t handle = 0;
  std::string state;
  double state_since_s = 0;
  std::optional<std::string> aborted;  ///< why
  std::vector<std::string> waits_for;
  std::uint16_t rank = 0;
  std::uint16_t nranks = 0;
  std::uint32_t uid = 0;
  std::uint32_t lanes = 0;
  std::uint32_t payload_bytes = 0;
  std::optional<std::string> table_digest;  ///< none: hidden
  std::string security = "off";  ///< "authenticate", "encrypt": what is done with its packets
  std::string key;               ///< the id of the cluster's key that it has; empty if off
  std::string job_key;           ///< the id of the job's own key; empty: it has none, or hidden
  std::uint64_t key_memory_bytes = 0;  ///< that its keys take, at most
  std::uint64_t retransmissions = 0;
  std::vector<Member> members;
  std::optional<Neighbor> downstream;
  std::optional<Neighbor> upstream;
  std::uint64_t idle_networks = 0;
  bool transfers_alone = false;    ///< it has sends and receives, and no ops
  std::uint32_t direct_kib = 0;    ///< up to this size of all ranks' inputs an all-reduce is direct
  std::uint32_t two_step_kib = 0;  ///< up to this size of an op one is done in two steps
  std::uint32_t two_step_owners = 0;  ///< ranks that sum those
  /// Ranks to which packets keep their source port, since it chooses the receive queue there.
  std::uint32_t ranks_of_one_source_port = 0;
  std::uint32_t gathered_kib = 0;  ///< up to this size of all ranks' inputs one is gathered
  bool tiles = false;              ///< larger ops go by tiles
  bool tiles_by_model = false;     ///< those alone that take less time so by the cost model
  /// Of an all-reduce by tiles, what this rank sums; 0: its segment of the ring, or nothing.
  double tile_share_percent = 0;
  std::string why_no_tiles;          ///< why they do not, unless rank 0 wants none
  bool formats = false;              ///< sums may travel as bf16 and int8
  std::string why_no_formats;        ///< why not; empty in a group of one rank, too
  std::string why_not_direct;        ///< why none is, though rank 0 wants it
  std::vector<LateRank> late_ranks;  ///< the worst 16, and of these the worst first
  std::vector<Shard> shards;         ///< by lane
};

/// The oldest unfinished op of a group on a lane.
struct Op {
  std::string group_id;
  std::uint32_t epoch = 0;
  std::uint16_t rank = 0;
  std::uint64_t op_seq = 0;
  std::uint64_t unfinished = 0;  ///< it, and those after it
  std::uint32_t lane = 0;
  std::string collective;
  std::string wire = "same";  ///< the format in which its elements travel
  std::string shape;          ///< local, exchange, ring, direct, two-step, gathered or tiles
  std::uint64_t bytes = 0;    ///< of the whole op, in its datatype
  std::optional<double> posted_s;
  std::optional<double> first_chunk_s;
  std::uint64_t retransmissions = 0;
  std::string waits_for;             ///< "upstream", "downstream", "rank", "ranks", "this rank"
  std::uint16_t waits_for_rank = 0;  ///< if "ranks": the first of those of which one is late
  std::optional<double> since_s;
  std::string text;  ///< one line: which rank it waits for, and why
};

struct Memory {
  std::uint32_t memory = 0;
  std::uint64_t bytes = 0;
  bool on_gpu = false;
  std::uint64_t page_bytes = 0;
  int numa_node = -1;
  std::string state;
};

struct Client {
  std::uint32_t client = 0;
  std::int64_t pid = 0;
  std::uint32_t uid = 0;
  double since_s = 0;
  std::string state;  ///< "opening", "open", "retired"
  std::uint64_t memory_bytes = 0;
  std::vector<Memory> memories;
};

struct DaemonStatus {
  Daemon daemon;
  std::vector<Lane> lanes;
  std::vector<Reduce> reduce;
  std::vector<Faults> faults;
  std::vector<Group> groups;
  std::vector<Op> ops;
  std::vector<Port> ports;
  std::vector<Client> clients;
};

/// What other users see in place of a group's id: "hidden-7".
[[nodiscard]] std::string hidden_name(std::uint64_t handle);

/// Reads another daemon's JSON: a member that is missing or has another type keeps its value;
/// members that the struct does not have are ignored. It throws only if memory runs out.
#define GRADWIRE_STATUS_JSON(Type)                      \
  void to_json(nlohmann::json& out, const Type& value); \
  void from_json(const nlohmann::json& in, Type& value)
GRADWIRE_STATUS_JSON(Address);
GRADWIRE_STATUS_JSON(Daemon);
GRADWIRE_STATUS_JSON(Transport);
GRADWIRE_STATUS_JSON(LaneCounters);
GRADWIRE_STATUS_JSON(OpLatency);
GRADWIRE_STATUS_JSON(Mempool);
GRADWIRE_STATUS_JSON(LanePort);
GRADWIRE_STATUS_JSON(Lane);
GRADWIRE_STATUS_JSON(Reduce);
GRADWIRE_STATUS_JSON(FaultCounts);
GRADWIRE_STATUS_JSON(Faults);
GRADWIRE_STATUS_JSON(Member);
GRADWIRE_STATUS_JSON(Path);
GRADWIRE_STATUS_JSON(Neighbor);
GRADWIRE_STATUS_JSON(Shard);
GRADWIRE_STATUS_JSON(Group);
GRADWIRE_STATUS_JSON(Op);
GRADWIRE_STATUS_JSON(PortCounters);
GRADWIRE_STATUS_JSON(Port);
GRADWIRE_STATUS_JSON(Memory);
GRADWIRE_STATUS_JSON(Client);
GRADWIRE_STATUS_JSON(DaemonStatus);
#undef GRADWIRE_STATUS_JSON

/// Members of `value` that `in`, perhaps of another release, lacks: "lanes.counters.stuck", ...
[[nodiscard]] std::vector<std::string> missing_in(const nlohmann::json& in,
                                                  const DaemonStatus& value);

}  // namespace gradwire::status
