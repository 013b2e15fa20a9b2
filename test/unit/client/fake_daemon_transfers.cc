// SPDX-License-Identifier: BSD-3-Clause
// The fake daemon's sends and receives.
#include <algorithm>
#include <cstring>

#include "base/types.h"
#include "fake_daemon.h"

namespace gradwire::test {

bool FakeDaemon::run_transfers(Group& group) {
  // Each stream of a pair of processes has an order of its own.
  const auto first = [](Member& member, Collective collective, std::size_t peer, auto&& also) {
    return std::find_if(member.transfers.begin(), member.transfers.end(), [&](const auto& command) {
      return command.collective == collective && command.root == peer && also(command);
    });
  };
  for (std::size_t from = 0; from < group.all.size(); ++from) {
    for (std::size_t to = 0; to < group.all.size(); ++to) {
      Member& sender = group.all[from];
      Member& receiver = group.all[to];
      auto received = receiver.transfers.end();
      const auto sent = first(sender, Collective::kSend, to, [&](const auto& send) {
        received = first(receiver, Collective::kRecv, from,
                         [&](const auto& recv) { return recv.stream() == send.stream(); });
        return received != receiver.transfers.end();
      });
      if (sent == sender.transfers.end()) continue;
      const auto bytes_of = [](const ipc::CommandEntry& command) {
        return command.count * element_bytes(static_cast<DataType>(command.datatype));
      };
      const std::uint64_t bytes = bytes_of(*sent);
      const std::uint64_t room = bytes_of(*received);
      const bool up_to = received->flags == ipc::CommandEntry::kUpTo;
      const bool fits = up_to ? bytes <= room : bytes == room;
      if (fits && bytes != 0) {
        const auto& source = clients_.at(sender.place).memories.at(sent->input_memory);
        const auto& target = clients_.at(receiver.place).memories.at(received->output_memory);
        std::memcpy(target.data() + received->output_offset, source.data() + sent->input_offset,
                    bytes);
      }
      const ErrorCode code = fits ? ErrorCode::kOk : ErrorCode::kMismatch;
      const char* const text = fits ? "" : "the sizes differ";
      complete(sender.place, *sent, 0, code, text, bytes);
      complete(receiver.place, *received, 0, code, text, bytes + bytes_lie);
      sender.transfers.erase(sent);
      receiver.transfers.erase(received);
      return true;
    }
  }
  return false;
}

}  // namespace gradwire::test
