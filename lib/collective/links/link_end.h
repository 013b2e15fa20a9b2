// SPDX-License-Identifier: BSD-3-Clause
/// @file
/// The other end of a link: which rank it is, how packets get there and how those from there are
/// told from others. The table of the group gives it. One lane owns it.
#pragma once

#include <rte_mbuf.h>
#include <rte_mempool.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include "base/planted_bug.h"
#include "base/require.h"
#include "collective/links/link_address.h"
#include "collective/shard_config.h"
#include "collective/shard_status.h"
#include "transport/packet_numbers.h"
#include "wire/frame.h"
#include "wire/packet.h"
#include "wire/sealed.h"

namespace gradwire::collective {

/// Index of a path to a rank. It never goes on the wire: the other end may count them otherwise.
using PathIndex = std::uint8_t;
inline constexpr std::size_t kPathsMax = 16;
inline constexpr PathIndex kNoPath = 0xff;

/// What all ends have in common: how often those off the ring took another path, and all another
/// source port, of their own accord; how many of them do without their first path now; when this
/// lane polled last, and until when it is only just awake after it stood still.
struct PathTally {
  std::uint64_t& moves;
  std::uint64_t& source_moves;
  std::uint32_t away = 0;
  TimeNs polled_at = 0;
  TimeNs awake_at = 0;

  void polled(TimeNs now, TimeNs ping_interval_ns) noexcept {
    if (now - polled_at > ping_interval_ns) awake_at = now + ping_interval_ns;
    polled_at = now;
  }
  [[nodiscard]] bool stood_still(TimeNs now, TimeNs ping_interval_ns) const noexcept {
    return now < awake_at || now - polled_at > ping_interval_ns;
  }
};

class LinkEnd {
 public:
  explicit LinkEnd(const LinkAddress& address)
      : address_(address),
        first_source_port_(address.frame.bytes() != 0 ? address.frame.source_port() : 0) {
    first_from_[0] = first_number_;
    paths_.push_back({address.ip, address.frame, address.port});
    for (const LinkPath& path : address.others) {
      if (paths_.size() < kPathsMax) paths_.push_back(path);
    }
    if (!seals()) return;
    for (LinkPath& path : paths_) path.frame.set_trailer_bytes(tag_bytes());
    address_.frame = paths_[0].frame;
  }

  [[nodiscard]] const LinkAddress& address() const noexcept { return address_; }
  /// How often address().frame has become another one.
  [[nodiscard]] std::uint32_t frames_made() const noexcept { return frames_made_; }
  [[nodiscard]] std::uint16_t rank() const noexcept { return address_.rank; }
  /// Its hello came: data from there is taken.
  [[nodiscard]] bool greeted() const noexcept { return greeted_; }
  void on_hello() noexcept { greeted_ = true; }
  /// It answered our hello: data may go there.
  [[nodiscard]] bool answered() const noexcept { return answered_; }
  void on_hello_ack() noexcept { answered_ = true; }
  /// All that was awaited from there came.
  [[nodiscard]] bool open() const noexcept {
    return (answered_ || !address_.gets_data) && (greeted_ || !address_.brings_data);
  }

  /// Buffers are laid out for frames of that length.
  /// @param ip  of the path, if there are several.
  void lead_to(const wire::IpAddress& ip, const wire::FrameTemplate& frame) noexcept {
    for (LinkPath& path : paths_) {
      if (has_rails() && !(path.ip == ip)) continue;
      require(frame.bytes() == path.frame.bytes(), "a link's frames keep their length");
      path.frame = frame;
      path.frame.set_trailer_bytes(tag_bytes());
      const std::uint8_t source = sources_[static_cast<std::size_t>(&path - paths_.data())];
      if (source != 0) path.frame.set_source_port(source_port(source));
    }
    take_frame();
  }

