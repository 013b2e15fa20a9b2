// SPDX-License-Identifier: BSD-3-Clause
/// @file
/// Finds where the installed DPDK keeps what memif_queues.h reads and no public header describes.
/// The layouts differ between releases, and within a stable series (24.11.5 put a field into the
/// middle of a queue), so a release's name tells nothing. What is searched for is known by what it
/// must contain, and is taken only if exactly one place fits. Control thread; calls the kernel.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>

namespace gradwire::port {

/// @param queue  what the driver keeps for a queue.
/// @param after  bytes of it that are known and are not searched.
/// @return how many bytes from its start there is the pointer to its interrupt handle, by which the
/// driver rings or is rung.
[[nodiscard]] std::optional<std::size_t> find_bell(const void* queue, std::size_t after) noexcept;

/// @return what the driver of a started port keeps for it in this process (process_private).
[[nodiscard]] const void* find_process_private(std::uint16_t port_id) noexcept;

}  // namespace gradwire::port
