// SPDX-License-Identifier: BSD-3-Clause
// Hostile commands, one by one: each field on its own, each answered with an error that names it.
#include "command/command_check.h"

#include <catch2/catch.hpp>
#include <functional>
#include <string>

#include "command_fixture.h"

using namespace gradwire;
using namespace gradwire::command;

namespace {

using Change = std::function<void(ipc::CommandEntry&)>;

struct Hostile {
  const char* what;
  Change change;
  ErrorCode code;
  const char* names;  // what the text has to say
};

constexpr ProcessPlace kPlace{1, 2};  // as the fixture's group of one client on rank 1 of 2

const Hostile kHostile[] = {
    {"unknown type", [](auto& c) { c.collective = static_cast<Collective>(12); },
     ErrorCode::kUnsupported, "type 12"},
    {"type 0", [](auto& c) { c.collective = static_cast<Collective>(0); }, ErrorCode::kUnsupported,
     "type 0"},
    {"type 255", [](auto& c) { c.collective = static_cast<Collective>(255); },
     ErrorCode::kUnsupported, "type 255"},
    {"root of an all-reduce", [](auto& c) { c.root = 1; }, ErrorCode::kInvalidArgument,
     "root 1: all-reduce has no root"},
    {"flags", [](auto& c) { c.flags = 3; }, ErrorCode::kInvalidArgument, "flags 3 of all-reduce"},
    {"a stream of a group that has one",
     [](auto& c) {
       c.collective = Collective::kSend;
       c.ready_event = 1;
     },
     ErrorCode::kInvalidArgument,
     "stream 1 of send: two processes of this group have 1, from 0 on"},
    {"an event of an all-to-all",
     [](auto& c) {
       c.collective = Collective::kAllToAll;
       c.ready_event = 1;
     },
     ErrorCode::kNotFound, "event 1 is not this client's"},
    {"a send up to a size",
     [](auto& c) {
       c.collective = Collective::kSend;
       c.flags = ipc::CommandEntry::kUpTo;
     },
     ErrorCode::kInvalidArgument, "flags 4 of send"},
    {"a receive up to a size with splits",
     [](auto& c) {
       c.collective = Collective::kRecv;
       c.flags = ipc::CommandEntry::kUpTo | ipc::CommandEntry::kHasSplits;
     },
     ErrorCode::kInvalidArgument, "flags 5 of recv"},
    {"a receive up to more than its memory has",
     [](auto& c) {
       c.collective = Collective::kRecv;
       c.flags = ipc::CommandEntry::kUpTo;
       c.count = CommandFixture::kBytes / 4 + 1;
     },
     ErrorCode::kInvalidArgument, "output of 1048580 bytes at offset 0 leaves memory 2"},
    {"splits of an all-reduce", [](auto& c) { c.flags = 1; }, ErrorCode::kInvalidArgument,
     "flags 1 of all-reduce"},
    {"format of no name", [](auto& c) { c.flags = 0x30; }, ErrorCode::kUnsupported,
     "wire format 3 is unknown"},
    {"format of a broadcast",
     [](auto& c) {
       c.collective = Collective::kBroadcast;
       c.set_wire(WireFormat::kBf16);
     },
     ErrorCode::kUnsupported, "a wire format is for all-reduce, reduce-scatter and reduce"},
    {"format of a max",
     [](auto& c) {
       c.redop = static_cast<std::uint8_t>(RedOp::kMax);
       c.set_wire(WireFormat::kInt8);
     },
     ErrorCode::kUnsupported, "cannot travel as int8: a wire format is for sum and avg"},
    {"format of fp64",
     [](auto& c) {
       c.datatype = static_cast<std::uint8_t>(DataType::kFloat64);
       c.set_wire(WireFormat::kInt8);
     },
     ErrorCode::kUnsupported, "int8 is for fp32 and bf16"},
    {"bf16 of bf16",
     [](auto& c) {
       c.datatype = static_cast<std::uint8_t>(DataType::kBfloat16);
       c.set_wire(WireFormat::kBf16);
     },
     ErrorCode::kUnsupported, "bf16 is for fp32"},
    {"datatype", [](auto& c) { c.datatype = kDataTypeCount; }, ErrorCode::kInvalidArgument,
     "datatype 8"},
    {"datatype 255", [](auto& c) { c.datatype = 255; }, ErrorCode::kInvalidArgument,
     "datatype 255"},
    {"redop", [](auto& c) { c.redop = kRedOpCount; }, ErrorCode::kInvalidArgument, "redop 9"},
    {"redop of bits", [](auto& c) { c.redop = static_cast<std::uint8_t>(RedOp::kBor); },
     ErrorCode::kInvalidArgument, "redop bor combines the bits of integers: fp32"},
    {"group of nobody", [](auto& c) { c.group_handle = 0; }, ErrorCode::kNotFound, "0x0"},
    {"group of another", [](auto& c) { c.group_handle = 0x2002; }, ErrorCode::kNotFound, "0x2002"},
    {"input handle 0", [](auto& c) { c.input_memory = 0; }, ErrorCode::kNotFound, "input memory 0"},
    {"input handle unknown", [](auto& c) { c.input_memory = 77; }, ErrorCode::kNotFound,
     "input memory 77"},
    {"output handle unknown", [](auto& c) { c.output_memory = 0xffffffff; }, ErrorCode::kNotFound,
     "output memory 4294967295"},
    {"handle of another client", [](auto& c) { c.output_memory = 5; }, ErrorCode::kNotFound,
     "output memory 5"},
    {"input runs over the end", [](auto& c) { c.input_offset = CommandFixture::kBytes - 1023; },
     ErrorCode::kInvalidArgument, "leaves memory 1"},
    {"output runs over the end", [](auto& c) { c.output_offset = CommandFixture::kBytes - 1023; },
     ErrorCode::kInvalidArgument, "leaves memory 2"},
    {"offset past the end", [](auto& c) { c.input_offset = CommandFixture::kBytes + 1; },
     ErrorCode::kInvalidArgument, "leaves memory 1"},
    {"offset that wraps", [](auto& c) { c.input_offset = UINT64_MAX - 100; },
     ErrorCode::kInvalidArgument, "leaves memory 1"},
    {"count that overflows bytes", [](auto& c) { c.count = UINT64_MAX / 4 + 1; },
     ErrorCode::kInvalidArgument, "more than an op can have"},
    {"count that wraps to few bytes", [](auto& c) { c.count = (std::uint64_t{1} << 62) + 1; },
     ErrorCode::kInvalidArgument, "more than an op can have"},
    {"count beyond the memory", [](auto& c) { c.count = CommandFixture::kBytes / 4 + 1; },
     ErrorCode::kInvalidArgument, "leaves memory 1"},
    {"largest count",
     [](auto& c) {
       c.count = UINT64_MAX;
       c.datatype = 4;
     },
     ErrorCode::kInvalidArgument, "more than an op can have: 2^48 elements"},
    {"partial overlap of input and output",
     [](auto& c) {
       c.output_memory = 1;
       c.output_offset = 4;
     },
     ErrorCode::kInvalidArgument, "overlap in part"},
    {"root of a broadcast outside the group",
     [](auto& c) {
       c.collective = Collective::kBroadcast;
       c.root = 2;
     },
     ErrorCode::kInvalidArgument, "root 2 of broadcast is none of the group's 2 processes"},
    {"root of a reduce far outside",
     [](auto& c) {
       c.collective = Collective::kReduce;
       c.root = UINT32_MAX;
     },
     ErrorCode::kInvalidArgument, "root 4294967295 of reduce"},
    {"root outside, of an op without elements",
     [](auto& c) {
       c.collective = Collective::kReduce;
       c.count = 0;
       c.root = 9;
     },
     ErrorCode::kInvalidArgument, "root 9 of reduce"},
    {"root of an all-gather",
     [](auto& c) {
       c.collective = Collective::kAllGather;
       c.root = 1;
     },
     ErrorCode::kInvalidArgument, "root 1: all-gather has no root"},
    {"redop of a broadcast",
     [](auto& c) {
       c.collective = Collective::kBroadcast;
       c.redop = 1;
     },
     ErrorCode::kInvalidArgument, "redop 1: broadcast reduces nothing"},
    {"redop of an all-gather",
     [](auto& c) {
       c.collective = Collective::kAllGather;
       c.redop = 2;
     },
     ErrorCode::kInvalidArgument, "redop 2: all-gather reduces nothing"},
    {"count of a barrier", [](auto& c) { c.collective = Collective::kBarrier; },
     ErrorCode::kInvalidArgument, "count 256"},
    {"datatype of a barrier",
     [](auto& c) {
       c.collective = Collective::kBarrier;
       c.count = 0;
       c.datatype = 3;
     },
     ErrorCode::kInvalidArgument, "datatype 3: a barrier has no elements"},
    {"redop of a barrier",
     [](auto& c) {
       c.collective = Collective::kBarrier;
       c.count = 0;
       c.redop = 3;
     },
     ErrorCode::kInvalidArgument, "redop 3: barrier reduces nothing"},
    {"an all-gather's output of all blocks leaves its memory",
     [](auto& c) {
       c.collective = Collective::kAllGather;
       c.count = CommandFixture::kBytes / 4;
     },
     ErrorCode::kInvalidArgument, "output of 2097152 bytes at offset 0 leaves memory 2"},
    {"a reduce-scatter's input of all blocks leaves its memory",
     [](auto& c) {
       c.collective = Collective::kReduceScatter;
       c.count = CommandFixture::kBytes / 4;
     },
     ErrorCode::kInvalidArgument, "input of 2097152 bytes at offset 0 leaves memory 1"},
    {"an all-gather whose bytes wrap over all processes",
     [](auto& c) {
       c.collective = Collective::kAllGather;
       c.count = (std::uint64_t{1} << 61) + 1;  // x 2 processes x 4 bytes = 8
     },
     ErrorCode::kInvalidArgument, "more than an op can have"},
    {"a reduce-scatter whose elements wrap over all processes",
     [](auto& c) {
       c.collective = Collective::kReduceScatter;
       c.datatype = 4;
       c.count = (std::uint64_t{1} << 63) + 1;  // x 2 processes = 2
     },
     ErrorCode::kInvalidArgument, "more than an op can have"},
    {"an all-gather in place of another's block",
     [](auto& c) {
       c.collective = Collective::kAllGather;
       c.output_memory = 1;  // block 0 of the output; this is process 1
     },
     ErrorCode::kInvalidArgument, "the input is this process's block of the output"},
    {"a reduce-scatter in place of another's block",
     [](auto& c) {
       c.collective = Collective::kReduceScatter;
       c.output_memory = 1;
     },
     ErrorCode::kInvalidArgument, "the output is this process's block of the input"},
};

}  // namespace

