// SPDX-License-Identifier: BSD-3-Clause
#include "command/command_answers.h"

#include <sys/socket.h>

#include <cstring>
#include <string_view>

#include "base/counter.h"
#include "command/command_lane_state.h"

namespace gradwire::command {

void Answers::begin(Client& client, std::uint16_t index) noexcept {
  Record& record = client.records[index];
  record.active = true;
  record.active_index = static_cast<std::uint16_t>(client.active_count);
  client.active_ranges[client.active_count] = record.ranges;
  client.active[client.active_count++] = index;
  ++unfinished_;
}

void Answers::refuse(Client& client, std::uint16_t index, const Refusal& refusal) noexcept {
  count(counters_.bad_commands);
  complete(client, index, refusal.code, refusal.text);
}

void Answers::complete(Client& client, std::uint16_t index, ErrorCode status, const char* text,
                       std::uint64_t bytes) noexcept {
  Record& record = client.records[index];
  ++steps_;
  if (record.active) {
    --unfinished_;
    const std::uint16_t last = client.active[--client.active_count];
    client.active[record.active_index] = last;
    client.active_ranges[record.active_index] = client.active_ranges[client.active_count];
    client.records[last].active_index = record.active_index;
    record.active = false;
  }
  for (Memory* memory : {record.input, record.output, record.beside[0], record.beside[1]}) {
    if (memory == nullptr) continue;
    memories_.release(*memory);
  }
  record.input = record.output = nullptr;
  record.beside = {};
  record.ready = nullptr;
  record.status = static_cast<std::uint32_t>(status);
  record.bytes = bytes;
  // As a rule the text is empty: printf would be a twentieth of a command's instructions.
  record.text[std::string_view(text).copy(record.text, sizeof record.text - 1)] = '\0';
  client.done[(client.done_head + client.done_count++) % kRecords] = index;
  // Two, so that what found no room before becomes less.
  push_waiting(client, 2);
  // What found no room is tried again each round, and who gets an answer may have more to ask.
  clients_.wake(client);
}

void Answers::push_waiting(Client& client, std::uint32_t most) noexcept {
  bool pushed = false;
  for (; client.done_count != 0 && most > 0; --most) {
    const std::uint16_t index = client.done[client.done_head];
    const Record& record = client.records[index];
    ipc::CompletionEntry entry;
    entry.request_id = record.request_id;
    entry.op_seq = record.op_seq;
    entry.status = record.status;
    entry.bytes = record.bytes;
    std::memcpy(entry.text, record.text, sizeof entry.text);
    // A client that does not read its completions gets no more commands read: it has no record.
    if (!client.port->queue.push_completion(entry)) break;
    pushed = true;
    ++steps_;
    client.done_head = (client.done_head + 1) % kRecords;
    --client.done_count;
    client.free[client.free_count++] = index;
  }
  if (pushed && client.port->completion_fd >= 0 && client.port->queue.take_client_waits()) {
    const std::uint64_t one = 1;
    // If the client has closed its end there is nobody to wake, and no signal may come of that.
    [[maybe_unused]] const ssize_t ignored =
        send(client.port->completion_fd, &one, sizeof one, MSG_DONTWAIT | MSG_NOSIGNAL);
  }
}

}  // namespace gradwire::command