  // Paths (doc/protocol/paths.md, Rails). What this rank sends of its own accord takes path(); what
  // answers the other rank takes back(), the path that the other rank has chosen.
  [[nodiscard]] std::size_t path_count() const noexcept { return paths_.size(); }
  [[nodiscard]] bool has_rails() const noexcept { return paths_.size() > 1; }
  [[nodiscard]] PathIndex path() const noexcept { return path_; }
  [[nodiscard]] PathIndex back() const noexcept { return back_; }
  [[nodiscard]] const wire::FrameTemplate& frame_of(PathIndex path) const noexcept {
    return paths_[path].frame;
  }
  [[nodiscard]] std::uint16_t port_of(PathIndex path) const noexcept { return paths_[path].port; }
  [[nodiscard]] const wire::IpAddress& ip_of(PathIndex path) const noexcept {
    return paths_[path].ip;
  }
  /// Packets take that path from now on. Numbers go on.
  void take_path(PathIndex path) noexcept {
    if (tally_ != nullptr && !watched_) {
      ++tally_->moves;
      if (path_ == 0) ++tally_->away;
      if (path == 0) --tally_->away;
    }
    path_ = path;
    take_frame();
    address_.port = paths_[path].port;
    first_number_ = numbers_.next();
    first_from_.fill(0);
    first_from_[sources_[path]] = first_number_;
#ifdef GRADWIRE_PLANTED_BUGS
    if (planted(PlantedBug::kNumbersAnewAfterMove)) numbers_.begin_anew();
#endif
  }
  /// The first number that was sent by path().
  [[nodiscard]] std::uint64_t first_number() const noexcept { return first_number_; }
  /// By which path packets from that address come; kNoPath if by none.
  [[nodiscard]] PathIndex path_from(const wire::IpAddress& source) const noexcept {
    if (source == address_.ip) [[likely]]
      return back_;
    for (std::size_t i = 0; paths_.size() > 1 && i < paths_.size(); ++i) {
      if (source == paths_[i].ip) return static_cast<PathIndex>(i);
    }
    return kNoPath;
  }
  /// A packet that the other rank sent by the path of its choice. The newest decides, so that what
  /// comes late does not lead back to a path that was left.
  void came_by(PathIndex path, std::uint64_t packet_number) noexcept {
    if (packet_number <= newest_) return;
    newest_ = packet_number;
    if (path == back_) return;
    back_ = path;
    address_.ip = paths_[path].ip;
  }
  /// A question that the other rank sent, however old its number is, and by which path its answer
  /// goes: it came by a path that lives that way, and which of several paths lives the other way
  /// the other rank finds out by answers alone. Where a path is slow it asks by the next one before
  /// the answer is there, and that one may be cut.
  void was_asked_by(PathIndex path) noexcept { asked_by_ = path; }
  [[nodiscard]] PathIndex answer_by() const noexcept { return asked_by_; }
  /// A packet that had to be repeated: unless the ring watches the path, it goes from the next
  /// source port, and at last by the next path.
  void repeats(std::uint32_t tries, const ShardTimeouts& timeouts, TimeNs now) noexcept {
    if (watched_) return;
    if (asks_again(tries)) seek_source(path_, timeouts, now);
    if (paths_.size() == 1 || tries < kTriesBeforeNext) return;
    if (now - moved_at_ < timeouts.silence_ns / kMovesInLimit) return;
    moved_at_ = now;
    take_path(static_cast<PathIndex>((path_ + 1u) % paths_.size()));
    if (path_ == 0) return;
    home_at_ = now + (timeouts.silence_ns << std::min(strayed_, kStraysMax));
    ++strayed_;
  }
  /// Something goes there: the first path is tried again after a while.
  void may_go_home(TimeNs now) noexcept {
    if (path_ == 0 || watched_ || now < home_at_) return;
    moved_at_ = now;
    take_path(0);
  }
  /// Somebody else chooses its path: PathChoice.
  void be_watched() noexcept { watched_ = true; }
  /// Counts from now on; paths unless somebody else chooses its path.
  void count_in(PathTally& tally) noexcept { tally_ = &tally; }