TEST_CASE("each hostile command is refused by name and changes nothing") {
  CommandFixture fixture;
  TestClient& client = fixture.add_client(1);
  fixture.add_client(2);
  fixture.add_memory(2, 5);
  fixture.add_group({1});
  fixture.add_group({2}, 0x2002);

  std::uint64_t request_id = 100;
  for (const Hostile& hostile : kHostile) {
    INFO(hostile.what);
    ipc::CommandEntry command = CommandFixture::command(++request_id);
    hostile.change(command);
    REQUIRE(client.queue.push_command(command));
    CHECK(fixture.commands->poll());
    const auto answer = client.completion();
    REQUIRE(answer);
    CHECK(answer->request_id == request_id);
    CHECK(answer->op_seq == 0);
    CHECK(static_cast<ErrorCode>(answer->status) == hostile.code);
    CHECK_THAT(std::string(answer->text), Catch::Contains(hostile.names));
    CHECK_FALSE(client.completion());
    CHECK_FALSE(fixture.ops(0));
    CHECK_FALSE(fixture.ops(1));
  }
  CHECK(fixture.counters.bad_commands == std::size(kHostile));

  // A good one is op 1: none of those before was counted.
  REQUIRE(client.queue.push_command(CommandFixture::command(1)));
  fixture.commands->poll();
  const auto ops = fixture.ops(1);
  REQUIRE(ops);
  CHECK(ops->op_seq == 1);
}

