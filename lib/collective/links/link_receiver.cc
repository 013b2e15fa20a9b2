// SPDX-License-Identifier: BSD-3-Clause
#include "collective/links/link_receiver.h"

#include "base/planted_bug.h"
#include "base/profile.h"

namespace gradwire::collective {
namespace {

/// The other rank is taken to have this rank's window. If its own is larger, a packet whose
/// acknowledgement was lost is sent once more at worst.
transport::ReceiverConfig receiver_config(const ShardConfig& config) {
  transport::ReceiverConfig receiver = config.receiver;
  receiver.reported_numbers = sender_config(config).max_packets_in_flight;
  return receiver;
}

}  // namespace

LinkReceiver::LinkReceiver(const ShardConfig& config, LinkEnd& end,
                           const PacketBuffers& buffers) noexcept
    : config_(config), end_(end), buffers_(buffers), receiver_(receiver_config(config)) {}

bool LinkReceiver::on_ping(std::uint64_t packet_number, std::uint64_t asked, bool ecn_ce,
                           TimeNs now) noexcept {
  receiver_.request_ack();
  if (receiver_.check(packet_number) != transport::Receiver::Verdict::kNew) return false;
  receiver_.accept(now, packet_number, ecn_ce);
  if (asked != 0) asked_ = asked;
  return true;
}

bool LinkReceiver::send_ack(const PostedWords& words, const OpTable& ops, TimeNs now,
                            OutboxSide& box) noexcept {
  require(end_.greeted() && !box.full(), "who is acknowledged has said hello, and there is room");
  const profile::Stage stage(profile::StageId::kTransport);
  return end_.send_by(end_.back(), config_.control_pool, box, [&](std::span<std::byte> room) {
    wire::AckHeader& ack = ack_;
    ack.credit_chunks = credit_told_ = credit_limit();
    words_told_ = words;
    ack.called = ops.say(asked_);
    asked_ = 0;
    ack.posted_op_seq = words_told_.here;
    ack.posted_onwards = words_told_.onwards;
    ack.posted_by_all = words_told_.everyone;
#ifdef GRADWIRE_PLANTED_BUGS
    if (planted(PlantedBug::kLostCreditUpdate)) say_limits_once(ack);
#endif
    receiver_.write_ack(now, ack);
    return wire::encode_ack(room, end_.header(wire::PacketType::kAck), ack);
  });
}

}  // namespace gradwire::collective