  // Source ports (doc/protocol/paths.md, Source ports), by index from 0: on each path all that is
  // sent comes from one of them, but hellos and last words, which try others.
  [[nodiscard]] SourcePorts sources() const noexcept { return address_.sources; }
  [[nodiscard]] std::uint8_t source_of(PathIndex path) const noexcept { return sources_[path]; }
  [[nodiscard]] std::uint16_t source_port(std::uint8_t source) const noexcept {
    const std::uint32_t further =
        wire::kSourcePortFirst + address_.lane * std::uint32_t{wire::kSourcePortsMax} + source;
    return source == 0 ? first_source_port_ : static_cast<std::uint16_t>(further);
  }
  /// So many after the one that the path has, and round again.
  [[nodiscard]] std::uint8_t source_after(PathIndex path, std::uint32_t steps) const noexcept {
    return static_cast<std::uint8_t>((sources_[path] + steps) % address_.sources.count);
  }
  /// Packets that take the path come from there from now on. Numbers go on.
  /// @return whether that is another one.
  bool take_source(PathIndex path, std::uint8_t source) noexcept {
    if (source >= address_.sources.count || source == sources_[path]) return false;
    sources_[path] = source;
    paths_[path].frame.set_source_port(source_port(source));
    if (path != path_) return true;
    take_frame();
    first_from_[source] = first_number_ = numbers_.next();
#ifdef GRADWIRE_PLANTED_BUGS
    if (planted(PlantedBug::kNumbersAnewAfterMove)) numbers_.begin_anew();
#endif
    return true;
  }
  /// Whether a question that goes for the so manieth time without an answer says so.
  [[nodiscard]] static bool asks_again(std::uint32_t tries) noexcept {
    return tries >= kTriesBeforeSource;
  }
  /// The other rank asks again and again: what answers it may be lost on its way.
  void was_asked_again(const ShardTimeouts& timeouts, TimeNs now) noexcept {
    if (planted(PlantedBug::kAnswersFromOnePort)) return;
    // After this rank stood still all questions that it left unanswered come at once.
    if (tally_ != nullptr && tally_->stood_still(now, timeouts.ping_interval_ns)) return;
    seek_source(asked_by_, timeouts, now);
    if (back_ != asked_by_) seek_source(back_, timeouts, now);
  }
  /// What goes there does not arrive, though short packets do.
  void arrives_never(const ShardTimeouts& timeouts, TimeNs now) noexcept {
    seek_source(path_, timeouts, now);
    arrived_ = numbers_.next() - 1;
  }
  /// The other rank has got the packet of that number, of which this is the low half. It went from
  /// a source port that is good then, and the one that the search has come to may lead nowhere: a
  /// rank that stood still answers none until it goes on.
  /// @return whether that is news.
  bool arrived(std::uint32_t low_half) noexcept {
    if (watched_ || address_.sources.count == 1) return false;
    const std::uint32_t ago = static_cast<std::uint32_t>(numbers_.next()) - low_half;
    if (ago == 0 || ago >= numbers_.next()) return false;  // It was never sent.
    const std::uint64_t number = numbers_.next() - ago;
    if (number <= arrived_) return false;
    arrived_ = number;
    std::uint8_t from = sources_[path_];
    std::uint64_t first = 0;
    for (std::uint8_t source = 0; source < address_.sources.count; ++source) {
      if (first_from_[source] > number || first_from_[source] <= first) continue;
      first = first_from_[source];
      from = source;
    }
    (void)take_source(path_, from);
    return true;
  }

  /// Numbers of packets that go there.
  [[nodiscard]] transport::PacketNumbers& numbers() noexcept { return numbers_; }
  /// What every packet that goes there begins with.
  [[nodiscard]] wire::CommonHeader header(wire::PacketType type,
                                          std::uint64_t packet_number) const noexcept {
    return {type,          address_.lane,     address_.group_tag,
            packet_number, address_.own_rank, address_.tokens.to};
  }
  /// What a packet begins with of which its sender remembers nothing.
  [[nodiscard]] wire::CommonHeader header(wire::PacketType type) noexcept {
    return header(type, numbers_.take());
  }
  // Sealing (doc/security.md). A packet is whole when it is put into a box.
  [[nodiscard]] bool seals() const noexcept { return address_.seals != nullptr; }
  [[nodiscard]] bool encrypts() const noexcept { return seals() && address_.seals->encrypts(); }
  /// What a sealed packet is longer by.
  [[nodiscard]] std::uint32_t tag_bytes() const noexcept {
    return seals() ? std::uint32_t{wire::kSealTagBytes} : 0;
  }
  /// Whether the next packet may be made: not while the next generation's key is awaited.
  [[nodiscard]] bool has_key() const noexcept {
    return !seals() || address_.seals->can_seal(address_.rank, numbers_.next());
  }
  /// Seals the packet if the group's are sealed, and puts it into the box.
  /// @param around   what the frame begins with: of one path or another.
  /// @param payload  where the packet's payload is read if it is sealed: mostly in `frame` itself.
  void put(rte_mbuf* frame, const wire::FrameTemplate& around, const std::byte* payload,
           OutboxSide& box) const noexcept {
    if (seals()) [[unlikely]]
      address_.seals->seal(address_.rank, *frame, around.bytes(), payload);
    box.put(frame);
  }
  /// Whether a packet is sealed as the group's are, and then whether its token is the link's.
  [[nodiscard]] wire::Drop check(const wire::CommonHeader& header) const noexcept {
    const std::uint8_t sealed = seals() ? address_.seals->flag() : 0;
    if (header.sealed != sealed) return wire::Drop::kUnsealed;
    const bool fits = header.token == address_.tokens.from || planted(PlantedBug::kTokenNotChecked);
    return fits ? wire::Drop::kNone : wire::Drop::kToken;
  }
  /// Where data of the ring and what is sent along with it goes: by path().
  [[nodiscard]] OutboxSide& side(Outbox& out) const noexcept { return out.boxes[address_.box]; }
  /// Where everything else goes, each packet by the path that it names.
  [[nodiscard]] OutboxSide& any_side(Outbox& out) const noexcept {
    return out.boxes[has_rails() ? Outbox::kAny : address_.box];
  }
  [[nodiscard]] OutboxSide& ack_side(Outbox& out) const noexcept {
    return out.boxes[address_.ack_box];
  }