TEST_CASE("commands at the very edges of memory are accepted") {
  CommandRanges ranges;
  Refusal refusal;
  std::vector<std::byte> memory(4096);
  const MemoryView view{memory.data(), memory.size()};
  ipc::CommandEntry command = CommandFixture::command();
  command.count = 512;
  command.input_offset = 0;
  command.output_offset = 2048;
  command.output_memory = command.input_memory;
  CHECK(check_command(command, CommandFixture::kLimits, kPlace, view, view, ranges, refusal));
  CHECK(ranges.output.end == memory.data() + memory.size());
  command.output_offset = 0;
  CHECK(check_command(command, CommandFixture::kLimits, kPlace, view, view, ranges,
                      refusal));  // in place
  command.input_offset = 4096;
  command.output_offset = 4096;
  command.count = 0;
  CHECK(check_command(command, CommandFixture::kLimits, kPlace, view, view, ranges, refusal));
  command.count = 1;
  CHECK_FALSE(check_command(command, CommandFixture::kLimits, kPlace, view, view, ranges, refusal));
}

TEST_CASE("each collective's ranges are what this process reads and writes, and no memory else") {
  std::vector<std::byte> memory(4096);
  const MemoryView view{memory.data(), memory.size()};
  struct Case {
    Collective collective;
    std::uint32_t root;
    std::uint64_t input_bytes, output_bytes;
  };
  // Process 1 of 2.
  const Case cases[] = {{Collective::kAllReduce, 0, 400, 400},
                        {Collective::kReduce, 1, 400, 400},
                        {Collective::kReduce, 0, 400, 0},
                        {Collective::kBroadcast, 1, 400, 400},
                        {Collective::kBroadcast, 0, 0, 400},
                        {Collective::kAllGather, 0, 400, 800},
                        {Collective::kReduceScatter, 0, 800, 400},
                        {Collective::kGather, 1, 400, 800},
                        {Collective::kGather, 0, 400, 0},
                        {Collective::kScatter, 1, 800, 400},
                        {Collective::kScatter, 0, 0, 400},
                        {Collective::kAllToAll, 0, 800, 800},
                        {Collective::kSend, 0, 400, 0},
                        {Collective::kRecv, 0, 0, 400}};
  for (const Case& each : cases) {
    INFO(name_of(each.collective) << ", root " << each.root);
    ipc::CommandEntry command = CommandFixture::command();
    command.collective = each.collective;
    command.root = each.root;
    command.count = 100;
    command.input_offset = 0;
    command.output_offset = 1024;
    // What it does not touch need not be its own.
    const MemoryView input = each.input_bytes == 0 ? MemoryView{} : view;
    const MemoryView output = each.output_bytes == 0 ? MemoryView{} : view;
    CommandRanges ranges;
    Refusal refusal;
    const bool accepted =
        check_command(command, CommandFixture::kLimits, kPlace, input, output, ranges, refusal);
    CHECK(accepted);
    CHECK(static_cast<std::uint64_t>(ranges.input.end - ranges.input.begin) == each.input_bytes);
    CHECK(static_cast<std::uint64_t>(ranges.output.end - ranges.output.begin) == each.output_bytes);
  }
}

