// SPDX-License-Identifier: BSD-3-Clause
// Residuals of ops with a wire format: which memory the daemon takes for them, that it stays until
// the op is done, and that no other op may use it meanwhile.
#include <array>
#include <vector>

#include "command_fixture.h"

using namespace gradwire;
using namespace gradwire::command;

namespace {

constexpr std::uint64_t kCount = 1000;

ipc::CommandEntry sum(std::uint64_t request_id) {
  ipc::CommandEntry command = CommandFixture::command(request_id);
  command.count = kCount;
  command.datatype = static_cast<std::uint8_t>(DataType::kFloat32);
  command.flags = ipc::CommandEntry::kHasResiduals;
  command.set_wire(WireFormat::kInt8);
  return command;
}

/// A client with memory 1 and 2 for an op, and 3 and 4 for residuals.
struct Fed : CommandFixture {
  Fed() {
    add_memory(1, 3);
    residual_out = add_memory(1, 4);
    add_group({1});
  }
  TestClient& client = add_client(1);
  std::byte* residual_out = nullptr;
  ipc::CommandExtra extra{.residual_in_memory = 3, .residual_out_memory = 4};

  void push(const ipc::CommandEntry& command, const ipc::CommandExtra& beside) {
    REQUIRE(client.queue.push_command(command, beside));
    commands->poll();
  }
  void refused(const ipc::CommandEntry& command, const ipc::CommandExtra& beside, ErrorCode code,
               const std::string& text) {
    push(command, beside);
    const auto answer = client.completion();
    REQUIRE(answer);
    CHECK(static_cast<ErrorCode>(answer->status) == code);
    CHECK_THAT(std::string(answer->text), Catch::Contains(text));
    CHECK_FALSE(ops(0));
  }
};

}  // namespace

TEST_CASE("lanes get the residuals of an op, and of the next one without, none") {
  Fed fed;
  fed.extra.residual_out_offset = 64;
  fed.push(sum(1), fed.extra);
  const auto ops = fed.ops(0);
  REQUIRE(ops);
  CHECK(ops->specs[1].wire == WireFormat::kInt8);
  CHECK(ops->specs[1].residual_in != nullptr);
  CHECK(ops->specs[1].residual_out == fed.residual_out + 64);
  fed.op_done(1);
  // Many ops later the same place in the list of ops is another's.
  for (std::uint64_t op = 2; op <= kOpSlots + 1; ++op) {
    fed.push(CommandFixture::command(op), fed.extra);
    fed.op_done(op);
  }
  const auto later = fed.ops(0);
  REQUIRE(later);
  const collective::OpSpec& again = later->specs[(kOpSlots + 1) % kOpSlots];
  REQUIRE(again.op_seq == kOpSlots + 1);
  CHECK(again.residual_in == nullptr);
  CHECK(again.residual_out == nullptr);
  CHECK(again.wire == WireFormat::kSame);
}

TEST_CASE("residuals that are not the client's, or not apart, are refused by name") {
  Fed fed;
  ipc::CommandEntry plain = sum(1);
  plain.set_wire(WireFormat::kSame);
  fed.refused(plain, fed.extra, ErrorCode::kInvalidArgument, "2 of a sum in a wire format");
  const auto with = [&](auto change) {
    ipc::CommandExtra extra = fed.extra;
    change(extra);
    return extra;
  };
  fed.refused(sum(2), with([](auto& e) { e.residual_out_memory = 0; }), ErrorCode::kNotFound,
              "residual_out memory 0 is not this client's");
  fed.refused(sum(3), with([](auto& e) { e.residual_in_memory = 9; }), ErrorCode::kNotFound,
              "residual_in memory 9");
  fed.refused(sum(4), with([](auto& e) { e.residual_out_offset = CommandFixture::kBytes - 3999; }),
              ErrorCode::kInvalidArgument, "leaves memory 4");
  fed.refused(sum(5), with([](auto& e) { e.residual_in_offset = UINT64_MAX; }),
              ErrorCode::kInvalidArgument, "leaves memory 3");
  fed.refused(sum(6), with([](auto& e) { e.residual_in_offset = 2; }), ErrorCode::kInvalidArgument,
              "not aligned to 4");
  for (const std::uint32_t other : {1u, 2u, 3u}) {
    fed.refused(sum(6 + other), with([&](auto& e) { e.residual_out_memory = other; }),
                ErrorCode::kInvalidArgument, "residual_out overlaps");
  }
  fed.refused(sum(10), with([](auto& e) { e.residual_in_memory = 2; }), ErrorCode::kInvalidArgument,
              "or residual_in its output");
  // What is read may be read twice.
  fed.push(sum(11), with([](auto& e) { e.residual_in_memory = 1; }));
  CHECK(fed.ops(0));
}

