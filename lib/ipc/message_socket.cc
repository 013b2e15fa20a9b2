// SPDX-License-Identifier: BSD-3-Clause
#include "ipc/message_socket.h"

#include <fmt/format.h>
#include <sys/socket.h>

#include <cerrno>
#include <cstring>
#include <memory>

namespace gradwire::ipc {
namespace {

/// Messages that end_connection() takes: what a client sent before it saw that it was refused.
constexpr int kUnreceived = 8;

/// Control data of a message: aligned as cmsghdr wants it.
template <std::size_t kFds>
struct alignas(cmsghdr) FdBuffer {
  std::byte bytes[CMSG_SPACE(kFds * sizeof(int))] = {};
};

/// Takes every descriptor out of the control data, so that none leaks if the message is refused
/// later.
std::vector<UniqueFd> take_fds(msghdr& header) {
  std::vector<UniqueFd> fds;
  fds.reserve(kMaxMessageFds);
  for (cmsghdr* c = CMSG_FIRSTHDR(&header); c != nullptr; c = CMSG_NXTHDR(&header, c)) {
    if (c->cmsg_level != SOL_SOCKET || c->cmsg_type != SCM_RIGHTS) continue;
    const std::size_t count = (c->cmsg_len - CMSG_LEN(0)) / sizeof(int);
    for (std::size_t i = 0; i < count; ++i) {
      int fd = -1;
      std::memcpy(&fd, CMSG_DATA(c) + i * sizeof(int), sizeof(fd));
      fds.emplace_back(fd);
    }
  }
  return fds;
}

/// Takes the next message, of whose files there are descriptors, or which has none.
bool take_looked_at(int socket) {
  ssize_t taken = 0;
  do {
    taken = ::recv(socket, nullptr, 0, MSG_DONTWAIT);
  } while (taken < 0 && errno == EINTR);
  return taken >= 0;
}

Result<void> check_header(const MessageHeader& header, std::size_t received) {
  if (header.magic != kControlMagic) {
    return fail(ErrorCode::kInvalidArgument,
                fmt::format("a control message has magic {:#010x}, must have {:#010x}: the other "
                            "end is not gradwire",
                            header.magic, kControlMagic));
  }
  if (header.version != kControlVersion) {
    return fail(ErrorCode::kInvalidArgument,
                fmt::format("a control message has version {}, this end speaks version {}: use the "
                            "same release of daemon and library",
                            header.version, kControlVersion));
  }
  if (header.bytes != received) {
    return fail(ErrorCode::kInvalidArgument,
                fmt::format("a control message has {1} bytes, but its header says {0}",
                            header.bytes, received));
  }
  return {};
}

}  // namespace

Result<SocketStatus> send_message(int socket, MessageHeader header, std::span<const std::byte> body,
                                  std::span<const int> fds) {
  if (body.size() > kMaxMessageBytes - sizeof(header) || fds.size() > kMaxMessageFds) {
    return fail(
        ErrorCode::kInvalidArgument,
        fmt::format(
            "a control message would have {} bytes and {} descriptors, must have at most {} and {}",
            body.size() + sizeof(header), fds.size(), kMaxMessageBytes, kMaxMessageFds));
  }
  header.magic = kControlMagic;
  header.version = kControlVersion;
  header.bytes = static_cast<std::uint32_t>(sizeof(header) + body.size());
  header.reserved = 0;
  iovec parts[2] = {{&header, sizeof(header)}, {const_cast<std::byte*>(body.data()), body.size()}};
  msghdr message = {};
  message.msg_iov = parts;
  message.msg_iovlen = body.empty() ? 1 : 2;
  FdBuffer<kMaxMessageFds> control;
  if (!fds.empty()) {
    message.msg_control = control.bytes;
    message.msg_controllen = CMSG_SPACE(fds.size_bytes());
    cmsghdr* c = CMSG_FIRSTHDR(&message);
    c->cmsg_level = SOL_SOCKET;
    c->cmsg_type = SCM_RIGHTS;
    c->cmsg_len = CMSG_LEN(fds.size_bytes());
    std::memcpy(CMSG_DATA(c), fds.data(), fds.size_bytes());
  }
  while (true) {
    if (::sendmsg(socket, &message, MSG_NOSIGNAL) >= 0) return SocketStatus::kDone;
    if (errno == EINTR) continue;
    if (errno == EAGAIN || errno == EWOULDBLOCK) return SocketStatus::kWouldBlock;
    if (errno == EPIPE || errno == ECONNRESET || errno == ENOTCONN) return SocketStatus::kClosed;
    return fail(ErrorCode::kSystem,
                fmt::format("sendmsg on the control socket: {}", std::strerror(errno)));
  }
}

Result<SocketStatus> receive_message(int socket, Message& out) {
  out = Message{};
  out.header.magic = 0;
  // Kept per thread: most messages are far smaller than the largest.
  thread_local const auto buffer = std::make_unique<std::byte[]>(kMaxMessageBytes);
  iovec part = {buffer.get(), kMaxMessageBytes};
  FdBuffer<kMaxMessageFds> control;
  msghdr message = {};
  message.msg_iov = &part;
  message.msg_iovlen = 1;
  ssize_t received = 0;
  // The kernel reports a reset once, before the other end's last message: read on, since that
  // message says why it closed.
  bool reset = false;
  do {
    reset = received < 0 && errno == ECONNRESET;
    message.msg_control = control.bytes;
    message.msg_controllen = CMSG_LEN(kMaxMessageFds * sizeof(int));  // and no padding for one more
    // A look leaves the files in the message. Taking it at once would close those in here for which
    // there is no room, or no free descriptor.
    received = ::recvmsg(socket, &message, MSG_PEEK | MSG_CMSG_CLOEXEC);
  } while (received < 0 && (errno == EINTR || (errno == ECONNRESET && !reset)));
  if (received < 0) {
    if (errno == EAGAIN || errno == EWOULDBLOCK) return SocketStatus::kWouldBlock;
    if (errno == ECONNRESET || errno == ENOTCONN) return SocketStatus::kClosed;
    return fail(ErrorCode::kSystem,
                fmt::format("recvmsg on the control socket: {}", std::strerror(errno)));
  }
  out.fds = take_fds(message);
  if (received == 0) return SocketStatus::kClosed;
  if ((message.msg_flags & MSG_CTRUNC) == 0 && !take_looked_at(socket)) {
    return fail(ErrorCode::kSystem,
                fmt::format("recv on the control socket: {}", std::strerror(errno)));
  }
  const auto bytes = static_cast<std::size_t>(received);
  if (bytes < sizeof(MessageHeader)) {
    return fail(ErrorCode::kInvalidArgument,
                fmt::format("a control message has {} bytes, shorter than its header of {}", bytes,
                            sizeof(MessageHeader)));
  }
  std::memcpy(&out.header, buffer.get(), sizeof(out.header));
  if ((message.msg_flags & MSG_TRUNC) != 0) {
    return fail(ErrorCode::kInvalidArgument,
                fmt::format("a control message has more than {} bytes", kMaxMessageBytes));
  }
  if ((message.msg_flags & MSG_CTRUNC) != 0) {
    return fail(ErrorCode::kInvalidArgument,
                fmt::format("a control message carries more than {} file descriptors, or more than "
                            "this process may open",
                            kMaxMessageFds));
  }
  if (auto ok = check_header(out.header, bytes); !ok) return tl::unexpected(ok.error());
  out.body.assign(buffer.get() + sizeof(MessageHeader), buffer.get() + bytes);
  clear_if_secret(out.header, {buffer.get(), bytes});
  return SocketStatus::kDone;
}

void clear_if_secret(const MessageHeader& header, std::span<std::byte> bytes) noexcept {
  const bool secret = header.type == static_cast<std::uint16_t>(MessageType::kDescribe);
  if (secret && !bytes.empty()) ::explicit_bzero(bytes.data(), bytes.size());
}

bool end_connection(int socket) {
  // Nothing more can come then, from whoever has the other end.
  if (::shutdown(socket, SHUT_RDWR) != 0) return false;
  // Each message comes with the sender's credentials then: else an empty one looks like the end.
  const int on = 1;
  if (::setsockopt(socket, SOL_SOCKET, SO_PASSCRED, &on, sizeof(on)) != 0) return false;
  for (int i = 0; i <= kUnreceived; ++i) {
    std::byte first{};
    iovec part = {&first, sizeof(first)};
    alignas(cmsghdr) std::byte control[CMSG_SPACE(sizeof(ucred))] = {};
    msghdr message = {};
    message.msg_iov = &part;
    message.msg_iovlen = 1;
    message.msg_control = control;
    message.msg_controllen = sizeof(control);  // descriptors find no room
    const ssize_t looked = ::recvmsg(socket, &message, MSG_PEEK | MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
    if (looked < 0 && (errno == EINTR || errno == ECONNRESET)) continue;
    if (looked < 0 || (message.msg_flags & MSG_CTRUNC) != 0) return false;
    if (message.msg_controllen == 0) return true;
    if (!take_looked_at(socket)) return false;
  }
  return false;
}

}  // namespace gradwire::ipc