TEST_CASE("an all-gather and a reduce-scatter may be in place in this process's own block") {
  std::vector<std::byte> memory(4096);
  const MemoryView view{memory.data(), memory.size()};
  for (std::uint32_t process = 0; process < 4; ++process) {
    ipc::CommandEntry command = CommandFixture::command();
    const auto code = [&] {
      CommandRanges ranges;
      Refusal refusal;
      const bool accepted = check_command(command, CommandFixture::kLimits, {process, 4}, view,
                                          view, ranges, refusal);
      CHECK(accepted == (refusal.code == ErrorCode::kOk));
      return refusal.code;
    };
    command.count = 100;
    command.collective = Collective::kAllGather;
    command.output_offset = 64;
    command.input_offset = 64 + std::uint64_t{process} * 400;
    CHECK(code() != ErrorCode::kInvalidArgument);
    std::swap(command.input_offset, command.output_offset);
    command.collective = Collective::kReduceScatter;
    CHECK(code() != ErrorCode::kInvalidArgument);
    command.output_offset += 4;
    CHECK(code() == ErrorCode::kInvalidArgument);
  }
}

TEST_CASE("an op of more chunks than a shard takes is refused with both numbers") {
  CommandRanges ranges;
  Refusal refusal;
  std::vector<std::byte> memory(1 << 16);
  const MemoryView view{memory.data(), memory.size()};
  ipc::CommandEntry command = CommandFixture::command();
  command.count = memory.size() / 4;
  command.output_memory = command.input_memory;
  OpLimits limits = CommandFixture::kLimits;
  limits.max_chunks = 32;  // 64 chunks of 1 KiB over two lanes
  CHECK(check_command(command, limits, kPlace, view, view, ranges, refusal));
  limits.max_chunks = 31;
  CHECK_FALSE(check_command(command, limits, kPlace, view, view, ranges, refusal));
  CHECK_THAT(std::string(refusal.text), Catch::Contains("32 chunks") && Catch::Contains("31"));
}

TEST_CASE("an op of more elements than a shard takes is refused by name, whatever the memory") {
  CommandRanges ranges;
  Refusal refusal;
  std::byte byte{};
  const MemoryView view{&byte, UINT64_MAX / 2};
  ipc::CommandEntry command = CommandFixture::command();
  command.collective = Collective::kAllGather;
  command.datatype = static_cast<std::uint8_t>(DataType::kUint8);
  command.redop = 0;
  command.output_memory = command.input_memory;
  command.count = kMostElements / kPlace.processes;
  command.input_offset = kPlace.process * command.count;
  OpLimits limits = CommandFixture::kLimits;
  limits.max_chunks = UINT32_MAX;
  limits.shape.payload_bytes = 1 << 20;
  CHECK(check_command(command, limits, kPlace, view, view, ranges, refusal));
  ++command.count;
  CHECK_FALSE(check_command(command, limits, kPlace, view, view, ranges, refusal));
  CHECK_THAT(std::string(refusal.text),
             Catch::Contains("of 2 processes, is more than an op can have: 2^48 elements"));
}