  /// Encodes a packet without payload of its own class into a fresh mbuf and puts it in the box.
  /// @param encode  bytes that it wrote into the span it got; 0 if they do not fit.
  /// @return whether there was room for it.
  template <class Encode>
  bool send(rte_mempool* pool, OutboxSide& box, Encode&& encode) const noexcept {
    return send_by(path_, pool, box, std::forward<Encode>(encode));
  }
  /// As send(), by a path that is not the one of choice.
  template <class Encode>
  bool send_by(PathIndex path, rte_mempool* pool, OutboxSide& box, Encode&& encode) const noexcept {
    return send_framed(paths_[path].frame, path, pool, box, std::forward<Encode>(encode));
  }
  /// And from a source port that is not the path's.
  template <class Encode>
  bool send_from(PathIndex path, std::uint8_t source, rte_mempool* pool, OutboxSide& box,
                 Encode&& encode) const noexcept {
    if (source == sources_[path]) return send_by(path, pool, box, std::forward<Encode>(encode));
    wire::FrameTemplate frame = paths_[path].frame;
    frame.set_source_port(source_port(source));
    return send_framed(frame, path, pool, box, std::forward<Encode>(encode));
  }

 private:
  /// The one of path() has become another.
  void take_frame() noexcept {
    address_.frame = paths_[path_].frame;
    ++frames_made_;
  }
  static constexpr std::uint32_t kTriesBeforeSource = 2;
  static constexpr std::uint32_t kTriesBeforeNext = 4;
  static constexpr TimeNs kMovesInLimit = 10;
  static constexpr std::uint32_t kStraysMax = 6;
  static constexpr TimeNs kSearchesInLimit = 4;

  /// A search for a source port of a path from which something arrives.
  struct Search {
    TimeNs stepped_at = 0;
    bool ever = false;
  };
  /// Tries the next one, since nobody knows which of them lead there. Many may ask for it at once,
  /// or have waited here in a queue, so time limits the steps.
  void seek_source(PathIndex path, const ShardTimeouts& timeouts, TimeNs now) noexcept {
    Search& search = searches_[path];
    const TimeNs ago = now - search.stepped_at;
    if (search.ever && ago < timeouts.ping_interval_ns / 2) return;
    if (!take_source(path, source_after(path, 1))) return;
    const bool begins = !search.ever || ago > timeouts.silence_ns / kSearchesInLimit;
    search = {now, true};
    if (begins && tally_ != nullptr) ++tally_->source_moves;
  }

  template <class Encode>
  bool send_framed(const wire::FrameTemplate& frame, PathIndex path, rte_mempool* pool,
                   OutboxSide& box, Encode&& encode) const noexcept {
    if (box.full() || !has_key()) return false;
    rte_mbuf* mbuf = rte_pktmbuf_alloc(pool);
    if (mbuf == nullptr) return false;
    mbuf->port = paths_[path].port;
    auto* start = rte_pktmbuf_mtod(mbuf, std::byte*);
    const std::size_t room = rte_pktmbuf_tailroom(mbuf);
    const std::size_t around = frame.bytes() + tag_bytes();
    const std::size_t bytes =
        room > around ? encode(std::span<std::byte>(start + frame.bytes(), room - around)) : 0;
    if (bytes == 0) {
      rte_pktmbuf_free(mbuf);
      return false;
    }
    frame.write(start, bytes);
    mbuf->data_len = static_cast<std::uint16_t>(frame.bytes() + bytes);
    mbuf->pkt_len = mbuf->data_len;
    put(mbuf, frame, start + frame.bytes() + wire::kHeaderBytes, box);
    return true;
  }

  LinkAddress address_;  ///< with frame and port of path(), and the IP address of back()
  std::uint16_t first_source_port_;
  std::vector<LinkPath> paths_;                    ///< with the source port that each has now
  std::array<std::uint8_t, kPathsMax> sources_{};  ///< its index
  std::array<Search, kPathsMax> searches_{};
  std::uint32_t frames_made_ = 0;
  PathIndex path_ = 0;
  PathIndex back_ = 0;
  PathIndex asked_by_ = 0;
  bool watched_ = false;
  PathTally* tally_ = nullptr;
  std::uint32_t strayed_ = 0;  ///< how often the first path was left
  std::uint64_t newest_ = 0;   ///< number of a packet that the other rank sent by its choice
  std::uint64_t first_number_ = 1;
  /// Since path() was taken: the first number from each source port, the last time that it had it.
  std::array<std::uint64_t, wire::kSourcePortsMax> first_from_{};
  std::uint64_t arrived_ = 0;  ///< the newest of which the other rank said so, and that counts
  TimeNs moved_at_ = 0;
  TimeNs home_at_ = 0;
  transport::PacketNumbers numbers_;
  bool greeted_ = false;
  bool answered_ = false;
};

}  // namespace gradwire::collective
