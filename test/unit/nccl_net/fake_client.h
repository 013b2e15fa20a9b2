// SPDX-License-Identifier: BSD-3-Clause
/// @file
/// Stands in for libgradwire under the plug-in for NCCL: groups form at once, and transfers end
/// when and how the test says. So what two daemons may do in any order is done in one, without any.
/// Any thread. Allocates.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

namespace gradwire::nccl_net::fake {

/// How joining and freeing go from here on: well.
void reset();
/// Process `process` of a group cannot join.
void refuse_join(std::uint32_t process);
/// Gradient memory is not given back.
void keep_memory(bool keep);

/// Ends the oldest unfinished receive of a stream of a link (messages.h), with these bytes.
/// @return false: there is none, or it is of another size.
bool finish_receive(std::uint32_t stream, const std::string& bytes);
/// Ends so many ops of a group of CollNet, the oldest. Their outputs are as they are.
void finish_ops(std::size_t count);
/// Of a stream alone.
void abort_receives(std::uint32_t stream);
/// All that is unfinished fails, in every group, and nothing more can be posted there.
void abort_groups();

/// Transfers and ops that have not ended.
std::size_t posted();
/// Groups that were not freed.
std::size_t groups();
std::size_t memories();

}  // namespace gradwire::nccl_net::fake