TEST_CASE("a reduce-scatter of bf16 has a residual of four bytes for each element of its input") {
  Fed fed;
  ipc::CommandEntry command = sum(1);
  command.collective = Collective::kReduceScatter;
  command.datatype = static_cast<std::uint8_t>(DataType::kBfloat16);
  // Two processes.
  fed.extra.residual_out_offset = CommandFixture::kBytes - 2 * kCount * sizeof(float);
  fed.push(command, fed.extra);
  CHECK(fed.ops(0));
  fed.op_done(1);
  REQUIRE(fed.client.completion());
  fed.extra.residual_out_offset += sizeof(float);
  command.request_id = 2;
  fed.refused(command, fed.extra, ErrorCode::kInvalidArgument, "leaves memory 4");
}

TEST_CASE("only the first member of a rank has residuals") {
  CommandFixture fixture;
  fixture.add_client(1);
  TestClient& second = fixture.add_client(2);
  fixture.add_memory(2, 4);
  fixture.add_group({1, 2});
  REQUIRE(second.queue.push_command(sum(1), {.residual_out_memory = 4}));
  fixture.commands->poll();
  const auto answer = second.completion();
  REQUIRE(answer);
  CHECK_THAT(std::string(answer->text), Catch::Contains("residuals of member 1"));
}

TEST_CASE("residuals are nobody else's until their op is done, and then their memory may go") {
  Fed fed;
  fed.push(sum(1), fed.extra);
  // Another op that reads what this one writes, or writes what it reads.
  ipc::CommandEntry reader = CommandFixture::command(2);
  reader.input_memory = 4;
  reader.output_offset = CommandFixture::kBytes / 2;
  fed.ops(0);
  fed.refused(reader, {}, ErrorCode::kInvalidArgument, "its memory overlaps");
  ipc::CommandEntry writer = CommandFixture::command(3);
  writer.input_offset = CommandFixture::kBytes / 2;
  writer.output_memory = 3;
  fed.refused(writer, {}, ErrorCode::kInvalidArgument, "its memory overlaps");
  ipc::CommandEntry next = sum(4);
  next.output_offset = CommandFixture::kBytes / 2;
  next.input_offset = CommandFixture::kBytes / 2;
  fed.refused(next, {.residual_in_memory = 4, .residual_out_memory = 3},
              ErrorCode::kInvalidArgument, "its memory overlaps");

  std::array<Request, 2> removals;
  for (std::uint32_t i = 0; i < removals.size(); ++i) {
    removals[i].client_id = 1;
    removals[i].memory = 3 + i;
    fed.commands->remove_memory(&removals[i]);
  }
  CHECK(fed.finished() == nullptr);
  fed.op_done(1);
  CHECK(fed.finished() != nullptr);
  CHECK(fed.finished() != nullptr);
}

TEST_CASE("commands conflict where one writes what the other touches") {
  std::vector<std::byte> memory(100);
  const auto range = [&](std::size_t begin, std::size_t end) {
    return Range{memory.data() + begin, memory.data() + end};
  };
  const CommandRanges base{range(0, 10), range(20, 30)};
  CHECK_FALSE(base.conflicts({range(0, 10), range(30, 40)}));  // both read the same
  CHECK_FALSE(base.conflicts({range(5, 15), range(40, 50)}));
  CHECK(base.conflicts({range(25, 35), range(40, 50)}));  // reads what we write
  CHECK(base.conflicts({range(50, 60), range(9, 12)}));   // writes what we read
  CHECK(base.conflicts({range(50, 60), range(29, 31)}));  // both write
  CHECK_FALSE(base.conflicts({range(10, 20), range(30, 31)}));
  CHECK_FALSE(base.conflicts({}));
}
