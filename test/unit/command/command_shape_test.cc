// SPDX-License-Identifier: BSD-3-Clause
// What check_command() accepts, a shard takes.
#include <algorithm>
#include <catch2/catch.hpp>
#include <vector>

#include "collective/shapes/shape.h"
#include "collective/shard_config.h"
#include "command/command_check.h"
#include "command_fixture.h"

using namespace gradwire;
using namespace gradwire::command;

TEST_CASE("what is accepted has no more chunks than a shard takes, by whatever shape it goes") {
  std::vector<std::byte> memory(4096);
  const MemoryView view{memory.data(), UINT64_MAX / 2};
  std::uint64_t off_ring = 0;
  std::uint64_t refused = 0;
  for (const std::uint16_t nranks : {2, 64, 128}) {
    for (const std::uint16_t members : {1, 2}) {
      for (const std::uint64_t kib : {0u, 16u, 256u}) {
        OpLimits limits = CommandFixture::kLimits;
        limits.max_chunks = 1024;
        limits.shape.nranks = nranks;
        limits.shape.member_count = members;
        limits.shape.payload_bytes = 1408;
        limits.shape.exchange_bytes = 512 << 10;
        limits.shape.direct_bytes = 64 << 10;
        limits.shape.two_step_bytes =
            std::min<std::uint64_t>((kib << 10) * nranks, collective::kTwoStepBytesMax);
        limits.shape.gathered_bytes = 256 << 10;
        limits.shape.gathered_ranks = 64;
        for (const Collective collective :
             {Collective::kAllReduce, Collective::kReduce, Collective::kAllGather}) {
          for (const DataType datatype : {DataType::kBfloat16, DataType::kFloat32}) {
            for (std::uint64_t count = 1; count < 4'000'000; count = count * 5 / 4 + 1) {
              ipc::CommandEntry command = CommandFixture::command();
              command.collective = collective;
              command.datatype = static_cast<std::uint8_t>(datatype);
              command.count = count;
              command.output_offset = std::uint64_t{1} << 40;
              command.output_memory = command.input_memory;
              CommandRanges ranges;
              Refusal refusal;
              const bool accepted =
                  check_command(command, limits, {0, std::uint32_t{nranks} * members}, view, view,
                                ranges, refusal);
              std::uint64_t most = 0;
              for (std::uint8_t lane = 0; lane < limits.lanes; ++lane) {
                const auto plan =
                    collective::plan_op(limits.shape, lane, limits.lanes, 1408,
                                        {collective, datatype, 0, count, RedOp::kSum});
                most = std::max(most, plan.lane_chunks);
                if (collective::is_off_ring(plan.shape)) ++off_ring;
              }
              INFO(nranks << " ranks of " << members << ", two steps up to " << kib << " KiB: "
                          << name_of(collective) << " of " << count << " " << name_of(datatype));
              CHECK(accepted == (most <= limits.max_chunks));
              if (!accepted) ++refused;
            }
          }
        }
      }
    }
  }
  CHECK(off_ring > 1000);
  CHECK(refused > 1000);
}
